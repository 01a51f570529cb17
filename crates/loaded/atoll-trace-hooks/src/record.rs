//! Each thread's stream to the collector, for programs whose accesses are seen from inside.
//!
//! `accesses` and `atomics` call [`access`] at every access of the program, `mark` at every mark.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use atoll_libgomp::{set_thread_word, thread_word};
use atoll_trace_wire::Stream;

use crate::start::{Mode, filter, mode, pipe};

const PAGE_SHIFT: u32 = 12;

thread_local! {
    /// Whether the stream is in use: accesses and marks of a signal's handler meanwhile are not recorded.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

// The thread's stream; null before its first access.
std::arch::global_asm!(
    ".section .tbss.atoll_stream,\"awT\",@nobits",
    ".p2align 3",
    ".type atoll_stream, @object",
    ".size atoll_stream, 8",
    ".hidden atoll_stream",
    ".globl atoll_stream",
    "atoll_stream:",
    ".zero 8",
    ".text",
);

/// Returns the calling thread's stream; null if there is none yet.
#[inline(always)]
fn mine() -> *mut Stream {
    // SAFETY: the word above.
    unsafe { thread_word!("atoll_stream") as *mut Stream }
}

fn set_mine(stream: *mut Stream) {
    // SAFETY: the word above.
    unsafe { set_thread_word!("atoll_stream", stream as usize) };
}

static NEXT_THREAD: AtomicU32 = AtomicU32::new(0);
static AT_END: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();

/// Records that the calling thread touched something within one page.
#[inline(always)]
pub(crate) fn access_aligned(address: usize, write: bool) {
    let page = (address >> PAGE_SHIFT) as u64;
    // SAFETY: the thread's own; a handler that comes between changes no more than a counter or what `with` guards.
    if let Some(stream) = unsafe { mine().as_mut() }
        && stream.is_known_and_counted(page, write)
    {
        return;
    }
    tell(page, write);
}

/// Records that the calling thread touched `bytes` bytes, at least one, from `address`.
#[inline(always)]
pub(crate) fn access(address: usize, bytes: usize, write: bool) {
    access_aligned(address, write);
    let (first, last) = (address >> PAGE_SHIFT, (address + (bytes - 1)) >> PAGE_SHIFT);
    for page in first + 1..=last {
        tell(page as u64, write);
    }
}

#[inline(never)]
fn tell(page: u64, write: bool) {
    with(|stream| stream.access(page, write));
}

/// Records a mark of the calling thread.
pub(crate) fn mark(mark: u64, number: u64) {
    with(|stream| stream.mark(mark, number));
}

fn with(f: impl FnOnce(&mut Stream)) {
    if mode() != Mode::Record || BUSY.replace(true) {
        return;
    }
    let mut stream = mine();
    if stream.is_null() {
        stream = make();
    }
    // SAFETY: the thread's own, and `BUSY` lets nobody else in.
    let stream = unsafe { &mut *stream };
    stream.count();
    f(stream);
    BUSY.set(false);
}

#[cold]
#[inline(never)]
fn make() -> *mut Stream {
    let thread = NEXT_THREAD.fetch_add(1, Ordering::Relaxed);
    let stream = Box::into_raw(Box::new(Stream::new(thread, pipe(), filter())));
    set_mine(stream);
    let key = AT_END.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the key is valid for writes; the function has the type it is called by.
        (unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } == 0).then_some(key)
    });
    if let Some(key) = *key {
        // SAFETY: the key was made.
        unsafe { libc::pthread_setspecific(key, stream.cast::<c_void>()) };
    }
    stream
}

/// Sends the events of a thread that ends. Later accesses of that thread are lost; there are few.
unsafe extern "C" fn thread_ends(_: *mut c_void) {
    with(Stream::flush);
}

/// Sends the events of the calling thread when the process ends.
pub(crate) extern "C" fn end() {
    with(Stream::flush);
}
