//! Copies between this process's memory and another's, made on that process's behalf: it cannot bring a page of this one near.
//!
//! `wrap::other_processes` of the process that wants the copy sends SIGBUS with the address of a [`Request`] in its own memory;
//! `signal` of this process calls [`serve`], which brings each piece near, pins it, has the kernel copy it, and answers in the request.
//!
//! Rules, as this runs in a signal handler: no allocation, no locks the program could hold, no access to paged memory that is not pinned.

use std::sync::atomic::{AtomicBool, Ordering};

use atoll_memory::pager::Pager;
use atoll_memory::sys::{self, Errno};

use crate::state;
use crate::wrap::paged;

/// What begins a request.
const MAGIC: u64 = u64::from_le_bytes(*b"atoll-cp");
/// The upper bits of a signal's value that comes with a request; the lower ones are its address.
const MARK: usize = 0xA701 << 48;

/// The value that a signal for the request at `at` carries.
pub(crate) fn value(at: usize) -> usize {
    at | MARK
}

/// The address of the request for which a signal with `value` was sent; none if it means something else.
pub(super) fn address(value: usize) -> Option<usize> {
    (value & 0xFFFF << 48 == MARK).then_some(value ^ MARK)
}

/// What a process wants copied. It lies in that process's memory, on a stack.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Request {
    magic: u64,
    /// Where in the memory of the process that serves.
    pub(crate) theirs: usize,
    /// Where in the memory of the process that asks; the kernel reaches all of it.
    pub(crate) ours: usize,
    /// How many bytes.
    pub(crate) len: usize,
    /// 1: the memory of the process that serves is written; 0: it is read.
    pub(crate) write: u64,
    /// [`WAITING`], then the number of bytes copied, or an error's negative number.
    pub(crate) answer: isize,
}

/// The answer of a request that has none yet.
pub(crate) const WAITING: isize = isize::MIN;

impl Request {
    pub(crate) fn new(theirs: usize, ours: usize, len: usize, write: bool) -> Request {
        Request { magic: MAGIC, theirs, ours, len, write: write.into(), answer: WAITING }
    }
}

/// How often a pinned piece is tried again: where threads share a page table, the kernel takes a mapping away for a moment.
const TRIES: usize = 1000;

/// Copies `len` bytes between `here`, in this process, and `there`, in process `pid`; to here if `inward`.
fn transfer(pid: i32, here: usize, there: usize, len: usize, inward: bool) -> Result<usize, Errno> {
    let (ours, theirs) = (
        libc::iovec { iov_base: here as *mut _, iov_len: len },
        libc::iovec { iov_base: there as *mut _, iov_len: len },
    );
    let call = if inward { libc::SYS_process_vm_readv } else { libc::SYS_process_vm_writev };
    let arguments = [pid as usize, (&raw const ours) as usize, 1, (&raw const theirs) as usize, 1, 0];
    // SAFETY: memory of this process that its caller names, and of another's: the kernel looks at both.
    unsafe { sys::syscall(call, arguments) }
}

/// Whether a thread of this program serves a request. Of two signals for one request, which its process sends again where the first
/// came to nothing, only one may be served: the other would copy when the process has gone on.
static BUSY: AtomicBool = AtomicBool::new(false);

/// Serves the request at `at` in process `pid`, unless it has been served, or its process is gone.
pub(super) fn serve(pager: &'static Pager, pid: i32, at: usize) {
    // Acquire: pairs with the Release below, so that what the last request wrote is there.
    if BUSY.swap(true, Ordering::Acquire) {
        return;
    }
    serve_one(pager, pid, at);
    // Release: pairs with the Acquire above.
    BUSY.store(false, Ordering::Release);
}

fn serve_one(pager: &'static Pager, pid: i32, at: usize) {
    let mut request = Request { magic: 0, ..Request::new(0, 0, 0, false) };
    let bytes = size_of::<Request>();
    let read = transfer(pid, (&raw mut request) as usize, at, bytes, true) == Ok(bytes);
    if read && request.magic == MAGIC && request.answer == WAITING {
        request.answer = copy(pager, pid, &request);
        let answer = at + std::mem::offset_of!(Request, answer);
        // A process that is gone needs no answer.
        let _ = transfer(pid, (&raw const request.answer) as usize, answer, size_of::<isize>(), false);
    }
}

/// Copies piece by piece; the number of bytes, or an error's negative number where there are none.
fn copy(pager: &'static Pager, pid: i32, request: &Request) -> isize {
    let chunk = paged::chunk_bytes(pager);
    let write = request.write != 0;
    let mut done = 0;
    while done < request.len {
        let start = request.theirs.wrapping_add(done);
        let piece = (chunk - start % chunk).min(request.len - done);
        match copy_piece(pager, pid, start, request.ours + done, piece, write) {
            Ok(n) if n > 0 => done += n,
            Ok(_) => break,
            Err(e) if done == 0 => return -(e.0 as isize),
            Err(_) => break,
        }
    }
    done as isize
}

fn copy_piece(
    pager: &'static Pager,
    pid: i32,
    start: usize,
    ours: usize,
    len: usize,
    write: bool,
) -> Result<usize, Errno> {
    // Where a thread resolves faults, or none come, the kernel needs no help.
    let Some((from, to)) = paged::active().and_then(|_| pager.first_paged(start, len)) else {
        return transfer(pid, start, ours, len, write);
    };
    if from > start {
        return transfer(pid, start, ours, from - start, write);
    }
    let len = to - start;
    // SAFETY: in the handler every signal is blocked, and nothing here touches memory that faults.
    let x = unsafe { state::executor(pager) };
    if let Err(e) = pager.pin(x, state::table(), start, len, write) {
        super::signal::end(e);
    }
    let mut copied = Err(Errno(libc::EFAULT));
    for _ in 0..TRIES {
        copied = transfer(pid, start, ours, len, write);
        if copied != Err(Errno(libc::EFAULT)) {
            break;
        }
    }
    pager.unpin(start, len);
    copied
}
