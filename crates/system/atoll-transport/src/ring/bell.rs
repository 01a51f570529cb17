//! A bell: the word by which one end says that it sleeps, and the other end wakes it.
//!
//! Each end of a ring (`memory.rs`) and each ready set (`ready.rs`) has one, in shared memory. While nobody sleeps, the other
//! side only reads the word, which stays in its cache: there is no system call and no cache line moves.
//!
//! The waiter announces itself, fences, and checks its condition once more. The other side makes the condition true, fences,
//! and reads the bell. The two fences are SeqCst, so one comes first: either the waiter's last check sees the change, or the
//! other side sees the announcement. Without them both could read the past and the waiter would sleep for ever (a store and a
//! later load of another word may pass each other, on x86 too).
//!
//! Source: the barrelfish paper, section 5.5, whose channels are only polled. Sleeping is added here, as processes share CPUs
//! under Linux.

use std::time::Duration;

use crate::ring::sync::{Futex, Ordering, fence, pause};

/// Nobody needs to be notified.
pub(crate) const AWAKE: u32 = 0;
/// The waiter sleeps on the bell's word, or is about to.
pub(crate) const ASLEEP: u32 = 1;
/// The waiter does not watch this ring: its wait set wants to be notified.
pub(crate) const ARMED: u32 = 2;

/// A word that only the waiter (`announce`, `retract`) and those who answer it (`answer`) write.
#[repr(transparent)]
pub(crate) struct Bell {
    futex: Futex,
}

impl Bell {
    /// A bell at which nobody waits; in a mapping, zeros are the same.
    #[cfg(any(test, loom))]
    pub(crate) fn new() -> Bell {
        Bell { futex: Futex::new() }
    }

    /// The waiter's side: announces `how`. Either the other side sees it, or loads after this call see what the other side did.
    #[inline]
    pub(crate) fn announce(&self, how: u32) {
        // A swap, like all changes of the word, so that each is ordered after the one before. AcqRel: pairs with those in
        // `answer`.
        self.futex.word.swap(how, Ordering::AcqRel);
        // Pairs with the fence in `answer`.
        fence(Ordering::SeqCst);
    }

    /// The waiter's side: takes an announcement back. An answer may be under way, which does no harm.
    #[inline]
    pub(crate) fn retract(&self) {
        self.futex.word.swap(AWAKE, Ordering::AcqRel);
    }

    /// The other side, after it changed what the waiter waits for: returns what the waiter announced, and thereby answers it.
    /// Of several that answer, only one gets the announcement.
    #[inline]
    pub(crate) fn answer(&self) -> u32 {
        // Pairs with the fence in `announce`.
        fence(Ordering::SeqCst);
        if self.futex.word.load(Ordering::Relaxed) == AWAKE {
            return AWAKE;
        }
        // AcqRel: pairs with those in `announce` and `retract`.
        self.futex.word.swap(AWAKE, Ordering::AcqRel)
    }

    /// Wakes the waiter; called by the side that got `ASLEEP` from `answer`.
    #[cold]
    pub(crate) fn wake(&self) {
        self.futex.wake();
    }

    /// The waiter's side: returns once `ready` holds. Checks it `spins` times, then sleeps; before each sleep `nap` returns how
    /// long it may last, or an error that ends the wait. `ready` is checked once more after that, so `Err` means that it did
    /// not hold.
    pub(crate) fn wait<E>(
        &self,
        spins: u32,
        mut ready: impl FnMut() -> bool,
        mut nap: impl FnMut() -> Result<Duration, E>,
    ) -> Result<(), E> {
        if ready() {
            return Ok(());
        }
        for _ in 0..spins {
            pause();
            if ready() {
                return Ok(());
            }
        }
        loop {
            let longest = match nap() {
                Ok(longest) => longest,
                Err(end) => return if ready() { Ok(()) } else { Err(end) },
            };
            self.announce(ASLEEP);
            if ready() {
                self.retract();
                return Ok(());
            }
            self.futex.sleep(ASLEEP, longest);
            // A sleep that ended by time leaves the announcement, which nobody needs to answer any more.
            self.retract();
            if ready() {
                return Ok(());
            }
        }
    }
}
