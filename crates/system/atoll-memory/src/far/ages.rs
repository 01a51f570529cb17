//! How long blobs have lain in compressed memory, counted in what was stored since: which are the oldest, and how often those are fetched.
//!
//! `compressed` writes a generation into each blob's word and counts here what comes and goes; `auto` moves the oldest pages behind memory,
//! and `split` compares the fetches of the oldest with those of the youngest. A fetched page leaves compressed memory where that counts as
//! near, so that the oldest blobs are those of the pages that nobody has used for the longest time.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::FarError;
use super::shared::{Mapping, SharedWord};

/// Generations that are told apart; a number of one fits eight bits.
const GENERATIONS: usize = 256;
/// A generation holds one part in this number of the bytes held, and so many bytes at least.
const PART: u64 = 32;
const LEAST_BYTES: u64 = 64 << 10;

/// Shared by all workers.
#[repr(C)]
struct State {
    /// The generation of what is stored now.
    now: AtomicU32,
    /// Bytes of blobs by generation, and blobs fetched since they were asked for last.
    bytes: [AtomicU64; GENERATIONS],
    fetched: [AtomicU32; GENERATIONS],
    /// Bytes of all of them, and those stored in this generation.
    held: AtomicU64,
    stored: AtomicU64,
}

// SAFETY: integer atomics alone, less than a base page.
unsafe impl SharedWord for State {}

/// The ages of all blobs.
pub(super) struct Ages(Mapping);

/// Fetches of the oldest blobs and of the youngest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Fetches {
    pub(super) oldest: u64,
    pub(super) youngest: u64,
    /// The bytes of the youngest that were counted.
    pub(super) youngest_bytes: u64,
}

impl Ages {
    pub(super) fn new() -> Result<Self, FarError> {
        Ok(Self(Mapping::new(size_of::<State>() as u64, c"atoll far ages", false)?))
    }

    fn state(&self) -> &State {
        self.0.get(0)
    }

    /// The generations from the oldest to the youngest.
    fn oldest_first(&self) -> impl DoubleEndedIterator<Item = usize> {
        let now = self.state().now.load(Relaxed) as usize;
        (1..=GENERATIONS).map(move |i| (now + i) % GENERATIONS)
    }

    /// A blob of so many bytes is stored: its generation.
    pub(super) fn came(&self, bytes: u32) -> u8 {
        let state = self.state();
        let now = state.now.load(Relaxed) as usize % GENERATIONS;
        let held = state.held.fetch_add(bytes.into(), Relaxed) + u64::from(bytes);
        state.bytes[now].fetch_add(bytes.into(), Relaxed);
        let stored = state.stored.fetch_add(bytes.into(), Relaxed) + u64::from(bytes);
        // A generation whose number is still in use must leave first.
        if stored >= LEAST_BYTES.max(held / PART) && !self.is_full() {
            // Racing workers set the same number.
            state.stored.store(0, Relaxed);
            state.now.store(((now + 1) % GENERATIONS) as u32, Relaxed);
        }
        now as u8
    }

    /// A blob of that generation is no longer there.
    pub(super) fn went(&self, generation: u8, bytes: u32) {
        let state = self.state();
        state.held.fetch_sub(bytes.into(), Relaxed);
        state.bytes[usize::from(generation)].fetch_sub(bytes.into(), Relaxed);
    }

    /// A blob of that generation was fetched.
    pub(super) fn fetched(&self, generation: u8) {
        self.state().fetched[usize::from(generation)].fetch_add(1, Relaxed);
    }

    /// Bytes of all blobs.
    pub(super) fn bytes(&self) -> u64 {
        self.state().held.load(Relaxed)
    }

    /// Whether all numbers are in use, so that the oldest generation should leave.
    pub(super) fn is_full(&self) -> bool {
        let state = self.state();
        let next = (state.now.load(Relaxed) as usize + 1) % GENERATIONS;
        state.bytes[next].load(Relaxed) > 0
    }

    /// How many generations before this one the youngest of the oldest lie which together hold `bytes` or more.
    pub(super) fn age_of_oldest(&self, bytes: u64) -> u8 {
        let state = self.state();
        let mut sum = 0;
        let last = self.oldest_first().position(|generation| {
            sum += state.bytes[generation].load(Relaxed);
            sum >= bytes
        });
        (GENERATIONS - 1 - last.unwrap_or(GENERATIONS - 1)) as u8
    }

    /// The age of a generation, in generations.
    pub(super) fn age(&self, generation: u8) -> u8 {
        (self.state().now.load(Relaxed) as u8).wrapping_sub(generation)
    }

    /// The fetches of the oldest blobs that hold `bytes`, and of the youngest, since this was asked last.
    pub(super) fn take_fetches(&self, bytes: u64) -> Fetches {
        let state = self.state();
        let mut fetches = Fetches::default();
        let (mut sum, mut young) = (0, 0);
        for generation in self.oldest_first() {
            if sum < bytes {
                sum += state.bytes[generation].load(Relaxed);
                fetches.oldest += u64::from(state.fetched[generation].load(Relaxed));
            }
        }
        for generation in self.oldest_first().rev() {
            if young < bytes {
                young += state.bytes[generation].load(Relaxed);
                fetches.youngest += u64::from(state.fetched[generation].load(Relaxed));
            }
            state.fetched[generation].store(0, Relaxed);
        }
        Fetches { youngest_bytes: young, ..fetches }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOB: u32 = LEAST_BYTES as u32;

    #[test]
    fn the_oldest_and_the_youngest_are_told_apart() {
        let ages = Ages::new().unwrap();
        let generations: Vec<u8> = (0..20).map(|_| ages.came(BLOB)).collect();
        assert_eq!(ages.bytes(), 20 * LEAST_BYTES);
        let oldest = ages.age_of_oldest(2 * LEAST_BYTES);
        let is_old = |generation: &&u8| ages.age(**generation) >= oldest;
        assert_eq!(generations.iter().filter(is_old).count(), 2);
        ages.fetched(generations[1]);
        ages.fetched(generations[10]);
        ages.fetched(generations[19]);
        let fetches = ages.take_fetches(3 * LEAST_BYTES);
        assert_eq!(fetches, Fetches { oldest: 1, youngest: 1, youngest_bytes: 3 * LEAST_BYTES });
        assert_eq!(ages.take_fetches(3 * LEAST_BYTES).oldest, 0, "the counts begin anew");
        ages.went(generations[0], BLOB);
        ages.went(generations[1], BLOB);
        assert!(ages.age(generations[2]) >= ages.age_of_oldest(1));
    }

    #[test]
    fn a_number_in_use_is_not_given_again() {
        let ages = Ages::new().unwrap();
        let first = ages.came(BLOB);
        // What is stored and leaves again lets time go by.
        for _ in 0..3 * GENERATIONS {
            let generation = ages.came(BLOB);
            assert!(!ages.is_full() || generation != first);
            ages.went(generation, BLOB);
        }
        assert!(ages.is_full());
        assert_eq!(ages.age_of_oldest(1), ages.age(first));
        ages.went(first, BLOB);
        assert!(!ages.is_full());
    }
}
