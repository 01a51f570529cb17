//! Every page the program touched: where it is, who maps it, who ever did.
//!
//! [`engine`](crate::engine) keeps its page tables here. A page has a small number of its own, found through a dense
//! two-level table, so nothing is hashed. Core maps are words of 64 workers (`papers/cmcp.txt`, section 2.3).

use atoll_pages::Habit;
use atoll_pages::core_map::words_for;

/// Pages of user space: 47 bits of address.
pub(crate) const MAX_PAGE: u64 = 1 << 35;

const LEAF_BITS: u32 = 15;
const LEAF: usize = 1 << LEAF_BITS;
const NOWHERE: u32 = u32::MAX;

/// Numbers of pages by the number of their 4K page, 64K page or whatever the caller counts in.
#[derive(Debug, Default)]
pub(crate) struct Index {
    top: Vec<u32>,
    leaves: Vec<u32>,
}

impl Index {
    /// The entry of `unit`, below [`MAX_PAGE`]; `None` if it never had one.
    #[inline]
    pub(crate) fn get(&self, unit: u64) -> Option<u32> {
        let leaf = *self.top.get((unit >> LEAF_BITS) as usize)?;
        if leaf == NOWHERE {
            return None;
        }
        let id = self.leaves[leaf as usize * LEAF + (unit as usize & (LEAF - 1))];
        (id != NOWHERE).then_some(id)
    }

    /// Sets it.
    pub(crate) fn set(&mut self, unit: u64, id: u32) {
        let at = (unit >> LEAF_BITS) as usize;
        if self.top.len() <= at {
            self.top.resize(at + 1, NOWHERE);
        }
        if self.top[at] == NOWHERE {
            self.top[at] = (self.leaves.len() / LEAF) as u32;
            self.leaves.resize(self.leaves.len() + LEAF, NOWHERE);
        }
        self.leaves[self.top[at] as usize * LEAF + (unit as usize & (LEAF - 1))] = id;
    }

    /// The entries of `units` that have one, in order; whole leaves without any cost nothing.
    pub(crate) fn within(&self, units: std::ops::Range<u64>) -> Vec<u32> {
        let mut found = Vec::new();
        let mut unit = units.start;
        while unit < units.end {
            let end = ((unit >> LEAF_BITS) + 1) << LEAF_BITS;
            match self.top.get((unit >> LEAF_BITS) as usize) {
                None => break,
                Some(&NOWHERE) => {}
                Some(_) => found.extend((unit..end.min(units.end)).filter_map(|unit| self.get(unit))),
            }
            unit = end;
        }
        found
    }
}

/// A page that is in no frame.
pub(crate) const FAR: u32 = u32::MAX;

/// One page.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    /// Its frame, or [`FAR`].
    pub(crate) frame: u32,
    /// What the policy wants to know again when it returns.
    pub(crate) token: Option<u32>,
    /// When its last transfer is complete, in picoseconds.
    pub(crate) ready: u64,
    /// Number of its first 4K page.
    pub(crate) first: u64,
    /// Its size: 0 for 4K, 1 for 64K, 2 for 2M.
    pub(crate) size: u8,
    /// Has it held data since it was mapped?
    pub(crate) used: bool,
    /// Written since it became resident?
    pub(crate) dirty: bool,
    /// In a shared page table: is it in there?
    pub(crate) present: bool,
    /// Was its accessed bit cleared, and no use seen since?
    pub(crate) unseen: bool,
    /// Under atoll's pager: does far memory hold it as it is, unless it is dirty?
    pub(crate) far_copy: bool,
    /// Under atoll's pager: what it is used for.
    pub(crate) habit: Habit,
}

/// All pages, and their core maps.
#[derive(Debug)]
pub(crate) struct Pages {
    /// Pages by number.
    pub(crate) all: Vec<Page>,
    words: usize,
    maps: Vec<u64>,
    /// The accessed bits of the workers' page tables.
    accessed: Vec<u64>,
    ever: Vec<u64>,
}

impl Pages {
    /// No pages, for so many workers.
    pub(crate) fn new(workers: usize) -> Self {
        let words = words_for(workers);
        Self { all: Vec::new(), words, maps: Vec::new(), accessed: Vec::new(), ever: Vec::new() }
    }

    /// A page that nobody has touched.
    pub(crate) fn add(&mut self, first: u64, size: u8) -> u32 {
        let id = self.all.len() as u32;
        let page = Page {
            frame: FAR,
            token: None,
            ready: 0,
            first,
            size,
            used: false,
            dirty: false,
            present: false,
            unseen: false,
            far_copy: false,
            habit: Habit::Read,
        };
        self.all.push(page);
        self.maps.resize(self.maps.len() + self.words, 0);
        self.accessed.resize(self.accessed.len() + self.words, 0);
        self.ever.resize(self.ever.len() + self.words, 0);
        id
    }

