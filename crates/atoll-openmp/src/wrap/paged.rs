//! Memory handed to the kernel: pages that may be absent are brought near and pinned for the length of a call.
//!
//! Used by all wrappers. Where a thread resolves faults (`--faults thread`) the kernel can wait for pages by
//! itself, and in a segment none is ever absent: then nothing is done here.
//!
//! Signals are blocked around pinning and unpinning (a handler of the program that faults must not find this
//! worker's executor in use), never during the call itself. A call pins at most [`chunk_bytes`].

use atoll_memory::layout;
use atoll_memory::pager::Pager;

use crate::nodes;
use crate::start::signal;
use crate::state;

/// The most that is pinned for one call, before near memory is looked at.
const MOST: usize = 1 << 20;
/// What is copied at once, where little may be pinned: a pipe's writes are whole.
const LEAST_COPY: usize = 64 << 10;

/// The pager, if calls need its help.
#[inline]
pub(crate) fn active() -> Option<&'static Pager> {
    state::pager()
        .filter(|p| state::serves_faults() && !p.control().settings.fault_thread() && !p.is_segment())
}

/// How much one call may pin: an eighth of near memory (less with many workers), at least a page.
pub(crate) fn chunk_bytes(pager: &Pager) -> usize {
    let control = pager.control();
    let workers = u64::from(control.workers.load(std::sync::atomic::Ordering::Relaxed)).max(2);
    let share = control.settings.near_bytes / (4 * workers);
    let page = pager.page_bytes();
    (share.min(MOST as u64) as usize & !(page - 1)).max(page)
}

/// Does pinning not do, so that the kernel gets a copy? On several nodes another node may take a page in the middle of a call. And
/// where threads share a page table, the kernel takes a mapping away for a moment to change what it allows, at another thread's
/// fault: a call that needs it then would fail with EFAULT, or end early.
pub(super) fn must_copy(pager: &Pager) -> bool {
    nodes::active() || pager.threads_share_tables()
}

/// Is the address paged memory?
#[inline]
pub(super) fn is_paged(pager: &Pager, address: usize) -> bool {
    layout::in_arena(address) || (!layout::in_pinned(address) && pager.page_at(address).is_some())
}

/// Pages that stay near while it lives; `len` 0: none.
pub(super) struct Hold {
    pager: Option<&'static Pager>,
    start: usize,
    len: usize,
}

impl Hold {
    pub(super) const NOTHING: Hold = Hold { pager: None, start: 0, len: 0 };
}

/// Calls `each` with every paged piece of `start..start + len`.
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
        nodes::stack::off_paged(move || pieces(pager, start, len, |at, len| pager.unpin(at, len)));
    }
}

/// Pins what is paged of `start..start + len`.
fn pin(pager: &'static Pager, start: usize, len: usize, write: bool) -> Hold {
    let table = state::table();
    // Not on a stack that may be what is pinned, or whose pages other nodes take.
    nodes::stack::off_paged(move || {
        pieces(pager, start, len, |at, len| {
            // SAFETY: signals are blocked and no memory that faults is touched while the reference lives.
            let x = unsafe { state::executor(pager) };
            if let Err(e) = pager.pin(x, table, at, len, write) {
                signal::end(e);
            }
        });
    });
    Hold { pager: Some(pager), start, len }
}

/// Pins `start..start + len`, if any of it is paged, for as long as the result lives. For structures: not more
/// than [`chunk_bytes`] (what lies beyond is left to luck).
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

/// What the other side of a descriptor is, as far as it matters to how a transfer may be cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Files and devices: a transfer may be made in pieces.
    File,
    /// Pipes, terminals, stream sockets: reading ends with what there is.
    Stream,
    /// Sockets whose messages are whole.
    Datagram,
}

/// What `fd` is.
pub(super) fn kind(fd: i32) -> Kind {
    use atoll_memory::sys::syscall;
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

/// How a transfer goes on after a piece that was done in full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cut {
    /// The kernel writes to the buffer, from `fd`: a stream's first piece is all.
    Read(i32),
    /// The kernel reads the buffer, for `fd`.
    Write(i32),
    /// The kernel writes to the buffer; every piece may follow.
    Fill,
    /// The kernel or libc reads the buffer; every piece may follow.
    Drain,
}

