//! `mmap` and its relatives, interposed: anonymous memory of the program lies in the arena.
//!
//! Called by the program, by its libraries except libc, whose stacks and file mappings stay its own, and by mimalloc inside
//! this library, whose few pages of bookkeeping come from `os`.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_memory::layout;
use atoll_memory::sys::{self, Errno};

use super::large::Content;
use super::{large, mapped_over, moving, os, overflow, protections, shared, unpaged};
use crate::start::{forked, segment, take_over};
use crate::{arch, state};
use atoll_nodes::files;

const FAILED: *mut c_void = usize::MAX as *mut c_void;

/// Returns `r` as functions like `mmap` do: the address, or `MAP_FAILED` with the reason in `errno`.
pub(crate) fn result(r: Result<usize, Errno>) -> *mut c_void {
    match r {
        Ok(at) => at as *mut c_void,
        Err(e) => {
            // SAFETY: errno is this thread's.
            unsafe { *libc::__errno_location() = e.0 };
            FAILED
        }
    }
}

/// Returns `r` as functions like `munmap` do: 0, or -1 with the reason in `errno`.
pub(crate) fn status(r: Result<usize, Errno>) -> c_int {
    if result(r) == FAILED { -1 } else { 0 }
}

pub(super) fn in_arena(at: usize, len: usize) -> bool {
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
    let is_claimed = flags & libc::MAP_FIXED_NOREPLACE != 0 && claims(at as usize, len);
    // The kernel would find the arena's own mapping where the program has none any more.
    let flags = if is_claimed { flags & !libc::MAP_FIXED_NOREPLACE | libc::MAP_FIXED } else { flags };
    let anonymous_or_fixed = libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE;
    // In a segment nothing faults, so other mappings are filled at once.
    let filled = if segment::is_on() { libc::MAP_POPULATE } else { 0 };
    let place = |at: usize, fixed: c_int| {
        let _set_up = segment::SetUp::begin(None);
        // SAFETY: exactly what the caller asked for, or a new mapping where nothing is.
        unsafe { sys::mmap(at, len, prot, flags | fixed | filled, fd, offset as u64) }
    };
    let told = |at: Result<usize, Errno>| {
        if let Ok(at) = at
            && flags & libc::MAP_ANONYMOUS == 0
        {
            crate::wrap::replay::mapped(at, len, prot, flags, fd, offset);
            files::mapped(at, len, prot, flags, fd, offset);
        }
        result(at)
    };
    let kernel = || {
        let everywhere = if flags & anonymous_or_fixed == 0 { free_everywhere(len, place) } else { None };
        told(everywhere.map_or_else(|| place(at as usize, 0), Ok))
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
    let fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
    if flags & libc::MAP_FIXED != 0
        && state::pager().is_some()
        && let Some(over) = map_over(at as usize, len, prot, flags, fd, offset, || place(at as usize, 0))
    {
        let made = match over {
            Over::Ours(at) => result(at),
            Over::Kernels(at) => told(at),
        };
        if is_claimed && made == FAILED {
            large::free_range(at as usize, (at as usize + len).next_multiple_of(4096));
        }
        return made;
    }
    if flags & libc::MAP_ANONYMOUS != 0 && flags & libc::MAP_SHARED == 0 && !fixed {
        if prot == libc::PROT_NONE {
            take_over::reserved(len, !at.is_null());
        } else {
            take_over::asked(len, caller);
        }
    }
    let special = libc::MAP_GROWSDOWN | libc::MAP_HUGETLB | arch::MAP_32BIT;
    if flags & libc::MAP_ANONYMOUS == 0
        || flags & special != 0
        || fixed
        || state::pager().is_none()
        || len == 0
    {
        return kernel();
    }
    if take_over::is_taken() && stays_with_kernel(len, prot, flags, caller) {
        return kernel();
    }
    if shared::is_wanted(flags) && !segment::is_on() && !atoll_nodes::active() {
        return result(shared::map(len, prot));
    }
    // The kernel writes to stacks and other processes run code: both stay near and are the same in all workers.
    if flags & libc::MAP_STACK != 0 || prot & libc::PROT_EXEC != 0 {
        let separate = state::are_workers_processes() && !segment::is_on();
        return if separate { result(unpaged::map(len, prot)) } else { kernel() };
    }
    let Some(at) = large::allocate(len, 4096, Content::Zeros) else {
        return result(Err(Errno(libc::ENOMEM)));
    };
    if let Err(e) = protections::begin(at, len, prot) {
        large::free(at);
        return result(Err(e));
    }
    crate::journal::block(at, len, caller);
    result(Ok(at))
}

/// Takes `at..at + len` for a mapping of the program's at that address, if it is memory of the arena of which the program has unmapped all.
fn claims(at: usize, len: usize) -> bool {
    at.is_multiple_of(4096)
        && in_arena(at, len)
        && large::claim_unmapped(at, (at + len).next_multiple_of(4096))
}

/// Whether a mapping stays the kernel's in a program that had no OpenMP at its start: memory that processes share after a fork;
/// many addresses that are only reserved; and small mappings, which are often protected to stop threads by signals. As small blocks do, these stay
/// as long as they do not take too much of near memory: Ruby has all of its objects in mappings of 16K.
fn stays_with_kernel(len: usize, prot: c_int, flags: c_int, caller: usize) -> bool {
    if flags & libc::MAP_SHARED != 0 || prot == libc::PROT_NONE && protections::are_too_many(len) {
        return true;
    }
    let usual = libc::PROT_READ | libc::PROT_WRITE;
    let stays = len < large::LEAST && (prot != usual || !overflow::wants(len, caller));
    if stays {
        overflow::note(len);
    }
    stays
}

/// Replaces a part of the arena that is to hold code by a mapping of the kernel's with the same content. For programs that
/// had no OpenMP at their start.
///
/// # Errors
/// The kernel's error.
pub(crate) fn take_out(at: usize, len: usize, prot: c_int) -> Result<(), Errno> {
    let Some(end) = at.checked_add(len).and_then(|end| end.checked_next_multiple_of(4096)) else {
        return Err(Errno(libc::EINVAL));
    };
    let protect = |at: usize, bytes: usize, prot: c_int| {
        // SAFETY: the program's own memory, as it asks.
        unsafe { sys::syscall(libc::SYS_mprotect, [at, bytes, prot as usize, 0, 0, 0]) }
    };
    let usual = libc::PROT_READ | libc::PROT_WRITE;
    large::keep_pages_single(at, end);
    for (a, b) in mapped_over::between(at, end) {
        mapped_over::pin_edges(a, b);
        // From here on nobody writes to the memory that is copied.
        protect(a, b - a, libc::PROT_READ)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, which then takes the place of the memory it is a copy of.
        unsafe {
            let copy = sys::mmap(0, b - a, usual, flags, -1, 0)?;
            std::ptr::copy_nonoverlapping(a as *const u8, copy as *mut u8, b - a);
            let moved = mapped_over::cover(a, b, || {
                let how = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
                sys::syscall(libc::SYS_mremap, [copy, b - a, b - a, how, a, 0]).map(drop)
            });
            if let Err(e) = moved {
                // The kernel has no room for another mapping: all is as it was.
                protect(a, b - a, usual)?;
                std::ptr::copy_nonoverlapping(copy as *const u8, a as *mut u8, b - a);
                let _ = sys::syscall(libc::SYS_munmap, [copy, b - a, 0, 0, 0, 0]);
                return Err(e);
            }
        }
    }
    protect(at, end - at, prot).map(drop)
}

/// What [`map_over`] made.
enum Over {
    /// Memory of this library's.
    Ours(Result<usize, Errno>),
    /// A mapping of the kernel's, of which the other workers are to be told.
    Kernels(Result<usize, Errno>),
}

/// Serves `MAP_FIXED` over a part of the arena, or of a mapping that is not paged; `None` if the memory there is the kernel's. `kernel` makes
/// a mapping of the kernel's there.
fn map_over(
    at: usize,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
    kernel: impl Fn() -> Result<usize, Errno>,
) -> Option<Over> {
    let end = at.checked_add(len)?.checked_next_multiple_of(4096)?;
    let anonymous = flags & libc::MAP_ANONYMOUS != 0;
    if unpaged::contains(at) {
        // A file that is mapped there takes the place, as it would anywhere.
        return anonymous.then(|| Over::Ours(unpaged::renew(at, end - at, prot).map(|()| at)));
    }
    if !in_arena(at, len) {
        return None;
    }
    if let Err(e) = mapped_over::put_back(at, end) {
        return Some(Over::Ours(Err(e)));
    }
    large::renew(at, end);
    let shared_here = take_over::is_taken() && flags & libc::MAP_SHARED != 0;
    let file_here = !anonymous && (flags & libc::MAP_PRIVATE == 0 || moving::has_one_page_table());
    if shared_here || file_here {
        if atoll_nodes::active() {
            atoll_nodes::unsupported(
                "a file mapped shared over a part of the program's own memory (MAP_FIXED)",
            );
        }
        mapped_over::pin_edges(at, end);
        return Some(Over::Kernels(mapped_over::cover(at, end, || kernel().map(drop)).map(|()| at)));
    }
    if !anonymous && let Err(e) = read_file(at, len, fd, offset) {
        return Some(Over::Ours(Err(e)));
    }
    let usual = libc::PROT_READ | libc::PROT_WRITE;
    let protected = match state::pager() {
        Some(pager) if prot & (usual | libc::PROT_EXEC) != usual => protections::change(pager, at, len, prot),
        _ => Ok(()),
    };
    Some(Over::Ours(protected.map(|()| at)))
}

/// Maps `len` bytes, by `map`, at an address where no worker has anything; `None` where that is not needed or did not work out.
pub(crate) fn free_everywhere(
    len: usize,
    map: impl Fn(usize, c_int) -> Result<usize, Errno>,
) -> Option<usize> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    state::control().filter(|c| !c.settings.shared_tables())?;
    let room = len.checked_next_multiple_of(4096)?.checked_add(4096)?;
    let part = files::part(layout::FILES_BYTES / 2);
    if room > part.len() {
        return None;
    }
    // Addresses are reused after terabytes, so the one chosen may still be taken.
    (0..16).find_map(|_| {
        let at = NEXT.fetch_add(room, Ordering::Relaxed) % (part.len() - room + 4096);
        map(part.start + at, libc::MAP_FIXED_NOREPLACE).ok()
    })
}

