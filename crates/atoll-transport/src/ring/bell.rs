//! A bell: the word by which one end says that it sleeps, and the other end wakes it.
//!
//! Each end of a ring (`memory.rs`) and each ready set (`ready.rs`) has one, in shared memory. As long as nobody
//! sleeps, the other side only reads the word, which stays in its cache: no system call and no line that moves.
//!
//! The waiter announces itself, fences, and looks once more at what it waits for; the other side makes it come true,
//! fences, and looks at the bell. The two fences are SeqCst, so one comes first: either the waiter's last look sees
//! the change, or the other side's look sees the announcement. Without them both could read the past and the waiter
//! would sleep for ever (a store and a later load of another word may pass each other, on x86 too).
//!
//! Source: the barrelfish paper, section 5.5, whose channels are only polled; sleeping is ours, as Linux shares its
//! CPUs.

use std::time::Duration;

use crate::ring::sync::{Futex, Ordering, fence, pause};

/// Nobody needs to be told anything.
pub(crate) const AWAKE: u32 = 0;
/// The waiter sleeps on the bell's word, or is about to.
pub(crate) const ASLEEP: u32 = 1;
/// The waiter does not watch this ring: its wait set wants to be told.
pub(crate) const ARMED: u32 = 2;

/// The word, alone to be written by the waiter (`announce`, `retract`) and by whoever answers it (`answer`).
#[repr(transparent)]
pub(crate) struct Bell {
    futex: Futex,
}

impl Bell {
    /// A bell nobody waits at; in a mapping, zeros are the same.
    #[cfg(any(test, loom))]
    pub(crate) fn new() -> Bell {
        Bell { futex: Futex::new() }
    }

    /// The waiter's side: from now on the other side will see `how`, or what it did is seen by loads behind this call.
    #[inline]
    pub(crate) fn announce(&self, how: u32) {
        // A swap, as all changes of the word are: each is ordered behind the one before. AcqRel: pairs with those in
        // `answer`.
        self.futex.word.swap(how, Ordering::AcqRel);
        // Pairs with the fence in `answer`.
        fence(Ordering::SeqCst);
    }

    /// The waiter's side: takes an announcement back. An answer may be under way; it does no harm.
    #[inline]
    pub(crate) fn retract(&self) {
        self.futex.word.swap(AWAKE, Ordering::AcqRel);
    }

    /// The other side, after it changed what the waiter waits for: what the waiter announced, which is hereby
    /// answered. Only one of several that answer gets to see it.
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

    /// Wakes the waiter; for who got `ASLEEP` from `answer`.
    #[cold]
    pub(crate) fn wake(&self) {
        self.futex.wake();
    }

    /// The waiter's side: returns once `ready` holds. Looks `spins` times, then sleeps; before each sleep `nap` says
    /// how long it may last, or ends the waiting. After it ended `ready` was looked at once more, so `Err` means that
    /// it did not hold.
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
            // A sleep that ended by time leaves the announcement: nobody need answer it any more.
            self.retract();
            if ready() {
                return Ok(());
            }
        }
    }
}
