//! Freed pages that stay as they are, so that the next block of the program's gets them without a fault.
//!
//! Used by `large`, under its lock. Programs that allocate their temporary arrays in every step pay for their pages once. So do programs that glibc's
//! `malloc` makes pay each time, as it gives blocks of more than 32 MiB back to the kernel (`DEFAULT_MMAP_THRESHOLD_MAX`). Fewer freed pages stay where
//! the live blocks leave near memory little room, as each of them takes the place of a page in use.
//!
//! Every whole page of a free extent reads as zeros, or is in this set.

use std::collections::BTreeMap;

/// Bytes that are kept at least where near memory has room: a program that freed all but a little goes on with as many.
const MANY: usize = 256 << 20;
/// The part of the live blocks' bytes, one in this number, that is kept where that is more.
const PART_OF_LIVE: usize = 2;
/// The part of near memory, one in this number, that is kept once near memory is used up.
const PART_OF_NEAR: u64 = 8;

/// Bytes that may stay where live blocks have `live` bytes, touched or not, and near memory is `near` bytes and used up or not.
pub(super) fn most(near: u64, is_full: bool, live: usize) -> usize {
    let at_least = (near / PART_OF_NEAR).min(MANY as u64) as usize;
    if is_full {
        return at_least;
    }
    let room = usize::try_from(near.saturating_sub(live as u64)).unwrap_or(usize::MAX);
    room.min(MANY.max(live / PART_OF_LIVE)).max(at_least)
}

/// Stretches of free pages that hold what a block left in them: start address → end address. No two of them overlap.
pub(super) struct Stale {
    stretches: BTreeMap<usize, usize>,
    bytes: usize,
}

impl Stale {
    pub(super) const fn new() -> Stale {
        Stale { stretches: BTreeMap::new(), bytes: 0 }
    }

    /// The bytes of all stretches.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Enters `start..end`, whole pages that may be in the set in part; nothing where that is empty.
    pub(super) fn add(&mut self, start: usize, end: usize) {
        if start >= end {
            return;
        }
        let (mut from, mut to) = (start, end);
        // Stretches that touch become one.
        while let Some((s, e)) = self.last_before(to + 1)
            && e >= from
        {
            self.remove(s, e);
            (from, to) = (from.min(s), to.max(e));
        }
        self.insert(from, to);
    }

    /// Takes out a stretch that shares pages of `page` bytes with `start..end`: the part of it that does, whole pages. `None` if there
    /// is no more.
    pub(super) fn take(&mut self, start: usize, end: usize, page: usize) -> Option<(usize, usize)> {
        let (start, end) = (start & !(page - 1), end.checked_next_multiple_of(page).unwrap_or(usize::MAX));
        let (s, e) = self.last_before(end)?;
        if e <= start || start >= end {
            return None;
        }
        self.remove(s, e);
        let (from, to) = (s.max(start), e.min(end));
        if s < from {
            self.insert(s, from);
        }
        if to < e {
            self.insert(to, e);
        }
        Some((from, to))
    }

    /// The last stretch that begins below `end`.
    fn last_before(&self, end: usize) -> Option<(usize, usize)> {
        self.stretches.range(..end).next_back().map(|(s, e)| (*s, *e))
    }

    fn insert(&mut self, start: usize, end: usize) {
        self.stretches.insert(start, end);
        self.bytes += end - start;
    }

    fn remove(&mut self, start: usize, end: usize) {
        self.stretches.remove(&start);
        self.bytes -= end - start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_what_was_added_and_not_taken_before() {
        const PAGE: usize = 4096;
        let mut stale = Stale::new();
        let mut is_stale = [false; 64];
        let mut random = 88_172_645_463_325_252u64;
        let mut next = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random as usize % below
        };
        for _ in 0..20_000 {
            let from = next(64);
            let to = (from + next(12)).min(64);
            if next(2) == 0 {
                stale.add(from * PAGE, to * PAGE);
                is_stale[from..to].fill(true);
            } else {
                let mut taken = [false; 64];
                // Bounds inside pages take the whole pages.
                let inside = usize::from(from < to) * next(PAGE);
                let range = (from * PAGE + inside, (to * PAGE).saturating_sub(usize::from(inside > 0)));
                let range = if from < to { range } else { (from * PAGE, from * PAGE) };
                while let Some((s, e)) = stale.take(range.0, range.1, PAGE) {
                    assert!(s < e && s.is_multiple_of(PAGE) && e.is_multiple_of(PAGE));
                    taken[s / PAGE..e / PAGE].fill(true);
                }
                for page in 0..64 {
                    let asked = (from..to).contains(&page);
                    assert_eq!(taken[page], asked && is_stale[page], "page {page} of {from}..{to}");
                    is_stale[page] &= !asked;
                }
            }
            assert_eq!(stale.bytes(), is_stale.iter().filter(|s| **s).count() * PAGE);
        }
    }

    #[test]
    fn as_much_is_kept_as_live_blocks_leave_room_for() {
        const G: usize = 1 << 30;
        // Near memory without a limit: half of what is live, and 256 MiB at least.
        assert_eq!((most(u64::MAX, false, 4 * G), most(u64::MAX, false, 0)), (2 * G, MANY));
        // Live blocks that near memory has little or no room beside.
        assert_eq!((most(2 * G as u64, false, G + G / 2), most(2 * G as u64, false, 4 * G)), (G / 2, MANY));
        // Near memory that is used up.
        assert_eq!((most(80 << 20, true, 0), most(u64::MAX, true, 4 * G)), (10 << 20, MANY));
    }
}
