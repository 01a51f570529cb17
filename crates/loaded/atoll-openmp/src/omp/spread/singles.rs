//! The origin's count of `single` constructs, in regions in which threads may wait for each other between barriers: there the first
//! thread that comes has it, on whichever node, as one of the origin may be waiting for what is done in it.
//!
//! `served` asks it for all nodes. The origin's threads go before: what they have opened is open there.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use atoll_nodes::program::Who;

/// The first thread of another node waits so long for one of the origin's.
const PATIENCE: Duration = Duration::from_millis(10);

#[derive(Default)]
pub(super) struct Singles {
    /// Somebody has each construct of the region before this one.
    all_before: u64,
    /// Constructs behind that which somebody has: a thread may come to the next construct while its node's first one still waits
    /// for the one before, where that has `nowait`.
    taken: BTreeSet<u64>,
    /// Threads of other nodes that wait for constructs: the construct, the thread, and the time since which it waits.
    waiting: Vec<(u64, Who, Instant)>,
}

impl Singles {
    /// Begins another region, whose constructs count from the start.
    pub(super) fn restart(&mut self) {
        self.all_before = 0;
        self.taken.clear();
    }

    /// Has somebody this construct?
    fn is_taken(&self, number: u64) -> bool {
        number < self.all_before || self.taken.contains(&number)
    }

    /// Somebody has this construct from now on; returns whether nobody had it.
    fn enter(&mut self, number: u64) -> bool {
        let new = !self.is_taken(number) && self.taken.insert(number);
        while self.taken.remove(&self.all_before) {
            self.all_before += 1;
        }
        new
    }

    /// `who` is its node's first thread at construct `number`, counted from 0. Returns whether the construct is its; none: it will be
    /// told.
    pub(super) fn take(&mut self, number: u64, who: Who, is_origin: bool) -> Option<bool> {
        if is_origin || self.is_taken(number) {
            return Some(self.enter(number));
        }
        self.waiting.push((number, who, Instant::now()));
        None
    }

    /// A thread whose wait is over, and whether the construct is its.
    pub(super) fn answer(&mut self) -> Option<(Who, bool)> {
        let at = self
            .waiting
            .iter()
            .position(|(number, _, since)| self.is_taken(*number) || since.elapsed() > PATIENCE)?;
        let (number, who, _) = self.waiting.remove(at);
        Some((who, self.enter(number)))
    }

    /// The time until such a thread's wait is over; none if nobody waits.
    pub(super) fn longest_sleep(&self) -> Option<Duration> {
        self.waiting.iter().map(|(.., since)| PATIENCE.saturating_sub(since.elapsed())).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_goes_before_and_everybody_else_after_a_while() {
        let mut singles = Singles::default();
        assert_eq!(singles.take(0, (1, 7), false), None);
        assert_eq!(singles.take(0, (0, 1), true), Some(true));
        assert_eq!(singles.answer(), Some(((1, 7), false)));
        assert_eq!(singles.take(1, (1, 7), false), None);
        assert_eq!(singles.take(1, (2, 3), false), None);
        assert!(singles.longest_sleep().is_some_and(|left| left <= PATIENCE));
        std::thread::sleep(PATIENCE);
        let first = singles.answer();
        assert!(matches!(first, Some((_, true))));
        assert!(matches!(singles.answer(), Some((_, false))));
        assert_eq!((singles.answer(), singles.longest_sleep()), (None, None));
        assert_eq!(singles.take(1, (0, 1), true), Some(false));
        singles.restart();
        assert_eq!(singles.take(0, (0, 1), true), Some(true));
    }

    /// A construct that was decided after the next one was nobody's.
    #[test]
    fn constructs_that_are_decided_in_another_order_are_each_somebodys() {
        let mut singles = Singles::default();
        assert_eq!(singles.take(0, (1, 7), false), None);
        assert_eq!(singles.take(1, (0, 1), true), Some(true));
        std::thread::sleep(PATIENCE);
        assert_eq!(singles.answer(), Some(((1, 7), true)));
        assert_eq!(singles.take(0, (0, 2), true), Some(false));
        assert_eq!(singles.take(1, (2, 3), false), Some(false));
        assert_eq!((singles.all_before, singles.taken.len()), (2, 0));
    }
}
