//! Selects the events of a trace that are simulated: those on paged memory, and in the regions that count.
//!
//! [`replay`](super::replay) passes every chunk through it.

use std::collections::HashSet;
use std::ops::Range;

use atoll_machine::survey::contains;
use atoll_record::trace::Event;

/// The selection.
#[derive(Debug, Clone)]
pub(crate) struct Select {
    areas: Vec<Range<u64>>,
    /// The addresses of regions; `None`: everything counts.
    regions: Option<HashSet<u64>>,
    /// Whether each worker is in one of them.
    inside: Vec<bool>,
}

impl Select {
    /// Makes a selection of accesses within `areas`, sorted ranges of 4K pages, and of all events those in `regions`, if that
    /// is given. Maps and unmaps are always kept.
    pub(crate) fn new(areas: Vec<Range<u64>>, regions: Option<HashSet<u64>>) -> Self {
        Self { areas, regions, inside: Vec::new() }
    }

    /// Drops the events of `events[from..]` that are not selected.
    pub(crate) fn apply(&mut self, events: &mut Vec<Event>, from: usize) {
        let mut kept = from;
        for index in from..events.len() {
            let event = events[index];
            if self.keeps(&event) {
                events[kept] = event;
                kept += 1;
            }
        }
        events.truncate(kept);
    }

    fn keeps(&mut self, event: &Event) -> bool {
        let counts = self.counts(event);
        match event {
            Event::Access { page, .. } => counts && contains(&self.areas, *page),
            Event::Map { .. } | Event::Unmap { .. } => true,
            _ => counts,
        }
    }

    /// Whether the event is of a region that counts.
    fn counts(&mut self, event: &Event) -> bool {
        let (Some(regions), Some(worker)) = (&self.regions, event.worker()) else { return true };
        let worker = usize::from(worker);
        if self.inside.len() <= worker {
            self.inside.resize(worker + 1, false);
        }
        let was = self.inside[worker];
        match event {
            Event::RegionBegin { name, .. } => {
                self.inside[worker] = regions.contains(name);
                self.inside[worker]
            }
            Event::RegionEnd { .. } => {
                self.inside[worker] = false;
                was
            }
            _ => was,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_other_regions_and_memory_are_dropped() {
        let access = |worker, page| Event::Access { worker, page, write: false };
        let begin = |worker, name| Event::RegionBegin { worker, name };
        let end = |worker, name| Event::RegionEnd { worker, name };
        let map = Event::Map { first: 0, pages: 9 };
        let all = vec![access(0, 5), map, begin(0, 7), access(0, 5), access(1, 5), access(0, 50), end(0, 7)];
        let mut kept = [all.clone(), vec![begin(0, 8), access(0, 6), end(0, 8)]].concat();
        Select::new(std::iter::once(5..10).collect(), Some([7].into())).apply(&mut kept, 1);
        assert_eq!(kept, [access(0, 5), map, begin(0, 7), access(0, 5), end(0, 7)]);
        let mut kept = all.clone();
        Select::new(vec![5..10, 50..51], None).apply(&mut kept, 0);
        assert_eq!(kept, all);
    }
}
