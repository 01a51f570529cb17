//! The pages around one page that are treated with it: mapped together, and evicted together.
//!
//! Both the pager of `atoll-memory` and the simulator (`atoll-machine`) map the rest of a page's [`block`] with it, and
//! [`victims`](crate::victims) walks over the block for evictions. Numbers are those of [`pacing`](crate::pacing).

use core::ops::RangeInclusive;

use crate::pacing::BLOCK;
use crate::policy::Wants;

/// How many pages beside a page a walk took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Around {
    /// Pages directly below it.
    pub below: u64,
    /// Pages directly above it.
    pub above: u64,
}

/// The block that `page` lies in: [`BLOCK`] pages, aligned.
pub fn block(page: u64) -> RangeInclusive<u64> {
    let mask = u64::from(BLOCK) - 1;
    page & !mask..=page | mask
}

/// Walks over the block of `page`: upwards from the page as long as `take` says yes, then downwards.
#[inline]
pub fn walk(page: u64, mut take: impl FnMut(u64) -> bool) -> Around {
    let block = block(page);
    let above = (page + 1..=*block.end()).take_while(|&neighbour| take(neighbour)).count() as u64;
    let below = (*block.start()..page).rev().take_while(|&neighbour| take(neighbour)).count() as u64;
    Around { below, above }
}

/// Whether a page that is near already is mapped with its neighbours, so that their first uses by this worker cost no fault each.
/// A policy that wants exact core-map counts forbids it where near memory is limited, and so does sampling by faults, which wants to
/// see each page's first use. Larger pages are mapped one by one.
pub fn are_mapped_together(page_shift: u32, is_limited: bool, is_sampled: bool, wants: Wants) -> bool {
    page_shift == 12 && !is_sampled && !(is_limited && wants.exact_counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_stays_in_its_block_and_ends_at_the_first_refusal() {
        assert_eq!(block(37), 32..=47);
        assert_eq!(walk(37, |_| true), Around { below: 5, above: 10 });
        assert_eq!(walk(37, |page| page != 35 && page != 40), Around { below: 1, above: 2 });
        assert_eq!((walk(32, |_| true).below, walk(47, |_| true).above), (0, 0));
        let mut seen = std::vec::Vec::new();
        walk(45, |page| {
            seen.push(page);
            page > 43
        });
        assert_eq!(seen, [46, 47, 44, 43]);
    }

    #[test]
    fn exact_counts_forbid_to_map_neighbours_only_under_a_limit() {
        let exact = Wants { exact_counts: true, ..Wants::NOTHING };
        assert!(are_mapped_together(12, true, false, Wants::NOTHING));
        assert!(are_mapped_together(12, false, false, exact));
        assert!(!are_mapped_together(12, true, false, exact));
        assert!(!are_mapped_together(12, false, true, Wants::NOTHING));
        assert!(!are_mapped_together(16, false, false, Wants::NOTHING));
    }
}
