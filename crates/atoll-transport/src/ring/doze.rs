//! Sleeping for a ready set that others use meanwhile, one at a time by a lock of theirs.
//!
//! `transport/` hands it out as `Doze`; it stands on `ready.rs` and `bell.rs`.
//!
//! Whoever used the set last saw it empty, so that every channel was armed: what comes then sets a bit of the set, and either
//! the sleeper's look behind its announcement sees it, or the sender sees the announcement. Who hushes takes the announcement
//! back, so that senders wake nobody, and makes it anew, with a look behind it, when it goes.

use std::time::Duration;

use crate::ring::bell::ASLEEP;
use crate::ring::ready::ReadySet;

/// See the module.
#[derive(Clone)]
pub(crate) struct Dozer(ReadySet);

impl Dozer {
    pub(crate) fn new(set: ReadySet) -> Dozer {
        Dozer(set)
    }

    /// Sleeps once, until something comes, somebody interrupts, or `longest` is over.
    pub(crate) fn doze(&self, longest: Duration) {
        let ready = &self.0;
        let mut naps = [longest].into_iter();
        let something = || ready.any() || ready.is_interrupted();
        // How it ended is for who uses the set to see.
        let _ = ready.bell().wait(0, something, || naps.next().ok_or(()));
        ready.take_interrupt();
    }

    pub(crate) fn hush(&self) {
        self.0.bell().retract();
    }

    /// True if something came that nobody looked at: then the sleeper is to be interrupted.
    pub(crate) fn unhush(&self) -> bool {
        self.0.bell().announce(ASLEEP);
        self.0.any()
    }
}
