//! `mmap` and its relatives, interposed: anonymous memory of the program lies in the arena.
//!
//! Called by the program and its libraries (not by libc itself, whose stacks and file mappings stay its own), and
//! by mimalloc inside this library, whose few pages of bookkeeping come from `os`.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_memory::layout;
use atoll_memory::sys::{self, Errno};

use super::{large, os};
use crate::start::segment;
use crate::state;

const FAILED: *mut c_void = usize::MAX as *mut c_void;

fn result(r: Result<usize, Errno>) -> *mut c_void {
    match r {
        Ok(at) => at as *mut c_void,
        Err(e) => {
            // SAFETY: errno is this thread's.
            unsafe { *libc::__errno_location() = e.0 };
            FAILED
        }
    }
}

fn status(r: Result<usize, Errno>) -> c_int {
    if result(r) == FAILED { -1 } else { 0 }
}

fn in_arena(at: usize, len: usize) -> bool {
    layout::in_arena(at) && len <= layout::ARENA + layout::ARENA_BYTES - at
}

/// `mmap`, with the caller's return address as seventh argument.
unsafe extern "C" fn map(
    at: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
    caller: usize,
) -> *mut c_void {
    let anonymous_or_fixed = libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE;
    // In a segment nothing faults: what else is mapped is filled at once.
    let filled = if segment::is_on() { libc::MAP_POPULATE } else { 0 };
    let kernel = || {
        let _set_up = segment::SetUp::begin(None);
        let place = |at: usize, fixed: c_int| {
            // SAFETY: exactly what the caller asked for, or a new mapping where nothing is.
            unsafe { sys::mmap(at, len, prot, flags | fixed | filled, fd, offset as u64) }
        };
        let everywhere = if flags & anonymous_or_fixed == 0 { free_everywhere(len, place) } else { None };
        let at = everywhere.map_or_else(|| place(at as usize, 0), Ok);
        if let Ok(at) = at
            && flags & libc::MAP_ANONYMOUS == 0
        {
            crate::wrap::replay::mapped(at, len, prot, flags, fd, offset);
        }
        result(at)
    };
    if crate::start::objects::is_own_code(caller) {
        return result(os::map(len).ok_or(Errno(libc::ENOMEM)));
    }
    let own_copy = flags & libc::MAP_PRIVATE != 0 && prot & libc::PROT_WRITE != 0;
    if own_copy
        && flags & anonymous_or_fixed == 0
        && let Some(copy) = copy_of_file(len, fd, offset)
    {
        return copy as *mut c_void;
    }
    let special = libc::MAP_GROWSDOWN | libc::MAP_STACK | libc::MAP_HUGETLB | libc::MAP_32BIT;
    if flags & libc::MAP_ANONYMOUS == 0 || flags & special != 0 || state::pager().is_none() || len == 0 {
        return kernel();
    }
    if flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0 {
        if flags & libc::MAP_FIXED != 0 && in_arena(at as usize, len) {
            large::zero(at as usize, (at as usize + len).next_multiple_of(4096));
            return at;
        }
        return kernel();
    }
    let at = large::allocate(len, 4096);
    if let Some(at) = at {
        crate::journal::block(at, len, caller);
    }
    result(at.ok_or(Errno(libc::ENOMEM)))
}

/// Maps a file at an address where no worker has anything; `None` where that is not needed or did not work out.
fn free_everywhere(len: usize, map: impl Fn(usize, c_int) -> Result<usize, Errno>) -> Option<usize> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    state::control().filter(|c| !c.settings.shared_tables())?;
    let room = len.checked_next_multiple_of(4096)?.checked_add(4096)?;
    if room > layout::FILES_BYTES / 2 {
        return None;
    }
    // Addresses are used again after terabytes: then some may be taken still.
    (0..16).find_map(|_| {
        let at = NEXT.fetch_add(room, Ordering::Relaxed) % (layout::FILES_BYTES / 2);
        map(layout::FILES + at, libc::MAP_FIXED_NOREPLACE).ok()
    })
}

