//! The sizes of large blocks, to be read without a lock: a table with a place for each of some thousand blocks.
//!
//! `large` enters and removes blocks under its lock, `parked` marks those that wait to be allocated again. Two blocks may want one place. Then the
//! later one has it, and whoever asks for the other's size asks `large`. Only the owner of a block asks for its size or frees it, so that no entry changes
//! while somebody needs it.

use std::sync::atomic::{AtomicU64, Ordering};

use atoll_memory::layout;

use super::GRANULE;

/// log2 of the number of places.
const ORDER: u32 = 12;
/// Granules that a block has at most, to be entered: 2 TiB.
const MOST: usize = (1 << 29) - 1;

/// A block: its first granule in the arena, its granules, and whether it is parked. 0 is none, as no block has no granules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry(u64);

impl Entry {
    const NONE: Entry = Entry(0);
    const PARKED: u64 = 1 << 63;

    fn new(start: usize, bytes: usize) -> Option<Entry> {
        let (number, granules) = (start.wrapping_sub(layout::ARENA) / GRANULE, bytes / GRANULE);
        let fits = layout::in_arena(start) && (1..=MOST).contains(&granules);
        fits.then_some(Entry((number as u64) << 29 | granules as u64))
    }

    fn is_of(self, start: usize) -> bool {
        self != Entry::NONE
            && (self.0 & !Entry::PARKED) >> 29 == (start.wrapping_sub(layout::ARENA) / GRANULE) as u64
    }

    fn is_parked(self) -> bool {
        self.0 & Entry::PARKED != 0
    }

    fn bytes(self) -> usize {
        (self.0 as usize & MOST) * GRANULE
    }
}

/// The large blocks' own.
pub(super) static SIZES: Sizes = Sizes::new();

/// What is known of the blocks of a heap.
pub(super) struct Sizes {
    places: [AtomicU64; 1 << ORDER],
}

impl Sizes {
    pub(super) const fn new() -> Sizes {
        Sizes { places: [const { AtomicU64::new(0) }; 1 << ORDER] }
    }

    fn place(&self, start: usize) -> &AtomicU64 {
        let hash = (start as u64 / GRANULE as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.places[(hash >> (64 - ORDER)) as usize]
    }

    /// Changes an entry that nobody has parked, unless it is of another block and `to` is none.
    fn change(&self, start: usize, to: Entry) {
        let place = self.place(start);
        // Relaxed: a block's owner got it from whoever entered it, by the program's own synchronisation, and what an entry says is all in one word.
        let mut seen = place.load(Ordering::Relaxed);
        while !Entry(seen).is_parked() && (to != Entry::NONE || Entry(seen).is_of(start)) {
            match place.compare_exchange_weak(seen, to.0, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// The block at `start` has so many bytes from now on, a multiple of 4096. A parked block that has the place keeps it.
    pub(super) fn enter(&self, start: usize, bytes: usize) {
        self.change(start, Entry::new(start, bytes).unwrap_or(Entry::NONE));
    }

    /// The block at `start` is none any more.
    pub(super) fn remove(&self, start: usize) {
        self.change(start, Entry::NONE);
    }

    /// The bytes of the block at `start`, which the caller owns; `None` if `large` has to be asked.
    #[inline]
    pub(super) fn of(&self, start: usize) -> Option<usize> {
        let entry = Entry(self.place(start).load(Ordering::Relaxed));
        (entry.is_of(start) && !entry.is_parked()).then(|| entry.bytes())
    }

    /// Whether the block at `start` is parked.
    pub(super) fn is_parked(&self, start: usize) -> bool {
        let entry = Entry(self.place(start).load(Ordering::Relaxed));
        entry.is_of(start) && entry.is_parked()
    }

    /// Marks the block at `start`, of `bytes`, as parked, which keeps its place. `false` if that was done before, or it has no place.
    pub(super) fn park(&self, start: usize, bytes: usize) -> bool {
        let Some(entry) = Entry::new(start, bytes) else { return false };
        let parked = entry.0 | Entry::PARKED;
        self.place(start).compare_exchange(entry.0, parked, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The block at `start`, which is parked, is somebody's again.
    pub(super) fn unpark(&self, start: usize) {
        self.place(start).fetch_and(!Entry::PARKED, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: usize = layout::ARENA + 7 * GRANULE;

    /// Another block that wants the place of the one at [`A`].
    fn rival(sizes: &Sizes) -> usize {
        let place = std::ptr::from_ref(sizes.place(A));
        let wants_it = |start: &usize| std::ptr::from_ref(sizes.place(*start)) == place;
        (8..).map(|n| layout::ARENA + n * GRANULE).find(wants_it).unwrap()
    }

    #[test]
    fn an_entry_is_of_one_block() {
        let sizes = Sizes::new();
        sizes.enter(A, 64 << 10);
        assert_eq!((sizes.of(A), sizes.of(A + GRANULE)), (Some(64 << 10), None));
        sizes.enter(A, 128 << 10);
        let b = rival(&sizes);
        sizes.remove(b);
        assert_eq!((sizes.of(A), sizes.of(b)), (Some(128 << 10), None));
        sizes.enter(b, 1 << 20);
        assert_eq!((sizes.of(A), sizes.of(b)), (None, Some(1 << 20)));
        sizes.remove(b);
        assert_eq!(sizes.of(b), None);
        // The first and the last block that can be, and one that is too large.
        let last = layout::ARENA + layout::ARENA_BYTES - GRANULE;
        for (start, bytes) in [(layout::ARENA, MOST * GRANULE), (last, GRANULE)] {
            sizes.enter(start, bytes);
            assert_eq!(sizes.of(start), Some(bytes));
        }
        sizes.enter(A, (MOST + 1) * GRANULE);
        assert_eq!(sizes.of(A), None);
    }

    #[test]
    fn a_parked_block_keeps_its_place() {
        let sizes = Sizes::new();
        sizes.enter(A, 64 << 10);
        assert!(!sizes.park(A, 128 << 10));
        assert!(sizes.park(A, 64 << 10) && sizes.is_parked(A));
        assert!(!sizes.park(A, 64 << 10), "a block that is freed twice");
        let b = rival(&sizes);
        sizes.enter(b, 1 << 20);
        sizes.remove(A);
        assert_eq!(
            (sizes.of(A), sizes.of(b), sizes.is_parked(A), sizes.is_parked(b)),
            (None, None, true, false)
        );
        sizes.unpark(A);
        assert_eq!(sizes.of(A), Some(64 << 10));
    }
}
