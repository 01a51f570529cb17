//! Divides a region's threads, and the iterations that the runtime deals out itself, between nodes of unequal speed.
//!
//! The driver keeps one [`Parts`] for each spread region, and tells it after each run how long each node worked without
//! waiting. The division changes between runs only, and a change that does not pay is taken back.
//!
//! A node's speed is its share of the work over the time for it. A loop that the compiler deals out has a fixed part for each
//! thread: a faster node gets more threads, which pays where it has fewer CPUs than threads. Where the runtime deals out blocks
//! of iterations, the nodes' shares of these are weighted, too.
//!
//! Source: the barrelfish paper, section 7.2.4 (vThreads).

use crate::recent::Recent;

/// The number of measured runs before a change, and before it is judged.
const RUNS: u32 = 5;
/// The number of runs after a change that move pages.
const COLD: u32 = 2;
/// The greatest percentage of the slowest node's time that a change may promise.
const PROMISE: u64 = 90;
/// The greatest percentage of the region's time that it may then take.
const KEEP: u64 = 97;
/// The number of runs before the next attempt after a change that did not pay; doubled each time.
const REST: u32 = 50;

/// One node's part of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The number of its threads, at least 1.
    pub threads: u32,
    /// The node's weight where blocks of iterations are dealt out, relative to the other nodes' [`Part::weight`].
    pub weight: u32,
}

/// The weight of a thread where nodes are equally fast.
const WEIGHT: u32 = 64;

/// Divides `threads`, at least as many as there are nodes, equally; the first nodes get one more where the division leaves a
/// rest.
#[must_use]
pub fn equal(threads: u32, nodes: u32) -> Vec<Part> {
    let at = |node: u32| (u64::from(threads) * u64::from(node) / u64::from(nodes.max(1))) as u32;
    (0..nodes)
        .map(|node| {
            let threads = at(node + 1) - at(node);
            Part { threads, weight: threads.saturating_mul(WEIGHT) }
        })
        .collect()
}

#[derive(Debug, Clone)]
struct Trial {
    before: Vec<Part>,
    /// The time of a run then, in nanoseconds.
    ns: u64,
}

/// The division of one region, and its measurements.
#[derive(Debug, Clone)]
pub struct Parts {
    parts: Vec<Part>,
    /// Whether the runtime deals out its iterations.
    dealt: bool,
    work: Vec<Recent>,
    total: Recent,
    cold: u32,
    rests: u32,
    rest: u32,
    trial: Option<Trial>,
}

impl Parts {
    /// The division of a region of `threads` threads on `nodes` nodes, at most as many.
    #[must_use]
    pub fn new(threads: u32, nodes: u32) -> Parts {
        Parts {
            parts: equal(threads, nodes),
            dealt: false,
            work: vec![Recent::NONE; nodes as usize],
            total: Recent::NONE,
            cold: COLD,
            rests: 0,
            rest: REST,
            trial: None,
        }
    }

    /// The nodes' parts, in the order of nodes.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The number of threads of all nodes.
    #[must_use]
    pub fn threads(&self) -> u32 {
        self.parts.iter().map(|part| part.threads).sum()
    }

    /// Whether the parts are those of equally fast nodes.
    #[must_use]
    pub fn are_equal(&self) -> bool {
        self.parts == equal(self.threads(), self.parts.len() as u32)
    }

    /// Ends a run that took `ns`; `work` is the time that each node worked, without its waiting for pages and at barriers.
    /// `dealt` tells whether the runtime dealt out its static loops.
    pub fn ended(&mut self, ns: u64, work: &[u64], dealt: bool) {
        self.dealt |= dealt;
        if self.cold > 0 {
            self.cold -= 1;
            return;
        }
        if self.rests > 0 {
            self.rests -= 1;
            return;
        }
        self.total.push(ns);
        for (known, work) in self.work.iter_mut().zip(work) {
            known.push((*work).max(1));
        }
        if self.total.count() < RUNS {
            return;
        }
        let total = self.total.median().unwrap_or(0);
        if let Some(trial) = self.trial.take() {
            if u128::from(total) * 100 > u128::from(trial.ns) * u128::from(KEEP) {
                self.turn(trial.before);
                self.rests = self.rest;
                self.rest = self.rest.saturating_mul(2);
            } else {
                self.rest = REST;
            }
        }
        if self.total.count() < RUNS {
            return;
        }
        let work: Vec<u64> = self.work.iter().filter_map(Recent::median).collect();
        match self.better(&work) {
            Some(parts) => {
                let before = std::mem::replace(&mut self.parts, parts);
                self.turn(self.parts.clone());
                self.trial = Some(Trial { before, ns: total });
            }
            None => {
                // The division is as good as possible, and reconsidered now and then.
                self.rests = REST;
                self.total = Recent::NONE;
                self.work.fill(Recent::NONE);
            }
        }
    }

    fn turn(&mut self, parts: Vec<Part>) {
        self.parts = parts;
        self.cold = COLD;
        self.total = Recent::NONE;
        self.work.fill(Recent::NONE);
    }

