//! Keeps the workers' virtual clocks, and finds the least.
//!
//! [`engine`](crate::engine) lets the worker that is behind all others go on. This is a tournament: each node holds the lesser
//! of its two, so a change costs one path to the root. Equal clocks are ordered by the worker's number, which makes the order
//! total.

/// The number of low bits of a key that hold the worker's number; the clock has the others.
const WORKER_BITS: u32 = 10;
/// The key of a worker that cannot go on.
pub(crate) const NEVER: u64 = u64::MAX;
/// The latest time that a key can hold: five hours in picoseconds.
pub(crate) const LATEST: u64 = u64::MAX >> WORKER_BITS;

/// Returns a key, which orders workers by clock, then by number.
#[inline(always)]
pub(crate) fn key(clock: u64, worker: usize) -> u64 {
    clock << WORKER_BITS | worker as u64
}

/// The tournament of the workers' keys.
#[derive(Debug)]
pub(crate) struct Clocks {
    /// Node 1 is the root, and `leaves` the first leaf.
    nodes: Vec<u64>,
    leaves: usize,
}

impl Clocks {
    /// Makes a tournament in which no worker can go on.
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

    /// Returns a worker's key.
    pub(crate) fn get(&self, worker: usize) -> u64 {
        self.nodes[self.leaves + worker]
    }

    /// Returns the worker that is next; `None` when no worker can go on.
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
