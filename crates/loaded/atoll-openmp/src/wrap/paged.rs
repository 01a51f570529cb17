//! Memory handed to the kernel: buffers are copied, and objects that must stay where they are have their pages brought near and pinned for the length of
//! a call.
//!
//! Used by all wrappers. Where a thread resolves faults (`--faults thread`) the kernel can wait for pages by itself, and in a
//! segment none is ever absent: then nothing is done here.
//!
//! Signals are blocked around pinning and unpinning (a handler of the program that faults must not find this worker's executor
//! in use), but never during the call itself. A call pins or copies at most [`chunk_bytes`] at once.

use atoll_memory::layout;
use atoll_memory::pager::Pager;
use atoll_memory::sys::syscall;

use crate::heap::protected_elsewhere;
use crate::state::{self, SignalsBlocked};

/// The most bytes that are pinned or copied for one call at once, whatever the near memory.
const MOST: usize = 1 << 20;
/// The bytes that are copied at once at least, where little may be pinned; a pipe's writes of this size stay whole.
const LEAST_COPY: usize = 64 << 10;

/// The pager, if calls need its help.
#[inline]
pub(crate) fn active() -> Option<&'static Pager> {
    state::pager()
        .filter(|p| state::serves_faults() && !p.control().settings.fault_thread() && !p.is_segment())
}

/// How much one call may pin or copy at once: an eighth of near memory (less with many workers), at least a page.
pub(crate) fn chunk_bytes(pager: &Pager) -> usize {
    let control = pager.control();
    let workers = u64::from(control.workers.load(std::sync::atomic::Ordering::Relaxed)).max(2);
    let share = control.near() / (4 * workers);
    let page = pager.page_bytes();
    (share.min(MOST as u64) as usize & !(page - 1)).max(page)
}

/// Whether the address is in paged memory.
#[inline]
pub(super) fn is_paged(pager: &Pager, address: usize) -> bool {
    layout::in_arena(address) || (!layout::in_pinned(address) && pager.page_at(address).is_some())
}

/// A guard that keeps pages near while it lives; `len` 0 means none.
pub(super) struct Hold {
    pager: Option<&'static Pager>,
    start: usize,
    len: usize,
}

impl Hold {
    pub(super) const NOTHING: Hold = Hold { pager: None, start: 0, len: 0 };
}

/// Calls `each` with the start and end of every paged piece of `start..start + len`.
fn pieces(pager: &Pager, start: usize, len: usize, mut each: impl FnMut(usize, usize)) {
    let (mut at, end) = (start, start + len);
    while at < end {
        let Some((a, b)) = pager.first_paged(at, end - at) else { return };
        each(a, b - a);
        at = b;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(pager) = self.pager else { return };
        let (start, len) = (self.start, self.len);
        atoll_nodes::stack::off_paged(move || pieces(pager, start, len, |at, len| pager.unpin(at, len)));
    }
}

/// Gives near memory beyond the limit back to the machine.
#[cold]
pub(crate) fn give_back(pager: &'static Pager) {
    let _blocked = SignalsBlocked::new();
    // SAFETY: signals are blocked and no memory that faults is touched while the reference lives.
    let x = unsafe { state::executor(pager) };
    if let Err(lost) = pager.give_back(x) {
        atoll_memory::ending::end(lost);
    }
}

/// Pins the paged pieces of `start..start + len`.
fn pin(pager: &'static Pager, start: usize, len: usize, write: bool) -> Hold {
    let table = state::table();
    // Not on a stack that may be what is pinned, or whose pages other nodes take.
    atoll_nodes::stack::off_paged(move || {
        pieces(pager, start, len, |at, len| {
            protected_elsewhere::allow_all(pager, at, len);
            // SAFETY: signals are blocked and no memory that faults is touched while the reference lives.
            let x = unsafe { state::executor(pager) };
            if let Err(e) = pager.pin(x, table, at, len, write) {
                atoll_memory::ending::end(e);
            }
        });
    });
    Hold { pager: Some(pager), start, len }
}

/// Pins `start..start + len`, if any of it is paged, while the result lives. For objects that must stay where they are, as locks
/// must: at most [`chunk_bytes`] are pinned, and memory beyond that is not kept near. Structures that may move are copied (`lend`).
#[inline]
pub(super) fn hold(start: usize, len: usize, write: bool) -> Hold {
    let Some(pager) = active() else { return Hold::NOTHING };
    hold_slow(pager, start, len, write)
}

fn hold_slow(pager: &'static Pager, start: usize, len: usize, write: bool) -> Hold {
    if layout::in_pinned(start) || start == 0 || pager.first_paged(start, len).is_none() {
        return Hold::NOTHING;
    }
    pin(pager, start, len.min(chunk_bytes(pager)), write)
}

/// The kinds of descriptors, as they determine how a transfer may be cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A file or device: a transfer may be made in pieces.
    File,
    /// A pipe, terminal or stream socket: reading ends with the bytes that are there.
    Stream,
    /// A socket whose messages are whole.
    Datagram,
}