    /// The division by the nodes' speeds, if it promises enough; `work` is the time they take now.
    fn better(&self, work: &[u64]) -> Option<Vec<Part>> {
        let longest = *work.iter().max()?;
        let size = |part: &Part| u64::from(if self.dealt { part.weight } else { part.threads }).max(1);
        let speed: Vec<f64> =
            self.parts.iter().zip(work).map(|(part, work)| size(part) as f64 / *work as f64).collect();
        let mut parts = self.parts.clone();
        if self.dealt {
            let all: u32 = self.parts.iter().map(|part| part.weight).sum();
            for (part, weight) in parts.iter_mut().zip(divide(all, &speed)) {
                part.weight = weight;
            }
        } else {
            for (part, threads) in parts.iter_mut().zip(divide(self.threads(), &speed)) {
                *part = Part { threads, weight: threads.saturating_mul(WEIGHT) };
            }
        }
        let promised = parts
            .iter()
            .zip(&self.parts)
            .zip(work)
            .map(|((new, old), work)| *work as f64 * size(new) as f64 / size(old) as f64)
            .fold(0.0, f64::max);
        (promised * 100.0 < longest as f64 * PROMISE as f64).then_some(parts)
    }
}

/// Divides `all` so that each gets at least one and the longest time is as short as possible.
fn divide(all: u32, speed: &[f64]) -> Vec<u32> {
    let mut parts = vec![1; speed.len()];
    for _ in speed.len()..all as usize {
        // The part that would be done first with one more gets it.
        let time = |at: usize| f64::from(parts[at] + 1) / speed[at];
        if let Some(next) = (0..parts.len()).min_by(|a, b| time(*a).total_cmp(&time(*b))) {
            parts[next] += 1;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs the region on nodes of these speeds and CPUs; returns the final threads of each node.
    fn settle(mut parts: Parts, speeds: &[f64], cpus: &[u32], runs: u32) -> Parts {
        for _ in 0..runs {
            let work: Vec<u64> = parts
                .parts()
                .iter()
                .zip(speeds)
                .zip(cpus)
                // A node with CPUs to spare takes as long as one thread does.
                .map(|((part, speed), cpus)| (1e6 * f64::from(part.threads.max(*cpus)) / speed) as u64)
                .collect();
            let longest = work.iter().max().copied().unwrap();
            parts.ended(longest + 1000, &work, false);
        }
        parts
    }

    fn threads(parts: &Parts) -> Vec<u32> {
        parts.parts().iter().map(|part| part.threads).collect()
    }

    #[test]
    fn a_faster_node_gets_more_threads() {
        let parts = settle(Parts::new(8, 2), &[3.0, 1.0], &[1, 1], 40);
        assert_eq!(threads(&parts), [6, 2]);
        assert!(!parts.are_equal());
        let parts = settle(parts, &[1.0, 1.0], &[1, 1], 400);
        assert_eq!(threads(&parts), [4, 4]);
    }

    #[test]
    fn equal_nodes_stay_equal() {
        let mut parts = Parts::new(7, 3);
        for run in 0..200 {
            parts.ended(1000, &[900 + run % 7, 900, 905], false);
            assert!(parts.are_equal());
        }
    }

    #[test]
    fn a_change_that_does_not_pay_is_taken_back() {
        // With as many CPUs as threads, no node gets faster by having fewer threads.
        let parts = settle(Parts::new(8, 2), &[3.0, 1.0], &[4, 4], 12);
        assert_eq!(threads(&settle(parts, &[3.0, 1.0], &[4, 4], 2)), [4, 4]);
    }

    #[test]
    fn a_slow_node_with_one_thread_keeps_it() {
        assert_eq!(threads(&settle(Parts::new(2, 2), &[9.0, 1.0], &[1, 1], 40)), [1, 1]);
    }

    #[test]
    fn blocks_that_the_runtime_deals_are_weighted() {
        let mut parts = Parts::new(2, 2);
        for _ in 0..60 {
            let work: Vec<u64> =
                parts.parts().iter().zip([3, 1]).map(|(p, s)| u64::from(p.weight) * 1000 / s).collect();
            let longest = *work.iter().max().unwrap();
            parts.ended(longest, &work, true);
        }
        assert_eq!(threads(&parts), [1, 1]);
        assert_eq!(parts.parts().iter().map(|part| part.weight).collect::<Vec<_>>(), [96, 32]);
    }

    proptest! {
        #[test]
        fn every_thread_is_on_one_node_and_every_node_has_one(
            nodes in 1_u32..17,
            more in 0_u32..200,
            runs in proptest::collection::vec((0_u64..1 << 40, 0_u64..1 << 40, any::<bool>()), 0..100),
        ) {
            let mut parts = Parts::new(nodes + more, nodes);
            for (i, (ns, work, dealt)) in runs.into_iter().enumerate() {
                let work: Vec<u64> = (0..nodes).map(|node| work >> ((node as usize + i) % 7)).collect();
                parts.ended(ns, &work, dealt);
                prop_assert_eq!(parts.threads(), nodes + more);
                prop_assert!(parts.parts().iter().all(|part| part.threads > 0 && part.weight > 0));
            }
        }
    }
}