/// Serves a private writable mapping of a file for a team of processes. Each process would get a copy of its own of what it
/// writes, so the file's content is read into the arena instead. `None`: not needed, or the file cannot be read.
fn copy_of_file(len: usize, fd: c_int, offset: i64) -> Option<usize> {
    state::control().filter(|c| !c.settings.shared_tables())?;
    let at = large::allocate(len, 4096, Content::Zeros)?;
    if read_file(at, len, fd, offset).is_err() {
        large::free(at);
        return None;
    }
    Some(at)
}

/// Reads `len` bytes of a file to `at`, in the arena; memory beyond the file's end stays zero.
fn read_file(at: usize, len: usize, fd: c_int, offset: i64) -> Result<(), Errno> {
    let mut done = 0;
    while done < len {
        // SAFETY: the extent was allocated by the caller and nobody else uses it.
        let n = unsafe { crate::wrap::pread64(fd as usize, at + done, len - done, offset as usize + done) };
        match n {
            0 => break,
            // SAFETY: errno is this thread's.
            ..0 => return Err(Errno(unsafe { *libc::__errno_location() })),
            n => done += n as usize,
        }
    }
    Ok(())
}

/// C's `mmap`: passes the return address on, which tells calls from inside this library from the program's.
///
/// # Safety
/// The same as for C's function.
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
    arch::call_with_caller_seventh!(map)
}