/// Makes `call(start, len, done)` for the buffer `start..start + len`, in pinned pieces if any of it is paged.
/// The sum of the pieces, or what the first one returned if that was negative.
#[inline]
pub(super) fn with(
    start: usize,
    len: usize,
    cut: Cut,
    mut call: impl FnMut(usize, usize, usize) -> isize,
) -> isize {
    match active() {
        Some(pager) if len > 0 && !layout::in_pinned(start) && pager.first_paged(start, len).is_some() => {
            in_pieces(pager, start, len, cut, &mut call)
        }
        _ => call(start, len, 0),
    }
}

fn in_pieces(
    pager: &'static Pager,
    start: usize,
    len: usize,
    cut: Cut,
    call: &mut dyn FnMut(usize, usize, usize) -> isize,
) -> isize {
    let chunk = chunk_bytes(pager);
    let write = matches!(cut, Cut::Read(_) | Cut::Fill);
    let goes_on = match cut {
        Cut::Read(fd) | Cut::Write(fd) => match kind(fd) {
            Kind::File => true,
            Kind::Stream => !write,
            Kind::Datagram => return in_one(start, len, write, call),
        },
        Cut::Fill | Cut::Drain => true,
    };
    if matches!(cut, Cut::Write(_)) && len <= libc::PIPE_BUF && chunk < 2 * pager.page_bytes() {
        // Two pages where only one may be pinned: the copy keeps it one write.
        return in_one(start, len, write, call);
    }
    let end = start + len;
    let mut at = start;
    let copies = must_copy(pager);
    while at < end {
        let to = if copies { end.min(at + chunk.max(LEAST_COPY)) } else { pinned_until(pager, at, end, len) };
        let n = if copies {
            in_one(at, to - at, write, &mut |copy, len, _| call(copy, len, at - start))
        } else {
            let _hold = pin(pager, at, to - at, write);
            call(at, to - at, at - start)
        };
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

/// Where the piece ends that is pinned from `at` on, of a call for `len` bytes up to `end`. At a page's boundary, so that none holds
/// a page more than allowed. A write that must be one piece (a pipe's) may take the two pages it lies in.
fn pinned_until(pager: &Pager, at: usize, end: usize, len: usize) -> usize {
    let limit = ((at + chunk_bytes(pager)) & !(pager.page_bytes() - 1)).max(at + 1);
    let to = if len <= libc::PIPE_BUF { end } else { end.min(limit) };
    if to <= at { end.min(at + pager.page_bytes()) } else { to }
}

/// The most a datagram can be expected to be.
const DATAGRAM: usize = 1 << 20;

/// Makes the call once with a pinned copy of the buffer.
fn in_one(
    start: usize,
    len: usize,
    write: bool,
    call: &mut dyn FnMut(usize, usize, usize) -> isize,
) -> isize {
    // Our own allocator: pinned whatever the size. What is sent must be whole, however long: the kernel says no.
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

/// Pinned memory for a while: this library's own allocator never takes from the arena.
pub(super) struct Bounce(pub(super) Vec<u8>);

impl Bounce {
    /// `len` zeroed bytes.
    pub(super) fn new(len: usize) -> Bounce {
        Bounce(vec![0; len])
    }
}

/// The string at `start` in pinned memory: itself, or a copy that is kept in `copies`.
///
/// # Safety
/// A string.
pub(super) unsafe fn pinned_string(start: usize, copies: &mut Vec<Vec<u8>>) -> usize {
    let Some(pager) = active() else { return start };
    if !is_paged(pager, start) {
        return start;
    }
    // SAFETY: by the caller.
    let bytes = unsafe { std::ffi::CStr::from_ptr(start as *const libc::c_char) }.to_bytes_with_nul();
    copies.push(bytes.to_vec());
    copies[copies.len() - 1].as_ptr() as usize
}
