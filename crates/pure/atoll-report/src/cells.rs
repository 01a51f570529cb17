//! Counts samples by memory, time, worker and access, in bounded room. Heatmaps and histograms are made from these counts.
//!
//! The analysis of a profile fills the cells in one pass; `heat` and `pages` read them in order. Keys of a few million samples
//! are sorted and merged into the earlier ones. Where the cells grow too large, times are halved, then pages are joined to
//! blocks (as the figures of Roca Nonell and others, MCHPC'18, join four), and the report says so.

/// The most columns of time.
pub(crate) const TIMES: u32 = 512;
/// The number of columns of time below which pages are joined instead.
const LEAST_TIMES: u32 = 64;

/// The number of bits of each part of a key, the last part first.
const ACCESS: u32 = 1;
const WORKER: u32 = 16;
const TIME: u32 = 10;
const PAGE: u32 = 52;
const VARIABLE: u32 = 24;
const SPACE: u32 = 12;

/// The variable of memory that is not known.
pub(crate) const NOWHERE: u32 = (1 << VARIABLE) - 1;

/// A cell, which samples are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    /// The number of the address space, in the order in which spaces were met.
    pub(crate) space: u32,
    /// An index of the profile's variables, or [`NOWHERE`].
    pub(crate) variable: u32,
    /// The block of pages: its address divided by [`Cells::block_bytes`].
    pub(crate) page: u64,
    /// The column of time, below [`Cells::times`].
    pub(crate) time: u32,
    /// An index of the profile's workers.
    pub(crate) worker: u32,
    /// Whether the access wrote.
    pub(crate) write: bool,
}

fn part(value: u64, bits: u32) -> u128 {
    u128::from(value.min((1 << bits) - 1))
}

impl Cell {
    fn key(self) -> u128 {
        let mut key = part(u64::from(self.variable), VARIABLE);
        key = key << SPACE | part(u64::from(self.space), SPACE);
        key = key << PAGE | part(self.page, PAGE);
        key = key << TIME | part(u64::from(self.time), TIME);
        key = key << WORKER | part(u64::from(self.worker), WORKER);
        key << ACCESS | u128::from(self.write)
    }

    fn of(mut key: u128) -> Self {
        let mut take = |bits: u32| {
            let value = (key & ((1 << bits) - 1)) as u64;
            key >>= bits;
            value
        };
        let write = take(ACCESS) == 1;
        let worker = take(WORKER) as u32;
        let time = take(TIME) as u32;
        let page = take(PAGE);
        let space = take(SPACE) as u32;
        Self { space, variable: take(VARIABLE) as u32, page, time, worker, write }
    }
}

/// Counts by cell.
#[derive(Debug)]
pub(crate) struct Cells {
    /// The bytes of a block: a page, or several.
    pub(crate) block_bytes: u64,
    /// The number of columns of time.
    pub(crate) times: u32,
    keys: Vec<u128>,
    counts: Vec<u32>,
    fresh: Vec<u128>,
    most: usize,
    most_fresh: usize,
    /// The number of times that blocks were doubled, and that times were halved.
    doubled: u32,
    halved: u32,
}

impl Cells {
    /// Makes cells for pages of `page_bytes`.
    pub(crate) fn new(page_bytes: u64) -> Self {
        Self::bounded(page_bytes, 4 << 20, 1 << 20)
    }

    fn bounded(page_bytes: u64, most: usize, most_fresh: usize) -> Self {
        let (keys, counts, fresh) = Default::default();
        let block_bytes = page_bytes.max(1);
        Self { block_bytes, times: TIMES, keys, counts, fresh, most, most_fresh, doubled: 0, halved: 0 }
    }

    /// Counts one sample; `page` counts in pages, and `time` is below [`TIMES`].
    pub(crate) fn add(&mut self, cell: Cell) {
        let cell = Cell { page: cell.page >> self.doubled, time: cell.time >> self.halved, ..cell };
        self.fresh.push(cell.key());
        if self.fresh.len() >= self.most_fresh {
            self.merge();
        }
    }

    /// Merges what is left; call this after the last sample.
    pub(crate) fn finish(&mut self) {
        self.merge();
        self.fresh = Vec::new();
    }

