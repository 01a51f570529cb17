//! What members have met of a region's work-sharing constructs.
//!
//! `workshare` has the shares, `single` the constructs that one member executes, and `cancel` those that are cancelled.

use super::super::workshare::WorkShare;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The work-sharing constructs of a region.
pub(crate) struct Sharing {
    /// The number of `single` constructs that a member has taken.
    pub(crate) singles: AtomicU64,
    /// The data that the member in a `single` construct hands to the others (`copyprivate`).
    pub(crate) copy_private: AtomicPtr<u8>,
    /// One more than the barrier generation whose work-sharing construct is cancelled.
    pub(crate) cancelled: AtomicU64,
    /// The region's first work share, already past for all members unless a combined construct filled it. Only the leader sets it,
    /// while no member runs.
    pub(crate) first: Cell<*const WorkShare>,
    /// Shares that no construct uses.
    pub(crate) free: [AtomicPtr<WorkShare>; 8],
}

impl Sharing {
    pub(super) fn new() -> Sharing {
        Sharing {
            singles: AtomicU64::new(0),
            copy_private: AtomicPtr::new(ptr::null_mut()),
            cancelled: AtomicU64::new(0),
            first: Cell::new(WorkShare::allocate()),
            free: [const { AtomicPtr::new(ptr::null_mut()) }; 8],
        }
    }

    /// Prepares for the next region.
    pub(super) fn settle(&self) {
        self.singles.store(0, Ordering::Relaxed);
        self.cancelled.store(0, Ordering::Relaxed);
        // SAFETY: the first share is this team's, and nobody else uses it between regions.
        unsafe { &*self.first.get() }.rewind();
    }
}
