//! The workers' virtual clocks, and whose is the least.
//!
//! [`engine`](crate::engine) lets the worker behind all others go on. A tournament: each node holds the lesser of its two,
//! so a change costs one path to the root. Equal clocks go by the worker's number, which makes the order a total one.

/// Workers' numbers take the low bits of a key, clocks the others.
const WORKER_BITS: u32 = 10;
/// The key of who cannot go on.
pub(crate) const NEVER: u64 = u64::MAX;
/// The latest time a key can hold: five hours in picoseconds.
pub(crate) const LATEST: u64 = u64::MAX >> WORKER_BITS;

/// Orders workers by clock, then by number.
#[inline(always)]
pub(crate) fn key(clock: u64, worker: usize) -> u64 {
    clock << WORKER_BITS | worker as u64
}

/// The tournament.
#[derive(Debug)]
pub(crate) struct Clocks {
    /// Node 1 is the root, `leaves` the first leaf.
    nodes: Vec<u64>,
    leaves: usize,
}

impl Clocks {
    /// Nobody can go on.
    pub(crate) fn new(workers: usize) -> Self {
        let leaves = workers.next_power_of_two().max(2);
        Self { nodes: vec![NEVER; 2 * leaves], leaves }
    }

    /// Sets a worker's key.
    #[inline]
    pub(crate) fn set(&mut self, worker: usize, key: u64) {
        let mut at = self.leaves + worker;
        let mut least = key;
        self.nodes[at] = key;
        while at > 1 {
            least = least.min(self.nodes[at ^ 1]);
            at /= 2;
            self.nodes[at] = least;
        }
    }

    /// A worker's key.
    pub(crate) fn get(&self, worker: usize) -> u64 {
        self.nodes[self.leaves + worker]
    }

    /// The worker who is next; `None` when nobody can go on.
    #[inline]
    pub(crate) fn least(&self) -> Option<usize> {
        (self.nodes[1] != NEVER).then_some(self.nodes[1] as usize & ((1 << WORKER_BITS) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_clock_is_next_and_equal_ones_go_by_number() {
        let mut clocks = Clocks::new(5);
        assert_eq!(clocks.least(), None);
        for (worker, at) in [(4, 7), (1, 9), (3, 7)] {
            clocks.set(worker, key(at, worker));
        }
        assert_eq!(clocks.least(), Some(3));
        clocks.set(3, key(8, 3));
        assert_eq!((clocks.least(), clocks.get(3)), (Some(4), key(8, 3)));
        for worker in [3, 4] {
            clocks.set(worker, NEVER);
        }
        assert_eq!(clocks.least(), Some(1));
    }
}
