//! The state of each guest thread: its stream to the collector and the system call that it is in.
//!
//! QEMU calls back on the thread that an event belongs to, so one thread's entry is never used by two at once. The callbacks in
//! the crate's root look their entry up here.

use std::sync::atomic::{AtomicPtr, Ordering};

use atoll_trace_wire::Stream;

/// The number of threads that can be told apart; events of threads above are not recorded.
const MAX_THREADS: usize = 1 << 16;

/// The state of one guest thread.
pub(crate) struct Thread {
    /// The stream of its events.
    pub(crate) stream: Stream,
    /// The arguments of the system call that it is in.
    pub(crate) arguments: [u64; 4],
}

static THREADS: [AtomicPtr<Thread>; MAX_THREADS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_THREADS];

/// Enters a thread. QEMU may reuse the number of a thread that has ended; then that thread's entry goes on.
pub(crate) fn enter(number: u32, stream: impl FnOnce() -> Stream) {
    if let Some(slot) = THREADS.get(number as usize)
        && slot.load(Ordering::Acquire).is_null()
    {
        let thread = Box::new(Thread { stream: stream(), arguments: [0; 4] });
        slot.store(Box::into_raw(thread), Ordering::Release);
    }
}

/// Returns the thread of this number.
///
/// # Safety
/// No other code may use it: the caller is in a callback of that thread, or all threads have stopped.
#[inline(always)]
pub(crate) unsafe fn get(number: u32) -> Option<&'static mut Thread> {
    let thread = THREADS.get(number as usize)?.load(Ordering::Relaxed);
    // SAFETY: entries are never freed; the caller says that nobody else uses it.
    unsafe { thread.as_mut() }
}

/// Calls `f` with every thread.
///
/// # Safety
/// All threads must have stopped.
pub(crate) unsafe fn each(mut f: impl FnMut(&mut Thread)) {
    for number in 0..MAX_THREADS as u32 {
        // SAFETY: as the caller says.
        if let Some(thread) = unsafe { get(number) } {
            f(thread);
        }
    }
}