/// C's `mmap64`: `mmap` under its large-file name.
///
/// # Safety
/// The same as for C's function.
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
    arch::jump_to!(mmap)
}

/// C's `munmap`.
///
/// # Safety
/// The same as for C's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn munmap(at: *mut c_void, len: usize) -> c_int {
    let start = at as usize;
    if os::contains(start) {
        os::unmap(start, len);
        return 0;
    }
    if in_arena(start, len) {
        if len == 0 || !start.is_multiple_of(4096) {
            return status(Err(Errno(libc::EINVAL)));
        }
        let end = (start + len).next_multiple_of(4096);
        let whole = mapped_over::put_back(start, end);
        // The program may have protected it by libc's own function, which it finds by libc's handle (Python's `ctypes`). Whoever has these
        // pages next could not use them. Where nothing was protected the kernel changes nothing.
        // SAFETY: the program's own memory, which it gives up.
        let _ = unsafe {
            let usual = (libc::PROT_READ | libc::PROT_WRITE) as usize;
            sys::syscall(libc::SYS_mprotect, [start, end - start, usual, 0, 0, 0])
        };
        large::free_range(start, end);
        return status(whole.map(|()| 0));
    }
    if unpaged::contains(start) {
        return status(unpaged::unmap(start, len).map(|()| 0));
    }
    // SAFETY: the caller's promise.
    let unmapped = unsafe { sys::syscall(libc::SYS_munmap, [start, len, 0, 0, 0, 0]) };
    if unmapped.is_ok() {
        crate::wrap::replay::unmapped(start, len);
        files::unmapped(start, len);
    }
    status(unmapped)
}

