//! A team's barriers.
//!
//! `barrier` is one barrier, and has the calls that wait at these two.

use super::super::barrier::Barrier;
use std::sync::atomic::AtomicUsize;

/// The barriers of a team.
pub(crate) struct Barriers {
    /// The one within the region.
    pub(crate) inner: Barrier,
    /// The one that ends the region.
    pub(crate) join: Barrier,
    /// For a team over several nodes, the address to which members return from the barrier they are at; 0 if unknown.
    pub(crate) site: AtomicUsize,
}

impl Barriers {
    pub(super) const fn new() -> Barriers {
        Barriers { inner: Barrier::new(), join: Barrier::new(), site: AtomicUsize::new(0) }
    }

    /// Prepares for the next region.
    pub(super) fn settle(&self) {
        self.inner.restart();
        self.join.restart();
    }
}
