//! The atomics of all memory that two ends share: std's, or the model checker's under `--cfg loom`.
//!
//! The rings, the bells and the ready set take their atomics, fences and sleeps from here only, so `model.rs` checks the code
//! that runs. Without `--cfg loom` no line of loom is compiled.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Pauses for one turn of a spin loop.
#[inline]
pub(crate) fn pause() {
    #[cfg(not(loom))]
    std::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}

#[cfg(loom)]
pub(crate) use model::Futex;
#[cfg(not(loom))]
pub(crate) use real::Futex;

#[cfg(not(loom))]
mod real {
    use std::time::Duration;

    use rustix::thread::futex::{self, Flags, Timespec};

    use super::AtomicU32;

    /// A word in shared memory on which a process can sleep. The futex is shared, not private, as the waker is another process.
    #[repr(transparent)]
    pub(crate) struct Futex {
        pub(crate) word: AtomicU32,
    }

    impl Futex {
        #[cfg(test)]
        pub(crate) fn new() -> Futex {
            Futex { word: AtomicU32::new(0) }
        }

        /// Sleeps while the word holds `expected`, for at most `longest`. May return early for any reason: callers check again.
        pub(crate) fn sleep(&self, expected: u32, longest: Duration) {
            // A duration too long for the kernel's type is as good as for ever.
            let longest = Timespec::try_from(longest).ok();
            // EAGAIN, EINTR and ETIMEDOUT all mean the same to callers: check again.
            let _ = futex::wait(&self.word, Flags::empty(), expected, longest.as_ref());
        }

        /// Wakes the process that sleeps on the word, if there is one.
        pub(crate) fn wake(&self) {
            let _ = futex::wake(&self.word, Flags::empty(), 1);
        }
    }
}

#[cfg(loom)]
mod model {
    use std::time::Duration;

    use loom::sync::{Condvar, Mutex};

    use super::{AtomicU32, Ordering};

    /// A futex as the kernel's: to compare and to go to sleep is one step for those who wake, as both take the lock of the
    /// futex's queue. There is no timeout, so a lost wake-up is a deadlock, which loom reports.
    pub(crate) struct Futex {
        pub(crate) word: AtomicU32,
        queue: Mutex<()>,
        woken: Condvar,
    }

    impl Futex {
        pub(crate) fn new() -> Futex {
            Futex { word: AtomicU32::new(0), queue: Mutex::new(()), woken: Condvar::new() }
        }

        pub(crate) fn sleep(&self, expected: u32, _longest: Duration) {
            let Ok(queue) = self.queue.lock() else { return };
            if self.word.load(Ordering::Relaxed) == expected {
                drop(self.woken.wait(queue));
            }
        }

        pub(crate) fn wake(&self) {
            let queue = self.queue.lock();
            self.woken.notify_one();
            drop(queue);
        }
    }
}
