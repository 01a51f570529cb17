//! What a trace touches, before anything is simulated: its footprint and who shares its pages.
//!
//! The commands take near limits in percent of it; `papers/cmcp.txt`, figure 6, is its distribution.

use atoll_pages::{MAX_WORKERS, PageSize};
use atoll_record::trace::Event;

use crate::pages::{Index, MAX_PAGE, Pages};

/// One pass over a trace; memory is proportional to distinct pages.
#[derive(Debug)]
pub struct Survey {
    index: Index,
    pages: Pages,
    /// The page each worker touched last: most events touch it again or one near it.
    last: Vec<(u64, u32)>,
    /// Events of all kinds.
    pub events: u64,
    /// Events that touch a page.
    pub accesses: u64,
    /// Instructions of all workers.
    pub instructions: u64,
}

impl Default for Survey {
    fn default() -> Self {
        Self::new()
    }
}

impl Survey {
    /// Nothing seen yet.
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

    /// Takes the next events. Those of workers beyond [`MAX_WORKERS`] and pages beyond user space are counted, no more.
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

    /// Bytes of the pages of this size that are touched.
    pub fn footprint(&self, size: PageSize) -> u64 {
        let mut numbers: Vec<u64> =
            self.pages.all.iter().map(|page| page.first >> (size.shift() - 12)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        (numbers.len() as u64) << size.shift()
    }

    /// How many workers there are: the largest number that touches a page, plus one.
    pub fn workers(&self) -> usize {
        self.last.len()
    }

    /// Entry `n` counts the 4K pages that `n` workers touch.
    pub fn distribution(&self) -> Vec<u64> {
        self.pages.distribution()
    }
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
        assert_eq!(PageSize::ALL.map(|size| survey.footprint(size)), [3 << 12, 2 << 16, 1 << 21]);
        assert_eq!((survey.distribution(), survey.instructions), (vec![0, 2, 1], 7));
    }
}
