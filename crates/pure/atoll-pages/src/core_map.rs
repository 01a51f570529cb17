//! The set of workers that map a page: their number steers replacement, their names the remote TLB invalidations.
//!
//! `atoll-memory` keeps a [`CoreMap`] for every page in shared memory; `replay` and whoever walks one later works
//! on a [`CoreSet`]. Source: `papers/cmcp.txt`, section 2.3 (the information regular page tables lack).

use core::sync::atomic::{AtomicU64, Ordering};

/// How many workers a team may have.
pub const MAX_WORKERS: usize = 1024;

/// Words of a map that has room for every worker.
pub const MAX_WORDS: usize = MAX_WORKERS / 64;

/// How many 64-bit words a core map for `workers` workers has.
pub const fn words_for(workers: usize) -> usize {
    workers.div_ceil(64)
}

/// A page's core map in shared memory: bit `w` is set while worker `w` maps the page.
///
/// Changes release and reads acquire, so who sees a worker in the map sees what that worker did before it joined. One
/// worker's bit is exact at any moment; count and iteration are exact only under the page's lock.
#[derive(Debug, Clone, Copy)]
pub struct CoreMap<'a> {
    words: &'a [AtomicU64],
}

impl<'a> CoreMap<'a> {
    /// The map in these words, which has room for 64 workers a word.
    pub fn new(words: &'a [AtomicU64]) -> Self {
        Self { words }
    }

    /// Adds a worker; returns whether it was new. Panics if the map has no room for that worker.
    pub fn insert(&self, worker: usize) -> bool {
        let bit = 1 << (worker % 64);
        self.words[worker / 64].fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    /// Takes a worker out; returns whether it was in. Panics if the map has no room for that worker.
    pub fn remove(&self, worker: usize) -> bool {
        let bit = 1 << (worker % 64);
        self.words[worker / 64].fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }

    /// Whether a worker is in the map.
    pub fn contains(&self, worker: usize) -> bool {
        self.words.get(worker / 64).is_some_and(|word| word.load(Ordering::Acquire) >> (worker % 64) & 1 != 0)
    }

    /// The core-map count.
    pub fn count(&self) -> u32 {
        self.words.iter().map(|word| word.load(Ordering::Acquire).count_ones()).sum()
    }

    /// The workers in the map, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + 'a {
        workers(self.words.iter().map(|word| word.load(Ordering::Acquire)))
    }

    /// Empties the map and returns who was in it. Words beyond [`MAX_WORDS`] are emptied, too, but not returned.
    pub fn take(&self) -> CoreSet {
        let mut set = CoreSet::new();
        for (index, word) in self.words.iter().enumerate() {
            let bits = word.swap(0, Ordering::AcqRel);
            if let Some(taken) = set.words.get_mut(index) {
                *taken = bits;
            }
        }
        set
    }

    /// Adds everyone in `set` for whom the map has room.
    pub fn union(&self, set: &CoreSet) {
        for (word, &bits) in self.words.iter().zip(&set.words).filter(|(_, bits)| **bits != 0) {
            word.fetch_or(bits, Ordering::AcqRel);
        }
    }
}

/// A set of workers by value: a core map at one moment, or the union of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreSet {
    words: [u64; MAX_WORDS],
}

impl Default for CoreSet {
    fn default() -> Self {
        Self::new()
    }
}

impl CoreSet {
    /// Nobody.
    pub const fn new() -> Self {
        Self { words: [0; MAX_WORDS] }
    }

    /// Adds a worker below [`MAX_WORKERS`]; returns whether it was new.
    pub fn insert(&mut self, worker: usize) -> bool {
        let bit = 1 << (worker % 64);
        let new = self.words[worker / 64] & bit == 0;
        self.words[worker / 64] |= bit;
        new
    }

    /// Takes a worker out; returns whether it was in.
    pub fn remove(&mut self, worker: usize) -> bool {
        let was = self.contains(worker);
        if was {
            self.words[worker / 64] &= !(1 << (worker % 64));
        }
        was
    }

    /// Whether a worker is in the set.
    pub fn contains(&self, worker: usize) -> bool {
        self.words.get(worker / 64).is_some_and(|word| word >> (worker % 64) & 1 != 0)
    }

    /// How many workers are in the set.
    pub fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// The workers in the set, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        workers(self.words.iter().copied())
    }

    /// Adds everyone who is in `map` now, as when a batch of pages is invalidated by one interrupt a worker.
    pub fn union(&mut self, map: &CoreMap<'_>) {
        for (bits, word) in self.words.iter_mut().zip(map.words) {
            *bits |= word.load(Ordering::Acquire);
        }
    }
}

/// The numbers of the set bits.
fn workers(words: impl Iterator<Item = u64>) -> impl Iterator<Item = usize> {
    words.enumerate().flat_map(|(index, bits)| {
        let rest = core::iter::successors(Some(bits), |bits| Some(bits & bits.wrapping_sub(1)));
        rest.take_while(|bits| *bits != 0).map(move |bits| index * 64 + bits.trailing_zeros() as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_names_its_workers_in_order() {
        let words: [AtomicU64; words_for(1024)] = [const { AtomicU64::new(0) }; 16];
        let map = CoreMap::new(&words);
        for worker in [1023, 0, 64, 63, 200] {
            assert!(map.insert(worker) && !map.insert(worker) && map.contains(worker));
        }
        assert!(map.iter().eq([0, 63, 64, 200, 1023]));
        assert!(map.remove(64) && !map.remove(64) && !map.contains(64) && !map.contains(5000));
        let mut set = CoreSet::new();
        assert!(set.insert(7) && !set.insert(7));
        set.union(&map);
        assert!(set.iter().eq([0, 7, 63, 200, 1023]));
        assert_eq!((set.count(), map.count()), (5, 4));
        assert!(map.take().iter().eq([0, 63, 200, 1023]) && map.count() == 0);
        map.union(&set);
        assert!(set.remove(7) && !set.remove(7));
        assert!(map.iter().eq([0, 7, 63, 200, 1023]));
    }
}