    /// Returns all counts, ordered by variable, space, page, time, worker.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Cell, u32)> + Clone + '_ {
        self.range(0, self.keys.len())
    }

    /// Returns the counts of one variable, in the same order.
    pub(crate) fn of_variable(&self, variable: u32) -> impl Iterator<Item = (Cell, u32)> + Clone + '_ {
        let before = |variable: u32| self.keys.partition_point(|key| Cell::of(*key).variable < variable);
        self.range(before(variable), before(variable + 1))
    }

    fn range(&self, from: usize, to: usize) -> impl Iterator<Item = (Cell, u32)> + Clone + '_ {
        self.keys[from..to].iter().map(|key| Cell::of(*key)).zip(self.counts[from..to].iter().copied())
    }

    fn merge(&mut self) {
        self.fresh.sort_unstable();
        // This merges from the end, in place: there is much to merge, and allocating and freeing memory each time costs more.
        let (mut old, mut fresh) = (self.keys.len(), self.fresh.len());
        let mut to = old + fresh;
        self.keys.resize(to, 0);
        self.counts.resize(to, 1);
        while fresh > 0 {
            to -= 1;
            if old > 0 && self.keys[old - 1] > self.fresh[fresh - 1] {
                old -= 1;
                (self.keys[to], self.counts[to]) = (self.keys[old], self.counts[old]);
            } else {
                fresh -= 1;
                (self.keys[to], self.counts[to]) = (self.fresh[fresh], 1);
            }
        }
        self.fresh.clear();
        self.add_up();
        while self.keys.len() > self.most && self.coarsen() {}
    }

    /// Joins cells; returns `false` where no more can be joined.
    fn coarsen(&mut self) -> bool {
        if self.times > LEAST_TIMES {
            (self.times, self.halved) = (self.times / 2, self.halved + 1);
        } else if self.doubled < 20 {
            (self.block_bytes, self.doubled) = (self.block_bytes.saturating_mul(2), self.doubled + 1);
        } else {
            return false;
        }
        let halve_time = self.doubled == 0;
        let mut cells: Vec<(u128, u32)> = std::mem::take(&mut self.keys)
            .into_iter()
            .map(|key| {
                let cell = Cell::of(key);
                let cell = if halve_time {
                    Cell { time: cell.time / 2, ..cell }
                } else {
                    Cell { page: cell.page / 2, ..cell }
                };
                cell.key()
            })
            .zip(std::mem::take(&mut self.counts))
            .collect();
        cells.sort_unstable();
        (self.keys, self.counts) = cells.into_iter().unzip();
        self.add_up();
        true
    }

    /// Adds up the counts of one key, which lie side by side.
    fn add_up(&mut self) {
        let mut end = 0;
        for from in 0..self.keys.len() {
            let (key, count) = (self.keys[from], self.counts[from]);
            if end > 0 && self.keys[end - 1] == key {
                self.counts[end - 1] = self.counts[end - 1].saturating_add(count);
            } else {
                (self.keys[end], self.counts[end]) = (key, count);
                end += 1;
            }
        }
        self.keys.truncate(end);
        self.counts.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn cell(page: u64, time: u32, worker: u32) -> Cell {
        Cell { space: 0, variable: 3, page, time, worker, write: page.is_multiple_of(3) }
    }

    #[test]
    fn the_parts_of_a_key_come_back() {
        let most = Cell {
            space: 4095,
            variable: NOWHERE,
            page: (1 << 52) - 1,
            time: 1023,
            worker: 65535,
            write: true,
        };
        assert_eq!(Cell::of(most.key()), most);
        let least = Cell { space: 0, variable: 0, page: 0, time: 0, worker: 0, write: false };
        assert_eq!(Cell::of(least.key()), least);
    }

    #[test]
    fn a_variables_cells_are_found() {
        let mut cells = Cells::new(4096);
        for variable in [7, 3, 3, 9] {
            cells.add(Cell { variable, ..cell(u64::from(variable), 0, 0) });
        }
        cells.finish();
        assert_eq!(cells.of_variable(3).map(|(c, n)| (c.page, n)).collect::<Vec<_>>(), [(3, 2)]);
        assert_eq!(cells.of_variable(4).count(), 0);
    }

    #[test]
    fn what_does_not_fit_is_joined_and_none_is_lost() {
        let mut cells = Cells::bounded(4096, 1000, 64);
        for i in 0..10_000u64 {
            cells.add(cell(i * 7919 % 5000, (i % 512) as u32, (i % 2) as u32));
        }
        cells.finish();
        assert!(cells.keys.len() <= 1000, "{}", cells.keys.len());
        assert_eq!(cells.iter().map(|(_, n)| u64::from(n)).sum::<u64>(), 10_000);
        assert!(cells.block_bytes > 4096 && cells.times == LEAST_TIMES);
        assert!(cells.iter().all(|(c, _)| c.page * cells.block_bytes / 4096 < 5000 && c.time < LEAST_TIMES));
    }

    proptest! {
        #[test]
        fn counts_are_those_of_a_map(samples in proptest::collection::vec((0u64..40, 0u32..8, 0u32..3), 0..400)) {
            let mut cells = Cells::bounded(4096, 1 << 20, 16);
            let mut map = BTreeMap::new();
            for &(page, time, worker) in &samples {
                cells.add(cell(page, time, worker));
                *map.entry(cell(page, time, worker).key()).or_insert(0u32) += 1;
            }
            cells.finish();
            let got: Vec<(u128, u32)> = cells.iter().map(|(c, n)| (c.key(), n)).collect();
            prop_assert_eq!(got, map.into_iter().collect::<Vec<_>>());
        }
    }
}
