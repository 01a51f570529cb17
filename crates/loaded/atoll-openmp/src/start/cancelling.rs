//! Threads that the program cancels (`pthread_cancel`) end at calls of the program's own, as natively, and not at calls that the runtime makes
//! for it where libc makes none: within a call for memory, or while a thread is made.

use std::ffi::c_int;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// glibc's `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;

/// A guard while which the calling thread is not cancelled. The runtime opens, reads and closes files, and the allocator's first call in a
/// thread asks for random numbers: libc ends a cancelled thread at any of these.
pub(super) struct Uncancelled {
    before: c_int,
}

impl Uncancelled {
    pub(super) fn new() -> Uncancelled {
        let mut before = 0;
        // SAFETY: a place for the state.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Uncancelled { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state that the thread had. No cancelled thread ends by this, unless it may be cancelled at any time.
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}
