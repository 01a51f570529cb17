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

/// The upper bits of a signal's value that comes with a request: a mark and the request's number; the lower ones are its address.
const MARK: usize = 0xA7;
const MARK_SHIFT: u32 = 56;
const NUMBER_SHIFT: u32 = 48;

/// The value that a signal for request `number` at `at` carries.
pub(crate) fn value(at: usize, number: u8) -> usize {
    at | usize::from(number) << NUMBER_SHIFT | MARK << MARK_SHIFT
}

/// The address and number of the request for which a signal with `value` was sent; none if it means something else.
pub(super) fn of_value(value: usize) -> Option<(usize, u8)> {
    let at = value & ((1 << NUMBER_SHIFT) - 1);
    (value >> MARK_SHIFT == MARK).then_some((at, (value >> NUMBER_SHIFT) as u8))
}

/// What a process wants copied. It lies in that process's memory, on a stack.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Request {
    /// Where in the memory of the process that serves.
    theirs: usize,
    /// Where in the memory of the process that asks; the kernel reaches all of it.
    ours: usize,
    /// How many bytes.
    len: usize,
    /// 1: the memory of the process that serves is written; 0: it is read.
    write: u64,
    /// [`waiting`], then the number of bytes copied, or an error's negative number.
    pub(crate) answer: isize,
}

/// The answer of request `number` while it has none. It tells a request from the one that lay at the same address before: a signal
/// that was sent twice may come when that one is being written.
pub(crate) fn waiting(number: u8) -> isize {
    isize::MIN + isize::from(number)
}

impl Request {
    pub(crate) fn new(theirs: usize, ours: usize, len: usize, write: bool, number: u8) -> Request {
        Request { theirs, ours, len, write: write.into(), answer: waiting(number) }
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

/// Serves request `number` at `at` in process `pid`, unless it has been served, or its process is gone.
pub(super) fn serve(pager: &'static Pager, pid: i32, at: usize, number: u8) {
    // Acquire: pairs with the Release below, so that what the last request wrote is there.
    if BUSY.swap(true, Ordering::Acquire) {
        return;
    }
    serve_one(pager, pid, at, number);
    // Release: pairs with the Acquire above.
    BUSY.store(false, Ordering::Release);
}

fn serve_one(pager: &'static Pager, pid: i32, at: usize, number: u8) {
    let mut request = Request { answer: 0, ..Request::new(0, 0, 0, false, number) };
    let bytes = size_of::<Request>();
    let read = transfer(pid, (&raw mut request) as usize, at, bytes, true) == Ok(bytes);
    if read && request.answer == waiting(number) {
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
        atoll_memory::ending::end(e);
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
