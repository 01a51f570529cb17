//! Contention groups: an initial thread and all threads of the regions that it and its descendants begin. A thread limit bounds
//! their number, on all nodes together.
//!
//! `parallel` reserves threads before it gathers a team, and gives them back at a region's end. If a region of the group is
//! spread over nodes, the origin's agent counts the group (`nodes::threads`).

use super::spread;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// One group: kept in the team of its initial thread.
pub(crate) struct Contention {
    /// The number of threads besides the initial one.
    more: AtomicU32,
    /// Whether the group has threads on several nodes.
    spread: AtomicBool,
}

impl Contention {
    pub(crate) const fn new() -> Contention {
        Contention { more: AtomicU32::new(0), spread: AtomicBool::new(false) }
    }

    /// Reserves up to `wanted` more threads, as many as keep the group at `limit` threads at most; returns their number.
    pub(crate) fn reserve(&self, wanted: u32, limit: u32) -> u32 {
        if self.spread.load(Ordering::Relaxed) {
            return spread::reserve_threads(wanted, limit);
        }
        let mut granted = 0;
        // Relaxed: no other memory is ordered by this count.
        let _ = self.more.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |more| {
            granted = room(more, wanted, limit);
            Some(more + granted)
        });
        granted
    }

    /// Gives back threads that were reserved.
    pub(crate) fn give_back(&self, threads: u32) {
        if threads == 0 {
            return;
        }
        if self.spread.load(Ordering::Relaxed) {
            spread::give_back_threads(threads);
        } else {
            self.more.fetch_sub(threads, Ordering::Relaxed);
        }
    }

    /// Sets whether a region of the group's initial thread is spread over nodes. The region's own threads are counted where
    /// those of its nested regions are.
    pub(crate) fn set_spread(&self, spread: bool) {
        self.spread.store(spread, Ordering::Relaxed);
    }
}

/// The number of threads, up to `wanted`, for which there is room beside an initial thread and `more` others.
pub(crate) fn room(more: u32, wanted: u32, limit: u32) -> u32 {
    wanted.min(limit.saturating_sub(1).saturating_sub(more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_together_are_never_more_than_the_limit() {
        let group = Contention::new();
        assert_eq!(group.reserve(3, 6), 3);
        assert_eq!(group.reserve(3, 6), 2);
        assert_eq!(group.reserve(3, 6), 0);
        group.give_back(3);
        assert_eq!(group.reserve(1, 6), 1);
        assert_eq!(room(0, 5, 0), 0);
    }
}
