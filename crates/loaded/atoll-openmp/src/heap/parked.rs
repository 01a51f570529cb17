//! Freed blocks of some 64 KiB that wait, whole, to be allocated again: neither way takes a lock or a system call.
//!
//! Used by `exports` before it asks `large`, for which a parked block is live. A program that allocates a buffer in each step of a loop gets the same one
//! each time. Each thread looks into a few slots, which it shares with others that happen to have the same ones; all are changed by compare-and-swap
//! alone, so a signal's handler that allocates finds them whole.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::GRANULE;
use super::sizes::Sizes;

/// Bytes of a block that is parked, at most: to touch all of a larger one takes much longer than to allocate it.
const MOST_OF_ONE: usize = 1 << 20;
/// Bytes of all parked blocks at most.
const MOST: u64 = 32 << 20;
/// The part of near memory, one in this number, that parked blocks take at most.
const PART_OF_NEAR: u64 = 32;
/// The part of a block, one in this number, by which a parked one may be longer than what is asked for.
const PART_TO_SPARE: usize = 8;

const SLOTS: usize = 4;
const SETS: usize = 64;

/// The slots of some threads, a cache line of their own.
#[repr(align(64))]
struct Set([AtomicU64; SLOTS]);

/// A parked block, in a slot: its first granule, and how many it has. 0 is none.
#[derive(Clone, Copy)]
struct Block {
    start: usize,
    bytes: usize,
}

impl Block {
    /// Bits for the number of granules.
    const BITS: u32 = 12;

    fn word(self) -> u64 {
        (self.start as u64 / GRANULE as u64) << Block::BITS | (self.bytes / GRANULE) as u64
    }

    fn of(word: u64) -> Option<Block> {
        let granules = word as usize & ((1 << Block::BITS) - 1);
        (granules > 0)
            .then(|| Block { start: (word >> Block::BITS) as usize * GRANULE, bytes: granules * GRANULE })
    }

    /// Whether it serves for `bytes`.
    fn fits(self, bytes: usize, alignment: usize) -> bool {
        bytes <= self.bytes
            && self.bytes - bytes <= bytes / PART_TO_SPARE
            && self.start.is_multiple_of(alignment)
    }
}

/// What has become of a block that was to be parked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parked {
    /// It is parked.
    Alone,
    /// It is parked in place of this block, which is to be freed.
    InsteadOf(usize),
    /// It is not parked, and is to be freed as any other.
    Not,
}

/// The large blocks' own.
pub(super) static PLACES: Places = Places::new();

/// All parked blocks of a heap.
pub(super) struct Places {
    sets: [Set; SETS],
    bytes: AtomicUsize,
}

impl Places {
    const fn new() -> Places {
        Places {
            sets: [const { Set([const { AtomicU64::new(0) }; SLOTS]) }; SETS],
            bytes: AtomicUsize::new(0),
        }
    }

