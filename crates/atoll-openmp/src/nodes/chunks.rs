//! The origin's counters of loops whose iterations go to who asks: a node takes some at a time for its workers.
//!
//! `agent` asks it for all nodes; within a node `omp::loops` deals them out.

use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Chunks {
    /// Iterations given out, by the loop's number in the region.
    next: HashMap<u64, u64>,
}

impl Chunks {
    /// Another region: its loops count from the start.
    pub(super) fn restart(&mut self) {
        self.next.clear();
    }

    /// `amount` iterations of a loop of `count`; more while many are left, if `guided` and there are `nodes` nodes.
    pub(super) fn take(
        &mut self,
        share: u64,
        count: u64,
        amount: u64,
        guided: bool,
        nodes: u32,
    ) -> (u64, u64) {
        let next = self.next.entry(share).or_insert(0);
        let left = count.saturating_sub(*next);
        let fair = if guided { left / (2 * u64::from(nodes)) } else { 0 };
        let from = *next;
        *next += left.min(amount.max(fair));
        (from, *next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_iteration_is_given_out_once() {
        for guided in [false, true] {
            let mut chunks = Chunks::default();
            let mut at = 0;
            loop {
                let (from, to) = chunks.take(3, 1000, 7, guided, 2);
                if from == to {
                    break;
                }
                assert_eq!(from, at);
                at = to;
            }
            assert_eq!(at, 1000);
            assert_eq!(chunks.take(4, 5, 7, guided, 2), (0, 5));
            chunks.restart();
            assert_eq!(chunks.take(3, 1000, 7, false, 2), (0, 7));
        }
    }
}
