//! Notices that the pages of a region go to and fro between nodes, so that its workers do little but wait for them.
//!
//! Each node keeps one [`Thrash`] for its part of the region that runs. What follows is the driver's: the origin has the region calmed
//! (`hold.rs` of `atoll-nodes`), and `placing.rs` keeps it on the origin.

use std::collections::BTreeSet;

use crate::merge::Page;

/// The time that is judged at once, in nanoseconds.
const WINDOW: u64 = 10_000_000;
/// The least percentage of its workers' time for which they waited for pages.
const WAITED: u64 = 40;
/// The least number of pages that they had to fetch again.
const AGAIN: u32 = 24;
/// The number of such times in a row.
const WINDOWS: u32 = 2;

/// The account of one node's part of one run. Times are in nanoseconds of one clock.
#[derive(Debug, Clone, Default)]
pub struct Thrash {
    began: u64,
    waited: u64,
    again: u32,
    bad: u32,
    /// Pages that other nodes have taken from this one between two barriers.
    taken: BTreeSet<Page>,
}

impl Thrash {
    /// Begins the account of a run at `now`.
    pub fn restart(&mut self, now: u64) {
        *self = Thrash { began: now, ..Thrash::default() };
    }

    /// Another node takes `page`.
    pub fn taken(&mut self, page: Page) {
        self.taken.insert(page);
    }

    /// A worker asks for `page`.
    pub fn asked(&mut self, page: Page) {
        self.again += u32::from(self.taken.contains(&page));
    }

    /// A worker waited for a page for `ns`, until `now`. Returns whether the pages of this node's `workers` go to and fro.
    pub fn waited(&mut self, ns: u64, now: u64, workers: u32) -> bool {
        self.waited += ns;
        let time = now.saturating_sub(self.began);
        if time < WINDOW {
            return false;
        }
        let waits = self.waited * 100 >= time * u64::from(workers.max(1)) * WAITED;
        // A longer time, as nobody waited for long, may have more of them.
        let again = u64::from(self.again) * WINDOW >= u64::from(AGAIN) * time;
        self.bad = if waits && again { self.bad + 1 } else { 0 };
        (self.began, self.waited, self.again) = (now, 0, 0);
        self.bad >= WINDOWS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Runs a worker that waits `wait` ns of each 100 µs, for a page of `pages` that are taken each time if `taken`; returns when
    /// that was noticed.
    fn noticed(wait: u64, pages: u64, taken: bool) -> Option<u64> {
        let mut thrash = Thrash::default();
        thrash.restart(5 * MS);
        (1..=1000).find_map(|step: u64| {
            let now = 5 * MS + step * MS / 10;
            thrash.asked(step % pages);
            let bad = thrash.waited(wait, now, 1);
            if taken {
                thrash.taken(step % pages);
            }
            bad.then_some(now - 5 * MS)
        })
    }

    #[test]
    fn pages_that_come_again_and_again_are_noticed_within_50_ms() {
        assert_eq!(noticed(60_000, 50, true), Some(20 * MS));
    }

    #[test]
    fn pages_that_are_fetched_once_and_workers_that_seldom_wait_are_no_thrashing() {
        assert_eq!(noticed(60_000, 5000, true), None);
        assert_eq!(noticed(60_000, 50, false), None);
        assert_eq!(noticed(30_000, 50, true), None);
    }
}