    /// Does `worker` map the page?
    #[inline]
    pub(crate) fn maps(&self, id: u32, worker: usize) -> bool {
        self.maps[id as usize * self.words + worker / 64] >> (worker % 64) & 1 != 0
    }

    /// Adds `worker` to the core map.
    pub(crate) fn map(&mut self, id: u32, worker: usize) {
        let from = id as usize * self.words;
        self.maps[from + worker / 64] |= 1 << (worker % 64);
        self.ever[from + worker / 64] |= 1 << (worker % 64);
    }

    /// `worker` walks to the page, which sets the accessed bit of its entry.
    #[inline]
    pub(crate) fn access(&mut self, id: u32, worker: usize) {
        self.accessed[id as usize * self.words + worker / 64] |= 1 << (worker % 64);
    }

    /// Clears the accessed bits, and hands the workers over in `into` that had theirs set.
    pub(crate) fn take_accessed(&mut self, id: u32, into: &mut [u64]) {
        let accessed = &mut self.accessed[id as usize * self.words..(id as usize + 1) * self.words];
        into.copy_from_slice(accessed);
        accessed.fill(0);
    }

    /// The number of workers in the core map.
    pub(crate) fn count(&self, id: u32) -> u32 {
        self.map_of(id).iter().map(|word| word.count_ones()).sum()
    }

    /// The core map.
    pub(crate) fn map_of(&self, id: u32) -> &[u64] {
        &self.maps[id as usize * self.words..(id as usize + 1) * self.words]
    }

    /// Empties the core map and hands it over in `into`, which has as many words.
    pub(crate) fn take_map(&mut self, id: u32, into: &mut [u64]) {
        let map = &mut self.maps[id as usize * self.words..(id as usize + 1) * self.words];
        into.copy_from_slice(map);
        map.fill(0);
        self.accessed[id as usize * self.words..(id as usize + 1) * self.words].fill(0);
    }

    /// Words of a core map.
    pub(crate) fn words(&self) -> usize {
        self.words
    }

    /// How many pages have been used by one worker, by two and so on: entry `n` counts the pages of `n` workers
    /// (`papers/cmcp.txt`, figure 6).
    pub(crate) fn distribution(&self) -> Vec<u64> {
        self.distribution_where(|_| true)
    }

    /// The same, of some pages.
    pub(crate) fn distribution_where(&self, counts: impl Fn(&Page) -> bool) -> Vec<u64> {
        let mut pages = Vec::new();
        for (_, map) in self.all.iter().zip(self.ever.chunks(self.words)).filter(|(page, _)| counts(page)) {
            let count = map.iter().map(|word| word.count_ones()).sum::<u32>() as usize;
            if pages.len() <= count {
                pages.resize(count + 1, 0);
            }
            pages[count] += 1;
        }
        pages
    }
}

/// The workers in a core map, in order.
pub(crate) fn members(map: &[u64]) -> impl Iterator<Item = usize> + '_ {
    map.iter().enumerate().flat_map(|(index, &bits)| {
        std::iter::successors(Some(bits), |bits| Some(bits & bits.wrapping_sub(1)))
            .take_while(|bits| *bits != 0)
            .map(move |bits| index * 64 + bits.trailing_zeros() as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_found_by_their_number() {
        let mut index = Index::default();
        assert_eq!((index.get(0), index.get(MAX_PAGE)), (None, None));
        for (unit, id) in [(5, 0), (40_000, 1), (5_000_000, 2)] {
            index.set(unit, id);
        }
        assert_eq!((index.get(5), index.get(6), index.get(5_000_000)), (Some(0), None, Some(2)));
        assert_eq!(index.within(6..MAX_PAGE), [1, 2]);
        assert_eq!(index.within(0..40_000), [0]);
    }

    #[test]
    fn core_maps_have_room_for_every_worker() {
        let mut pages = Pages::new(130);
        let id = pages.add(7, 0);
        for (worker, count) in [(129, 1), (0, 2), (129, 2)] {
            pages.map(id, worker);
            assert_eq!(pages.count(id), count);
        }
        assert!(pages.maps(id, 129) && !pages.maps(id, 64));
        let mut map = [0; 3];
        pages.take_map(id, &mut map);
        assert!(members(&map).eq([0, 129]) && pages.map_of(id) == [0; 3]);
        assert_eq!(pages.distribution(), [0, 0, 1]);
    }
}
