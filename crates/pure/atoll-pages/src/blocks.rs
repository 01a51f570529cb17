//! Finds out where whole blocks of pages are used soon after one of their pages, so that the first faults bring the rest.
//!
//! Used by `prefetch` for faults that belong to no stream: gathers, transposes and walks over structures visit the pages of a block in no
//! order, and would have a fault for each. The idea is the density prefetcher of graphics processors' managed memory, with a check
//! of whether it pays.
//!
//! * Each block in which a page faulted lately has an entry: which of its pages did. The fourth page makes it *dense*; an entry that gives
//!   way before that was *sparse*. To bring a block costs about as much as four single pages.
//! * Each area of 2M has a score, of dense and sparse blocks. The higher it is, the sooner the rest of a block is brought: at its fourth
//!   fault, at the second, at the first. One in eight blocks is always brought by single pages: it shows whether it would be dense.

use crate::neighbours::block;
use crate::pacing::BLOCK;
use crate::prefetch::Direction;

/// Entries of blocks; a power of two.
const ENTRIES: usize = 512;
/// Scores of areas; a power of two. Areas that are a multiple of it apart share one.
const AREAS: usize = 256;
/// Blocks of an area: 2M of 4K pages.
const AREA: u32 = 32;
/// Pages that make a block dense.
const DENSE_PAGES: u32 = 4;
/// What dense and sparse blocks are worth, and the lowest and the highest score. An area of which nothing is known has 0.
const DENSE: i8 = 2;
const SPARSE: i8 = 1;
const LEAST: i8 = -4;
const MOST: i8 = 20;
/// The scores from which the fourth, the second and the first fault bring the rest.
const FOURTH: i8 = 2;
const SECOND: i8 = 6;
const FIRST: i8 = 12;
/// One of so many blocks is brought by single pages, whatever the score.
const TRIED: u16 = 8;

/// A block with faults lately.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The lower bits of the block's number ([`NUMBER`]), and whether it is [`OPEN`] and [`SINGLY`].
    block: u32,
    /// The lower bits of the number of its first fault. An entry that is taken for a newer one does little harm.
    fault: u16,
    /// Which of its pages faulted, a bit each; 0: no block.
    pages: u16,
}

/// In an entry: the bits of the block's number; the block is still to become dense or sparse; it is brought by single pages.
const NUMBER: u32 = OPEN - 1;
const OPEN: u32 = 1 << 30;
const SINGLY: u32 = 1 << 31;

/// The blocks of one worker's faults. Its size is fixed, it holds no address, and every state of it is valid, so it may lie in shared
/// memory.
#[derive(Debug)]
pub(crate) struct Blocks {
    entries: [Entry; ENTRIES],
    scores: [i8; AREAS],
    faults: u16,
    /// Faults after which a block's first one no longer counts.
    reach: u16,
}

/// What comes with a page that faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coming {
    /// Nothing: the page comes alone.
    Alone,
    /// The whole block. A sweep would go on in this direction.
    Whole(Direction),
}

impl Blocks {
    /// Of a worker that has had no fault, in near memory of no frames: all of it zeros.
    pub(crate) const ZERO: Blocks = Blocks {
        entries: [Entry { block: 0, fault: 0, pages: 0 }; ENTRIES],
        scores: [0; AREAS],
        faults: 0,
        reach: 0,
    };

    /// Sets the size of near memory in pages. What is brought must not leave before it is used.
    pub(crate) const fn set_frames(&mut self, frames: u64) {
        let reach = frames / (4 * BLOCK as u64);
        self.reach = if reach > 2 * ENTRIES as u64 { 2 * ENTRIES as u16 } else { reach as u16 };
    }

    /// Whether blocks of the area of `page` come whole at their first fault.
    pub(crate) fn come_whole(&self, page: u64) -> bool {
        self.scores[area(number(page))] >= FIRST
    }

