//! A set of pages, a bit each, and how many there may be: the pages that a store holds plainly.
//!
//! Used by `ram` for pages in memory of its own, and by `auto` for pages that stay where they lie. The lanes count the pages.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::FarError;
use super::lane::Lanes;
use super::table::Table;

/// Pages of one tier.
pub(super) struct PageSet {
    bits: Table,
    lanes: Arc<Lanes>,
    /// Where the pages are counted in the lanes' memory.
    tier: usize,
    /// The most pages of the tier.
    limit: u64,
    /// Pages are named by numbers below this one.
    pages: u64,
}

/// Pages that left a set: the first one, the last one, and how many.
pub(super) struct Removed {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) count: u64,
}

impl PageSet {
    /// An empty set. Sets of the same tier count together, and each takes no page while the tier has `limit`.
    pub(super) fn new(pages: u64, lanes: Arc<Lanes>, tier: usize, limit: u64) -> Result<Self, FarError> {
        Ok(Self { bits: Table::new(pages.div_ceil(64))?, lanes, tier, limit, pages })
    }

    /// The most pages of the tier.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Adds a page, which is below the number of pages.
    ///
    /// # Errors
    /// `Full`.
    pub(super) fn add(&self, page: u64) -> Result<(), FarError> {
        let (word, bit) = (self.bits.word(page / 64), 1 << (page % 64));
        // Neighbouring pages share a word with other workers; the bit itself is the caller's.
        if word.load(Relaxed) & bit == 0 {
            self.lanes.hold(self.tier, 1, self.limit)?;
            word.fetch_or(bit, Relaxed);
        }
        Ok(())
    }

    /// The words that `count` pages from `first` on lie in, each with the bits of those pages.
    fn words(first: u64, count: u64) -> impl Iterator<Item = (u64, u64)> {
        let end = first.saturating_add(count);
        (first / 64..end.div_ceil(64)).map(move |index| {
            let base = index * 64;
            let low = u64::MAX << first.saturating_sub(base).min(63);
            let high = u64::MAX >> (base + 64).saturating_sub(end).min(63);
            (index, low & high)
        })
    }

    /// Adds `count` pages from `first` on, which are below the number of pages and none of which is in the set.
    ///
    /// # Errors
    /// `Full`; then the set is as it was.
    pub(super) fn add_all(&self, first: u64, count: u64) -> Result<(), FarError> {
        self.lanes.hold(self.tier, count, self.limit)?;
        for (index, bits) in Self::words(first, count) {
            self.bits.word(index).fetch_or(bits, Relaxed);
        }
        Ok(())
    }

    /// Whether `count` pages from `first` on are all in the set.
    pub(super) fn has_all(&self, first: u64, count: u64) -> bool {
        Self::words(first, count).all(|(index, bits)| self.bits.load(index) & bits == bits)
    }

    /// Whether the page is one of the set.
    #[inline]
    pub(super) fn has(&self, page: u64) -> bool {
        self.bits.load(page / 64) >> (page % 64) & 1 != 0
    }

    /// The first page of the set that is `from` or comes behind it.
    pub(super) fn next(&self, from: u64) -> Option<u64> {
        let own = self.bits.load(from / 64) >> (from % 64);
        if own != 0 {
            return Some(from + u64::from(own.trailing_zeros()));
        }
        let index = self.bits.next(from / 64 + 1..u64::MAX)?;
        // Another worker may have emptied the word meanwhile.
        let word = self.bits.load(index);
        (word != 0).then(|| index * 64 + u64::from(word.trailing_zeros()))
    }

    /// Removes what the set has of `count` pages from `first` on. `None` where that is nothing.
    pub(super) fn remove(&self, first: u64, count: u64) -> Option<Removed> {
        let end = first.saturating_add(count).min(self.pages);
        let mut removed = Removed { first: u64::MAX, last: 0, count: 0 };
        self.bits.visit(first / 64..end.div_ceil(64), |index, word| {
            let base = index * 64;
            let low = u64::MAX << first.saturating_sub(base).min(63);
            let high = u64::MAX >> (base + 64).saturating_sub(end).min(63);
            let gone = word.fetch_and(!(low & high), Relaxed) & low & high;
            if gone != 0 {
                removed.count += u64::from(gone.count_ones());
                removed.first = removed.first.min(base + u64::from(gone.trailing_zeros()));
                removed.last = removed.last.max(base + 63 - u64::from(gone.leading_zeros()));
            }
        });
        if removed.count == 0 {
            return None;
        }
        self.lanes.drop_held(self.tier, removed.count);
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sets_of_a_tier_share_its_limit() {
        let lanes = Lanes::new(1, 0, 0, None, 0).unwrap();
        let [one, other] = [(); 2].map(|()| PageSet::new(1000, Arc::clone(&lanes), 2, 3).unwrap());
        assert!(one.add(63).is_ok() && one.add(64).is_ok() && other.add(999).is_ok());
        assert!(matches!(other.add(5), Err(FarError::Full)) && !other.has(5));
        assert!(one.add(64).is_ok() && one.has(64) && !other.has(64));
        assert_eq!([0, 63, 64, 65].map(|from| one.next(from)), [Some(63), Some(63), Some(64), None]);
        let removed = one.remove(0, 64).unwrap();
        assert_eq!((removed.first, removed.last, removed.count), (63, 63, 1));
        assert!(one.remove(0, 64).is_none() && one.has(64) && !one.has(63));
        assert!(other.add(5).is_ok());
        assert_eq!(lanes.held(2).load(Relaxed), 3);
    }
}
