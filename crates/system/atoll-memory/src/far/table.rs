//! One 64-bit word for each page (or block) of a huge range, in memory only where words were ever set.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.

use std::ops::Range;
use std::sync::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use super::FarError;
use super::shared::Mapping;

/// Words in one base page.
const GROUP: u64 = 512;

/// A sparse array of words, zero at first. A bit per base page of words says whether that page was ever
/// written: a read of a shared mapping would otherwise bring the page into being, and a discard of the whole
/// arena would fill the table.
pub(crate) struct Table {
    words: Mapping,
    touched: Mapping,
    len: u64,
}

impl Table {
    /// A table of `len` words.
    pub(crate) fn new(len: u64) -> Result<Self, FarError> {
        let words = Mapping::new(len.saturating_mul(8), c"atoll far table", false)?;
        let touched = Mapping::new(len.div_ceil(GROUP).div_ceil(64) * 8, c"atoll far table map", false)?;
        Ok(Self { words, touched, len })
    }

    fn map_word(&self, group: u64) -> &AtomicU64 {
        self.touched.get((group / 64 * 8) as usize)
    }

    /// The word of `index`; 0 where none was set.
    pub(crate) fn load(&self, index: u64) -> u64 {
        let group = index / GROUP;
        if index >= self.len || self.map_word(group).load(Relaxed) >> (group % 64) & 1 == 0 {
            return 0;
        }
        // Pairs with Release stores through `word`: who sees an entry sees the bytes it points to.
        self.words.get::<AtomicU64>((index * 8) as usize).load(Acquire)
    }

    /// The word of `index`, to change it. The caller checked the range.
    pub(crate) fn word(&self, index: u64) -> &AtomicU64 {
        let group = index / GROUP;
        let (map, bit) = (self.map_word(group), 1 << (group % 64));
        if map.load(Relaxed) & bit == 0 {
            map.fetch_or(bit, Relaxed);
        }
        self.words.get((index * 8) as usize)
    }

    /// Changes the word of `index` from `from` to `to`; `false` if it is another one. The caller checked the range.
    pub(crate) fn change(&self, index: u64, from: u64, to: u64) -> bool {
        self.word(index).compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }

    pub(crate) fn set(&self, index: u64, value: u64) {
        // Pairs with the Acquire in `load`.
        self.word(index).store(value, Release);
    }

    /// The first word of the range that is not zero, as far as words were ever set.
    pub(crate) fn next(&self, range: Range<u64>) -> Option<u64> {
        let end = range.end.min(self.len);
        let mut index = range.start;
        while index < end {
            let group = index / GROUP;
            let map = self.map_word(group).load(Relaxed) >> (group % 64);
            if map == 0 {
                // No group in the rest of this map word: 32,768 pages in one step.
                index = (group / 64 + 1) * 64 * GROUP;
                continue;
            }
            if map & 1 == 0 {
                index = (group + u64::from(map.trailing_zeros())) * GROUP;
                continue;
            }
            let group_end = ((group + 1) * GROUP).min(end);
            let found = (index..group_end)
                .find(|&i| self.words.get::<AtomicU64>((i * 8) as usize).load(Acquire) != 0);
            if found.is_some() {
                return found;
            }
            index = group_end;
        }
        None
    }

    /// Calls `see` with each word of the range that is not zero, in order.
    pub(crate) fn visit(&self, range: Range<u64>, mut see: impl FnMut(u64, &AtomicU64)) {
        let mut from = range.start;
        while let Some(index) = self.next(from..range.end) {
            see(index, self.words.get((index * 8) as usize));
            from = index + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_sees_exactly_the_words_set() {
        let table = Table::new(1 << 31).unwrap();
        let set = [0, 1, 511, 512, 40_000, 1 << 20, (1 << 31) - 1];
        for i in set {
            table.set(i, i + 7);
        }
        let mut seen = Vec::new();
        table.visit(0..u64::MAX, |i, w| seen.push((i, w.load(Relaxed))));
        assert_eq!(seen, set.map(|i| (i, i + 7)));
        seen.clear();
        table.visit(1..512, |i, w| seen.push((i, w.load(Relaxed))));
        assert_eq!(seen, [(1, 8), (511, 518)]);
        assert_eq!(table.load(513), 0);
        assert_eq!(table.load(1 << 40), 0);
    }
}