/// The kind of descriptor `fd`.
pub(super) fn kind(fd: i32) -> Kind {
    // SAFETY: plain data, valid for writes.
    unsafe {
        let mut st: libc::stat = std::mem::zeroed();
        let at = (&raw mut st) as usize;
        if syscall(libc::SYS_fstat, [fd as usize, at, 0, 0, 0, 0]).is_err() {
            return Kind::File;
        }
        match st.st_mode & libc::S_IFMT {
            libc::S_IFIFO => Kind::Stream,
            libc::S_IFSOCK => {
                let (mut value, mut len) = (0i32, 4u32);
                let level = libc::SOL_SOCKET as usize;
                let (v, l) = ((&raw mut value) as usize, (&raw mut len) as usize);
                let _ = syscall(libc::SYS_getsockopt, [fd as usize, level, libc::SO_TYPE as usize, v, l, 0]);
                if value == libc::SOCK_STREAM { Kind::Stream } else { Kind::Datagram }
            }
            libc::S_IFCHR => {
                let mut t = [0u8; 64];
                let request = libc::TCGETS as usize;
                match syscall(libc::SYS_ioctl, [fd as usize, request, t.as_mut_ptr() as usize, 0, 0, 0]) {
                    Ok(_) => Kind::Stream,
                    Err(_) => Kind::File,
                }
            }
            _ => Kind::File,
        }
    }
}

/// The ways in which a transfer goes on after a piece that was transferred in full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cut {
    /// The kernel writes to the buffer, from `fd`: for a stream, the first piece is all.
    Read(i32),
    /// The kernel reads the buffer, for `fd`.
    Write(i32),
    /// The kernel writes to the buffer; the next piece always follows.
    Fill,
    /// The kernel or libc reads the buffer; the next piece always follows.
    Drain,
}

/// Calls `call(start, len, done)` for the buffer `start..start + len`, with copies of its pieces if any of it is paged. Returns the sum
/// of the pieces, or the first result if that is negative.
#[inline]
pub(super) fn with(
    start: usize,
    len: usize,
    cut: Cut,
    mut call: impl FnMut(usize, usize, usize) -> isize,
) -> isize {
    match active() {
        Some(pager) if len > 0 && !layout::in_pinned(start) && pager.first_paged(start, len).is_some() => {
            let write = matches!(cut, Cut::Read(_) | Cut::Fill);
            match pager.allowed_bytes(start, len, write) {
                // The kernel refuses what the program forbids itself, and says so; behind other memory, the transfer ends there.
                0 => call(start, len, 0),
                allowed => in_pieces(pager, start, allowed, cut, &mut call),
            }
        }
        _ => call(start, len, 0),
    }
}

/// The kernel gets copies. Pages that are kept near are not enough where another node may take them in the middle of a call, where another
/// thread's fault takes a mapping away for a moment, or where the kernel looks for memory to page out: a call that needs the page then fails with EFAULT,
/// or ends early. Nor are they cheaper: to keep one page near and let it go takes as long as to copy several of them.
fn in_pieces(
    pager: &'static Pager,
    start: usize,
    len: usize,
    cut: Cut,
    call: &mut dyn FnMut(usize, usize, usize) -> isize,
) -> isize {
    let write = matches!(cut, Cut::Read(_) | Cut::Fill);
    let goes_on = match cut {
        Cut::Read(fd) | Cut::Write(fd) => match kind(fd) {
            Kind::File => true,
            Kind::Stream => !write,
            Kind::Datagram => return in_one(start, len, write, call),
        },
        Cut::Fill | Cut::Drain => true,
    };
    let (end, piece) = (start + len, chunk_bytes(pager).max(LEAST_COPY));
    let mut at = start;
    while at < end {
        let to = end.min(at + piece);
        let n = in_one(at, to - at, write, &mut |copy, len, _| call(copy, len, at - start));
        if n < 0 {
            return if at > start { (at - start) as isize } else { n };
        }
        at += n as usize;
        if at < to || !goes_on {
            break;
        }
    }
    (at - start) as isize
}

/// The most bytes that a received datagram is expected to have.
const DATAGRAM: usize = 1 << 20;

/// Calls `call` once with a pinned copy of the buffer.
fn in_one(
    start: usize,
    len: usize,
    write: bool,
    call: &mut dyn FnMut(usize, usize, usize) -> isize,
) -> isize {
    // The copy is in our own allocator's memory, which is pinned whatever the size. A message to send must be whole, however
    // long: the kernel refuses it if it is too long.
    let mut copy = Bounce::new(if write { len.min(DATAGRAM) } else { len });
    if !write {
        // SAFETY: the caller's buffer, valid for reads of `len` bytes.
        copy.0.copy_from_slice(unsafe { std::slice::from_raw_parts(start as *const u8, len) });
    }
    let n = call(copy.0.as_mut_ptr() as usize, copy.0.len(), 0);
    if write && n > 0 {
        let n = (n as usize).min(copy.0.len());
        // SAFETY: the caller's buffer, valid for writes of `len` ≥ n bytes.
        unsafe { std::ptr::copy_nonoverlapping(copy.0.as_ptr(), start as *mut u8, n) };
    }
    n
}

/// A pinned buffer for a short time: this library's own allocator never takes memory from the arena.
pub(super) struct Bounce(pub(super) Vec<u8>);

impl Bounce {
    /// A buffer of `len` zeroed bytes.
    pub(super) fn new(len: usize) -> Bounce {
        Bounce(vec![0; len])
    }
}

/// The address of the string at `start` in pinned memory: its own, or that of a copy kept in `copies`.
///
/// # Safety
/// `start` is a string.
pub(super) unsafe fn pinned_string(start: usize, copies: &mut Vec<Vec<u8>>) -> usize {
    let Some(pager) = active() else { return start };
    if !is_paged(pager, start) {
        return start;
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::ffi::CStr::from_ptr(start as *const libc::c_char) }.to_bytes_with_nul();
    copies.push(bytes.to_vec());
    copies[copies.len() - 1].as_ptr() as usize
}