/// A private writable mapping of a file, for a team of processes: each would get a copy of its own of what it
/// writes, so the file's content is read into the arena instead. `None`: not needed, or the file cannot be read.
fn copy_of_file(len: usize, fd: c_int, offset: i64) -> Option<usize> {
    state::control().filter(|c| !c.settings.shared_tables())?;
    let at = large::allocate(len, 4096)?;
    let mut done = 0;
    while done < len {
        // SAFETY: an extent that is ours; beyond the file's end it stays zero.
        let n = unsafe { crate::wrap::pread64(fd as usize, at + done, len - done, offset as usize + done) };
        if n < 0 {
            large::free(at);
            return None;
        }
        if n == 0 {
            break;
        }
        done += n as usize;
    }
    Some(at)
}

/// C's `mmap`: passes the return address on, by which calls from inside this library are told apart.
///
/// # Safety
/// As C's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    core::arch::naked_asm!(
        "mov rax, [rsp]",
        "push rax",
        "call {map}",
        "add rsp, 8",
        "ret",
        map = sym map,
    )
}

/// The same under its large-file name.
///
/// # Safety
/// As C's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap64(
    at: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    core::arch::naked_asm!("jmp {mmap}", mmap = sym mmap)
}

/// C's `munmap`.
///
/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn munmap(at: *mut c_void, len: usize) -> c_int {
    let start = at as usize;
    if os::contains(start) {
        os::unmap(start, len);
        return 0;
    }
    if in_arena(start, len) {
        large::free_range(start, (start + len).next_multiple_of(4096));
        return 0;
    }
    // SAFETY: by the caller.
    let unmapped = unsafe { sys::syscall(libc::SYS_munmap, [start, len, 0, 0, 0, 0]) };
    if unmapped.is_ok() {
        crate::wrap::replay::unmapped(start, len);
    }
    status(unmapped)
}

/// C's `mremap` (its variadic fifth argument arrives like any other).
///
/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mremap(
    at: *mut c_void,
    old: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let start = at as usize;
    if !in_arena(start, old) {
        // SAFETY: by the caller.
        return result(unsafe {
            sys::syscall(libc::SYS_mremap, [start, old, new, flags as usize, to as usize, 0])
        });
    }
    if flags & libc::MREMAP_FIXED != 0 {
        let new_end = (to as usize + new).next_multiple_of(4096);
        if !in_arena(to as usize, new) || ((to as usize) < start + old && start < new_end) {
            return result(Err(Errno(libc::EINVAL)));
        }
        large::zero(to as usize, new_end);
        // SAFETY: the program's own memory at both ends, which do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(start as *const u8, to.cast::<u8>(), old.min(new)) };
        large::free_range(start, (start + old).next_multiple_of(4096));
        return to;
    }
    if large::resize(start, new) {
        return at;
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        return result(Err(Errno(libc::ENOMEM)));
    }
    let Some(moved) = large::allocate(new, 4096) else { return result(Err(Errno(libc::ENOMEM))) };
    // SAFETY: both extents are live and do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(start as *const u8, moved as *mut u8, old.min(new)) };
    large::free_range(start, (start + old).next_multiple_of(4096));
    moved as *mut c_void
}

/// C's `madvise`.
///
/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int {
    let start = at as usize;
    if in_arena(start, len) {
        if matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_REMOVE) {
            large::zero(start, (start + len).next_multiple_of(4096));
        }
        return 0;
    }
    if layout::in_pinned(start) {
        if matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE) {
            // Shared memory is given back by a hole in its file.
            // SAFETY: the owner of the range says that its content is worthless.
            let _ =
                unsafe { sys::syscall(libc::SYS_madvise, [start, len, libc::MADV_REMOVE as usize, 0, 0, 0]) };
        }
        return 0;
    }
    // SAFETY: by the caller.
    status(unsafe { sys::syscall(libc::SYS_madvise, [start, len, advice as usize, 0, 0, 0]) })
}

/// C's `mlock`: arena memory is near or it is not, the pager decides.
///
/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mlock(at: *const c_void, len: usize) -> c_int {
    if in_arena(at as usize, len) {
        // All of a segment is locked.
        let locked = state::pager().is_some_and(atoll_memory::pager::Pager::is_segment);
        return status(if locked { Ok(0) } else { Err(Errno(libc::ENOMEM)) });
    }
    // SAFETY: by the caller.
    status(unsafe { sys::syscall(libc::SYS_mlock, [at as usize, len, 0, 0, 0, 0]) })
}
