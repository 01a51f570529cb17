//! Finds what a trace touches, before anything is simulated: its footprint, and which workers share its pages.
//!
//! The commands take near limits in percent of the footprint; `papers/cmcp.txt`, figure 6, shows the distribution.

use std::ops::Range;

use atoll_pages::{MAX_WORKERS, PageSize};
use atoll_record::trace::Event;

use crate::pages::{Index, MAX_PAGE, Pages};

/// The most untouched 4K pages within an area.
const GAP: u64 = 16;

/// The result of one pass over a trace; memory is proportional to distinct pages.
#[derive(Debug)]
pub struct Survey {
    index: Index,
    pages: Pages,
    /// The page that each worker touched last: most events touch it again or one near it.
    last: Vec<(u64, u32)>,
    /// The number of events of all kinds.
    pub events: u64,
    /// The number of events that touch a page.
    pub accesses: u64,
    /// The number of instructions of all workers.
    pub instructions: u64,
}

impl Default for Survey {
    fn default() -> Self {
        Self::new()
    }
}

impl Survey {
    /// Makes an empty survey.
    pub fn new() -> Self {
        Self {
            index: Index::default(),
            pages: Pages::new(MAX_WORKERS),
            last: Vec::new(),
            events: 0,
            accesses: 0,
            instructions: 0,
        }
    }

    /// Takes the next events. Events of workers beyond [`MAX_WORKERS`] and of pages beyond user space are only counted.
    pub fn take(&mut self, events: &[Event]) {
        self.events += events.len() as u64;
        for event in events {
            match *event {
                Event::Access { worker, page, .. } => self.access(usize::from(worker), page),
                Event::Compute { instructions, .. } => {
                    self.instructions = self.instructions.saturating_add(instructions);
                }
                _ => {}
            }
        }
    }

    fn access(&mut self, worker: usize, page: u64) {
        self.accesses += 1;
        if worker >= MAX_WORKERS || page >= MAX_PAGE {
            return;
        }
        if self.last.len() <= worker {
            self.last.resize(worker + 1, (u64::MAX, 0));
        }
        if self.last[worker].0 == page {
            return;
        }
        let id = self.index.get(page).unwrap_or_else(|| {
            let id = self.pages.add(page, 0);
            self.index.set(page, id);
            id
        });
        self.last[worker] = (page, id);
        if !self.pages.maps(id, worker) {
            self.pages.map(id, worker);
        }
    }

    /// Returns the bytes of the pages of this size that are touched within `areas`.
    pub fn footprint(&self, size: PageSize, areas: &[Range<u64>]) -> u64 {
        let shift = size.shift() - 12;
        let pages = self.pages.all.iter().map(|page| page.first);
        let mut numbers: Vec<u64> =
            pages.filter(|page| contains(areas, *page)).map(|page| page >> shift).collect();
        numbers.sort_unstable();
        numbers.dedup();
        (numbers.len() as u64) << size.shift()
    }

    /// Returns where the data is: runs of at least `least` bytes of 4K pages, all of them touched except gaps of at most 64K.
    /// That is what a runtime pages; stacks and small blocks of memory stay near (`papers/cmcp.txt`, section 5.1: the
    /// computation area). With 0 it is every possible page.
    pub fn areas(&self, least: u64) -> Vec<Range<u64>> {
        if least == 0 {
            return std::iter::once(0..MAX_PAGE).collect();
        }
        let mut pages: Vec<u64> = self.pages.all.iter().map(|page| page.first).collect();
        pages.sort_unstable();
        let mut areas: Vec<Range<u64>> = Vec::new();
        for page in pages {
            match areas.last_mut() {
                Some(area) if page <= area.end + GAP => area.end = page + 1,
                _ => areas.push(page..page + 1),
            }
        }
        areas.retain(|area| (area.end - area.start) << 12 >= least);
        areas
    }

    /// Returns the number of workers: the largest number that touches a page, plus one.
    pub fn workers(&self) -> usize {
        self.last.len()
    }

    /// Returns a list whose entry `n` counts the 4K pages within `areas` that `n` workers touch.
    pub fn distribution(&self, areas: &[Range<u64>]) -> Vec<u64> {
        self.pages.distribution_where(|page| contains(areas, page.first))
    }
}

/// Whether a 4K page lies within sorted `areas`.
pub fn contains(areas: &[Range<u64>], page: u64) -> bool {
    let at = areas.partition_point(|area| area.end <= page);
    areas.get(at).is_some_and(|area| area.contains(&page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_once() {
        let mut survey = Survey::new();
        let access = |worker, page| Event::Access { worker, page, write: false };
        survey.take(&[access(0, 1), access(0, 1), access(1, 1), access(0, 20), access(3, 21)]);
        survey.take(&[Event::Compute { worker: 0, instructions: 7 }]);
        assert_eq!((survey.events, survey.accesses, survey.workers()), (6, 5, 4));
        let all = survey.areas(0);
        assert_eq!(PageSize::ALL.map(|size| survey.footprint(size, &all)), [3 << 12, 2 << 16, 1 << 21]);
        assert_eq!((survey.distribution(&all), survey.instructions), (vec![0, 2, 1], 7));
        // Pages 20 and 21 are a run; page 1 lies too far away.
        assert!(survey.areas(8192).into_iter().eq(std::iter::once(20..22)));
        assert_eq!(survey.footprint(PageSize::K4, &survey.areas(8192)), 8192);
        assert_eq!(survey.distribution(&survey.areas(8192)), [0, 2]);
    }
}
