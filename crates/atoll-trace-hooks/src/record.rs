//! Each thread's stream to the collector, where accesses are seen from in here.
//!
//! `accesses` and `atomics` call [`access`] at every access of the program, `mark` at every mark.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use atoll_trace_wire::Stream;

use crate::start::{Mode, filter, mode, pipe};

const PAGE_SHIFT: u32 = 12;

struct Mine {
    /// Made at the thread's first access, freed at its end.
    stream: Cell<*mut Stream>,
    /// In use: what a signal's handler does meanwhile is not recorded.
    busy: Cell<bool>,
}

thread_local! {
    static MINE: Mine = const { Mine { stream: Cell::new(null_mut()), busy: Cell::new(false) } };
}

static NEXT_THREAD: AtomicU32 = AtomicU32::new(0);
static AT_END: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();

/// The calling thread touched `bytes` bytes, at least one, from `address`.
#[inline]
pub(crate) fn access(address: usize, bytes: usize, write: bool) {
    with(|stream| {
        let (first, last) = (address >> PAGE_SHIFT, (address + (bytes - 1)) >> PAGE_SHIFT);
        stream.execute(1);
        for page in first..=last {
            stream.access(page as u64, write);
        }
    });
}

/// The calling thread makes a mark.
pub(crate) fn mark(mark: u64, number: u64) {
    with(|stream| stream.mark(mark, number));
}

#[inline]
fn with(f: impl FnOnce(&mut Stream)) {
    MINE.with(|mine| {
        if mine.busy.replace(true) {
            return;
        }
        let mut stream = mine.stream.get();
        if stream.is_null() {
            stream = make(mine);
        }
        // SAFETY: the thread's own, and `busy` lets nobody else in.
        if let Some(stream) = unsafe { stream.as_mut() } {
            f(stream);
        }
        mine.busy.set(false);
    });
}

#[cold]
#[inline(never)]
fn make(mine: &Mine) -> *mut Stream {
    if mode() != Mode::Record {
        return null_mut();
    }
    let thread = NEXT_THREAD.fetch_add(1, Ordering::Relaxed);
    let stream = Box::into_raw(Box::new(Stream::new(thread, pipe(), filter())));
    mine.stream.set(stream);
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

/// A thread other than the first ends: what it has told leaves. Accesses after this are lost, and few.
unsafe extern "C" fn thread_ends(_: *mut c_void) {
    with(Stream::flush);
}

/// The process ends: what the calling thread has told leaves.
pub(crate) extern "C" fn end() {
    with(Stream::flush);
}
