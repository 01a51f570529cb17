//! Contention groups: an initial thread and all that it and its descendants begin regions with. A thread limit bounds how many they are
//! together, on all nodes.
//!
//! `parallel` asks before it gathers a team, and gives back at a region's end. A group whose region is spread over nodes is counted
//! by the origin's agent (`spread::served`).

use super::spread;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// One group: kept in the team of its initial thread.
pub(crate) struct Contention {
    /// Threads besides the initial one.
    more: AtomicU32,
    /// Are they on several nodes?
    spread: AtomicBool,
}

impl Contention {
    pub(crate) const fn new() -> Contention {
        Contention { more: AtomicU32::new(0), spread: AtomicBool::new(false) }
    }

    /// So many of `wanted` threads more that all are `limit` at most: they count from now on.
    pub(crate) fn reserve(&self, wanted: u32, limit: u32) -> u32 {
        if self.spread.load(Ordering::Relaxed) {
            return spread::reserve_threads(wanted, limit);
        }
        let mut granted = 0;
        // Nobody orders anything by it.
        let _ = self.more.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |more| {
            granted = room(more, wanted, limit);
            Some(more + granted)
        });
        granted
    }

    /// They do not count any more.
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

    /// A region of the group's initial thread is spread over nodes from now on, or it is over. Its own threads are counted by whoever
    /// counts those of its nested regions.
    pub(crate) fn set_spread(&self, spread: bool) {
        self.spread.store(spread, Ordering::Relaxed);
    }
}

/// How many of `wanted` threads there is room for beside an initial thread and `more`.
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
