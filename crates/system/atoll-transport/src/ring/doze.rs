//! Sleeping for a ready set that others use meanwhile, one at a time under a lock of theirs.
//!
//! `transport/` hands it out as `Doze`; it stands on `ready.rs` and `bell.rs`.
//!
//! The last user of the set saw it empty, so every channel was armed: a later message sets a bit of the set. Either the
//! sleeper's check after its announcement sees the bit, or the sender sees the announcement. A user that hushes takes the
//! announcement back, so that senders wake nobody, and renews it, with a check after it, when it is done.

use std::time::Duration;

use crate::ring::bell::ASLEEP;
use crate::ring::ready::ReadySet;

/// The handle that sleeps for a set; the module's documentation explains it.
#[derive(Clone)]
pub(crate) struct Dozer(ReadySet);

impl Dozer {
    pub(crate) fn new(set: ReadySet) -> Dozer {
        Dozer(set)
    }

    /// Sleeps once, until a message comes, the set is interrupted, or `longest` is over.
    pub(crate) fn doze(&self, longest: Duration) {
        let ready = &self.0;
        let mut naps = [longest].into_iter();
        let something = || ready.any() || ready.is_interrupted();
        // The result is for the set's users to find out.
        let _ = ready.bell().wait(0, something, || naps.next().ok_or(()));
        ready.take_interrupt();
    }

    pub(crate) fn hush(&self) {
        self.0.bell().retract();
    }

    /// Renews the announcement; returns true if something came that nobody has handled, so that the sleeper must be
    /// interrupted.
    pub(crate) fn unhush(&self) -> bool {
        self.0.bell().announce(ASLEEP);
        self.0.any()
    }
}