/// C's `madvise`.
///
/// # Safety
/// The same as for C's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int {
    let start = at as usize;
    // SAFETY: the caller's promise.
    let by_kernel = |at: usize, len: usize| unsafe {
        sys::syscall(libc::SYS_madvise, [at, len, advice as usize, 0, 0, 0])
    };
    if in_arena(start, len) {
        // The kernel checks what it is asked for before it looks at the length.
        if let Err(e) = by_kernel(start, 0) {
            return status(Err(e));
        }
        let end = (start + len).next_multiple_of(4096);
        if matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_REMOVE) {
            // mimalloc gives memory of small blocks back at any allocation, also of whoever holds the lock that `mapped_over` needs. It does not give
            // back what a block lies in, and nothing lies over the rest.
            if overflow::AREA.contains(&start) {
                large::zero(start, end);
                return 0;
            }
            for (a, b) in mapped_over::between(start, end) {
                large::zero(a, b);
            }
            let others = mapped_over::within(start, end).into_iter();
            let advised = others.map(|(a, b)| by_kernel(a, b - a)).fold(Ok(0), Result::and);
            return status(advised.and_then(|_| mapped_wholly(start, end)));
        }
        return if overflow::AREA.contains(&start) { 0 } else { status(mapped_wholly(start, end)) };
    }
    if layout::in_pinned(start) {
        if matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE) && take_over::is_heap_private() {
            forked::complete();
            // SAFETY: the owner of the range says that its content is worthless.
            let _ = unsafe {
                sys::syscall(libc::SYS_madvise, [start, len, libc::MADV_DONTNEED as usize, 0, 0, 0])
            };
        } else if matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE) {
            // Shared memory is given back by a hole in its file.
            // SAFETY: the owner of the range says that its content is worthless.
            let _ =
                unsafe { sys::syscall(libc::SYS_madvise, [start, len, libc::MADV_REMOVE as usize, 0, 0, 0]) };
        }
        return 0;
    }
    status(by_kernel(start, len))
}

/// Fails as the kernel does where the program has unmapped a part of `start..end`, in the arena. It advises on the rest all the same.
fn mapped_wholly(start: usize, end: usize) -> Result<usize, Errno> {
    if large::has_unmapped(start, end) { Err(Errno(libc::ENOMEM)) } else { Ok(0) }
}

/// Whether the program has unmapped a part of `at..at + len`, memory of the arena.
pub(crate) fn is_unmapped(at: usize, len: usize) -> bool {
    in_arena(at, len) && large::has_unmapped(at, (at + len).next_multiple_of(4096))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An allocation by whoever held the lock had mimalloc give memory back, which waited for the same lock for ever: TensorFlow hung so.
    #[test]
    fn memory_of_small_blocks_was_given_back_by_a_lock_that_the_same_thread_held() {
        let covered = layout::ARENA;
        assert_eq!(mapped_over::cover(covered, covered + 4096, || Ok::<(), ()>(())), Ok(()));
        let _held = mapped_over::keep();
        // SAFETY: no pager manages the area here, so nothing happens to it.
        let given = unsafe { madvise(overflow::AREA.start as *mut c_void, 4096, libc::MADV_DONTNEED) };
        assert_eq!(given, 0);
    }
}