    /// The slots of the thread whose thread pointer is `thread`.
    fn set(&self, thread: usize) -> &[AtomicU64; SLOTS] {
        let hash = (thread as u64 / 64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.sets[(hash >> 58) as usize].0
    }

    /// A block of at least `bytes`, aligned to `alignment`, that holds what its last owner left there.
    #[inline]
    pub(super) fn take(&self, sizes: &Sizes, thread: usize, bytes: usize, alignment: usize) -> Option<usize> {
        if bytes > MOST_OF_ONE {
            return None;
        }
        let bytes = bytes.max(1).next_multiple_of(GRANULE);
        for slot in self.set(thread) {
            let word = slot.load(Ordering::Relaxed);
            let Some(block) = Block::of(word).filter(|block| block.fits(bytes, alignment)) else { continue };
            // Acquire: pairs with the Release in `park` of the last owner, whose accesses come before those of the next one. Where the block was taken and
            // parked again meanwhile, it is parked all the same.
            if slot.compare_exchange(word, 0, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                self.bytes.fetch_sub(block.bytes, Ordering::Relaxed);
                sizes.unpark(block.start);
                return Some(block.start);
            }
        }
        None
    }

    /// Parks the block at `start` if its size is known, it is not parked yet, and there is room for it in near memory of `near` bytes.
    #[inline]
    pub(super) fn park(&self, sizes: &Sizes, thread: usize, start: usize, near: u64) -> Parked {
        let Some(bytes) = sizes.of(start).filter(|bytes| *bytes <= MOST_OF_ONE) else { return Parked::Not };
        let most = (near / PART_OF_NEAR).min(MOST) as usize;
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > most || !sizes.park(start, bytes) {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Parked::Not;
        }
        let word = Block { start, bytes }.word();
        let set = self.set(thread);
        // Release: pairs with the Acquire in `take` of the next owner.
        let is_empty =
            |slot: &AtomicU64| slot.compare_exchange(0, word, Ordering::Release, Ordering::Relaxed).is_ok();
        if set.iter().any(is_empty) {
            return Parked::Alone;
        }
        // Blocks of sizes that nobody asks for any more must not stay for ever.
        let slot = &set[(start >> 16) % SLOTS];
        // Acquire: the block that leaves is this thread's now.
        let before = slot.swap(word, Ordering::AcqRel);
        let Some(before) = Block::of(before) else { return Parked::Alone };
        self.bytes.fetch_sub(before.bytes, Ordering::Relaxed);
        sizes.unpark(before.start);
        Parked::InsteadOf(before.start)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use atoll_memory::layout;

    use super::*;

    const K: usize = 1 << 10;

    #[test]
    fn a_block_that_was_freed_is_allocated_again() {
        let (places, sizes) = (Places::new(), Sizes::new());
        let block = layout::ARENA + 64 * K;
        sizes.enter(block, 64 * K);
        assert_eq!(places.park(&sizes, 1, block, u64::MAX), Parked::Alone);
        assert_eq!(places.park(&sizes, 1, block, u64::MAX), Parked::Not, "it is freed twice");
        assert_eq!(places.take(&sizes, 1, 65 * K, 16), None);
        assert_eq!(places.take(&sizes, 1, 48 * K, 16), None, "too much of it would be unused");
        assert_eq!(places.take(&sizes, 1, 64 * K, 1 << 20), None);
        assert_eq!(places.take(&sizes, 1, 60 * K, 16), Some(block));
        assert_eq!((places.take(&sizes, 1, 60 * K, 16), sizes.of(block)), (None, Some(64 * K)));
    }

    #[test]
    fn parked_blocks_take_a_small_part_of_near_memory() {
        let (places, sizes) = (Places::new(), Sizes::new());
        let blocks: Vec<usize> = (0..8).map(|n| layout::ARENA + n * 64 * K).collect();
        blocks.iter().for_each(|block| sizes.enter(*block, 64 * K));
        let parked = |near: usize| {
            let is_parked = |block: &&usize| places.park(&sizes, 1, **block, near as u64) == Parked::Alone;
            blocks.iter().filter(is_parked).count()
        };
        assert_eq!((parked(1024 * K), parked(4096 * K)), (0, 2));
        // What has no room in its slots takes the place of another.
        let left: Vec<Parked> =
            blocks[2..].iter().map(|block| places.park(&sizes, 1, *block, u64::MAX)).collect();
        assert_eq!(left.iter().filter(|parked| **parked == Parked::Alone).count(), 2);
        assert_eq!(left.iter().filter(|parked| matches!(parked, Parked::InsteadOf(_))).count(), 4);
        assert_eq!(places.bytes.load(Ordering::Relaxed), SLOTS * 64 * K);
    }

    #[test]
    fn no_two_threads_get_one_block() {
        const BLOCKS: usize = 12;
        let (places, sizes) = (Places::new(), Sizes::new());
        let owned: [AtomicU32; BLOCKS] = [const { AtomicU32::new(1) }; BLOCKS];
        let block = |n: usize| layout::ARENA + n * 64 * K;
        (0..BLOCKS).for_each(|n| sizes.enter(block(n), 64 * K));
        std::thread::scope(|s| {
            for thread in 0..4 {
                let (places, sizes, owned) = (&places, &sizes, &owned);
                s.spawn(move || {
                    let mut mine: Vec<usize> = (thread * 3..thread * 3 + 3).map(block).collect();
                    for round in 0..20_000 {
                        if round % 3 != 0
                            && let Some(start) = mine.pop()
                        {
                            owned[(start - layout::ARENA) / (64 * K)].fetch_sub(1, Ordering::Relaxed);
                            match places.park(sizes, 1, start, u64::MAX) {
                                Parked::Alone => continue,
                                Parked::InsteadOf(other) => mine.push(other),
                                Parked::Not => mine.push(start),
                            }
                        } else if let Some(start) = places.take(sizes, 1, 64 * K, 16) {
                            mine.push(start);
                        } else {
                            continue;
                        }
                        let got = mine[mine.len() - 1];
                        let before = owned[(got - layout::ARENA) / (64 * K)].fetch_add(1, Ordering::Relaxed);
                        assert_eq!(before, 0, "somebody else has the block");
                    }
                });
            }
        });
    }
}