    /// The worker faulted on `page`, which is in no stream.
    pub(crate) fn fault(&mut self, page: u64) -> Coming {
        self.faults = self.faults.wrapping_add(1);
        let number = number(page);
        // Neighbouring blocks, and those a power of two apart, get different entries.
        let place = (number ^ number >> 9 ^ number >> 18) as usize % ENTRIES;
        let seen = self.entries[place];
        if seen.block & NUMBER != number || self.faults.wrapping_sub(seen.fault) > self.reach {
            self.close(seen);
            let singly = if self.faults.is_multiple_of(TRIED) { SINGLY } else { 0 };
            self.entries[place] = Entry { block: number | OPEN | singly, fault: self.faults, pages: 0 };
        }
        let entry = &mut self.entries[place];
        let before = entry.pages;
        entry.pages |= 1 << (page % u64::from(BLOCK));
        let count = entry.pages.count_ones();
        let score = &mut self.scores[area(number)];
        if entry.block & OPEN != 0 && count >= DENSE_PAGES {
            entry.block &= !OPEN;
            *score = (*score + DENSE).min(MOST);
        }
        let least = match count {
            // The same page again: it left, and tells nothing about the others.
            _ if before == entry.pages => return Coming::Alone,
            _ if entry.block & SINGLY != 0 && count < DENSE_PAGES => return Coming::Alone,
            1 => FIRST,
            2..DENSE_PAGES => SECOND,
            _ => FOURTH,
        };
        if *score < least {
            return Coming::Alone;
        }
        entry.block &= !OPEN;
        let bit = 1 << (page % u64::from(BLOCK));
        let downwards = before > bit || before == 0 && page == *block(page).end();
        Coming::Whole(if downwards { Direction::Backward } else { Direction::Forward })
    }

    /// An entry gives way.
    fn close(&mut self, entry: Entry) {
        if entry.block & OPEN != 0 {
            let score = &mut self.scores[area(entry.block & NUMBER)];
            *score = (*score - SPARSE).max(LEAST);
        }
    }
}

fn number(page: u64) -> u32 {
    (page / u64::from(BLOCK)) as u32 & NUMBER
}

fn area(block: u32) -> usize {
    (block / AREA) as usize % AREAS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(frames: u64) -> Blocks {
        let mut blocks = Blocks::ZERO;
        blocks.set_frames(frames);
        blocks
    }

    /// Faults on `pages` in turn; how many of them bring their block.
    fn whole(blocks: &mut Blocks, pages: impl Iterator<Item = u64>) -> usize {
        pages.filter(|&page| blocks.fault(page) != Coming::Alone).count()
    }

    #[test]
    fn fourth_faults_bring_blocks_and_then_first_ones_do() {
        let mut blocks = blocks(1 << 20);
        // Four pages of each of 32 blocks, one after the other.
        let by_turns = |page: u64| (0..32).map(move |n| n * 16 + page);
        assert_eq!(whole(&mut blocks, (0..3).flat_map(|page| by_turns(page * 5))), 0);
        assert!(whole(&mut blocks, by_turns(15)) > 20);
        // Blocks that are new come at once, but for those that are tried.
        let first = whole(&mut blocks, (0..32).map(|n| (256 * 32 + n) * 16));
        assert!((27..32).contains(&first), "{first}");
    }

    #[test]
    fn visits_that_come_alone_bring_nothing() {
        let mut blocks = blocks(16 << 10);
        let mut random = 88_172_645_463_325_252u64;
        let pages = (0..200_000).map(|_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % (64 << 10)
        });
        let whole = whole(&mut blocks, pages);
        assert!(whole < 2_000, "{whole} of 200,000 random faults");
    }

    #[test]
    fn what_no_longer_comes_whole_is_left_alone_again() {
        let mut blocks = blocks(1 << 20);
        whole(&mut blocks, (0..64).flat_map(|n| (0..5).map(move |page| n * 16 + page)));
        // From now on one page of each block, again and again, at times far apart.
        let mut count = 0;
        for round in 0..200 {
            count = whole(&mut blocks, (0..64).map(|n| n * 16 + round % 16));
            whole(&mut blocks, (1 << 20..(1 << 20) + 2 * ENTRIES as u64).map(|n| n * 16));
        }
        assert_eq!(count, 0);
    }

    #[test]
    fn the_same_page_again_tells_nothing() {
        let mut blocks = blocks(1 << 20);
        assert_eq!(whole(&mut blocks, (0..10_000).map(|n| n % 64 * 16)), 0);
    }

    #[test]
    fn in_little_near_memory_nothing_is_dense() {
        let mut blocks = blocks(60);
        assert_eq!(whole(&mut blocks, (0..10_000).map(|n| n / 2 * 16 + n % 2)), 0);
    }
}
