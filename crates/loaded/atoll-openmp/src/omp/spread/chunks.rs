//! The origin's counters of loops whose iterations go to who asks: a node takes some at a time for its workers, by its speed.
//!
//! `served` asks it for all nodes; within a node `omp::loops` deals them out.
//!
//! A node's speed is what it took over the time until it asked again. A slow node takes less at a time, so that at the end the
//! others do not wait for it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// The wish of a node for iterations of a loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wish {
    /// Iterations of the loop.
    pub(super) count: u64,
    /// Iterations of a chunk.
    pub(super) chunk: u64,
    /// The most chunks that it takes; for a guided loop the threads of the whole team.
    pub(super) chunks: u16,
    /// The loop is guided: it takes one chunk, what is left over the threads, but not less than a chunk of the loop.
    pub(super) guided: bool,
}

#[derive(Default)]
struct Loop {
    /// Iterations given out.
    next: u64,
    /// The iterations that each node took last, and the time of that.
    given: BTreeMap<u32, (u64, Duration)>,
}

#[derive(Default)]
pub(super) struct Chunks {
    /// The loops of the region, by their numbers in it.
    loops: HashMap<u64, Loop>,
    /// Iterations a second of each node, in the loops of this region.
    speeds: BTreeMap<u32, f64>,
}

impl Chunks {
    /// Begins another region, whose loops count from the start.
    pub(super) fn restart(&mut self) {
        self.loops.clear();
        self.speeds.clear();
    }

    /// Iterations of a loop for `node`, one of `nodes`, that asks at `now`.
    pub(super) fn take(
        &mut self,
        share: u64,
        wish: Wish,
        (node, nodes): (u32, u32),
        now: Duration,
    ) -> (u64, u64) {
        let dealt = self.loops.entry(share).or_default();
        if let Some((amount, when)) = dealt.given.get(&node) {
            let speed = *amount as f64 / (now.saturating_sub(*when)).as_secs_f64().max(1e-9);
            let known = self.speeds.entry(node).or_insert(speed);
            *known = (*known + speed) / 2.0;
        }
        let chunk = wish.chunk.max(1);
        let left = wish.count.saturating_sub(dealt.next);
        let from = dealt.next;
        if wish.guided {
            // As a team on one machine has it: programs may count on the sizes.
            dealt.next += left.div_ceil(u64::from(wish.chunks.max(1))).max(chunk).min(left);
            return (from, dealt.next);
        }
        let (part, relative) = shares(&self.speeds, node, nodes);
        // Half of its part of what is left, so that the last ones are small.
        let fair = (left as f64 * part / 2.0) as u64;
        let asked = (f64::from(wish.chunks) * relative) as u64;
        let chunks = asked.min((fair / chunk).max(1));
        dealt.next += left.min(chunks.max(1).saturating_mul(chunk));
        if dealt.next > from {
            dealt.given.insert(node, (dealt.next - from, now));
        }
        (from, dealt.next)
    }
}

/// A node's part of all nodes' speed, and its speed against the fastest one's. A node whose speed is not known yet is taken to be as
/// fast as the others are.
fn shares(speeds: &BTreeMap<u32, f64>, node: u32, nodes: u32) -> (f64, f64) {
    let mean = speeds.values().sum::<f64>() / speeds.len().max(1) as f64;
    let own = speeds.get(&node).copied().unwrap_or(mean);
    let fastest = speeds.values().copied().fold(own, f64::max);
    if fastest <= 0.0 {
        return (1.0 / f64::from(nodes.max(1)), 1.0);
    }
    let unknown = f64::from(nodes).max(1.0) - speeds.len() as f64;
    (own / (speeds.values().sum::<f64>() + unknown.max(0.0) * mean), own / fastest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WISH: Wish = Wish { count: 1000, chunk: 7, chunks: 4, guided: false };

    #[test]
    fn every_iteration_is_given_out_once() {
        let (mut chunks, mut at, mut now) = (Chunks::default(), 0, 0);
        loop {
            now += 10;
            let node = (now / 10 % 2) as u32;
            let (from, to) = chunks.take(3, WISH, (node, 2), Duration::from_micros(now));
            if from == to {
                break;
            }
            assert_eq!(from, at);
            assert!(to == 1000 || (to - from) % 7 == 0);
            at = to;
        }
        assert_eq!(at, 1000);
        let small = Wish { count: 5, ..WISH };
        assert_eq!(chunks.take(4, small, (0, 2), Duration::ZERO), (0, 5));
        chunks.restart();
        assert_eq!(chunks.take(3, Wish { count: 20, ..WISH }, (0, 2), Duration::ZERO), (0, 7));
    }

    #[test]
    fn guided_chunks_are_what_is_left_over_the_threads_of_all_nodes() {
        let (mut chunks, mut left) = (Chunks::default(), 1000_u64);
        let wish = Wish { guided: true, ..WISH };
        while left > 0 {
            let (from, to) = chunks.take(3, wish, ((left % 2) as u32, 2), Duration::ZERO);
            assert_eq!((from, to - from), (1000 - left, left.div_ceil(4).max(7).min(left)));
            left -= to - from;
        }
        assert_eq!(chunks.take(3, wish, (0, 2), Duration::ZERO), (1000, 1000));
    }

    /// Two nodes, one three times as fast: how much later than the first the second one is done, in parts of the whole.
    fn apart() -> f64 {
        let (mut chunks, mut free) = (Chunks::default(), [0_u64; 2]);
        let wish = Wish { count: 100_000, chunk: 10, chunks: 64, guided: false };
        let mut taken = [0; 2];
        loop {
            let node = usize::from(free[1] < free[0]);
            let (from, to) = chunks.take(1, wish, (node as u32, 2), Duration::from_nanos(free[node]));
            if from == to {
                break;
            }
            taken[node] += to - from;
            free[node] += (to - from) * [100, 300][node];
        }
        assert_eq!(taken[0] + taken[1], 100_000);
        assert!(taken[0] > 2 * taken[1], "{taken:?}");
        free[0].abs_diff(free[1]) as f64 / free[0].max(free[1]) as f64
    }

    #[test]
    fn a_slow_node_is_done_with_the_others() {
        assert!(apart() < 0.02);
    }
}
