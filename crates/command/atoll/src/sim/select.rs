//! Selects the events of a trace that are simulated: those on paged memory, and in the regions that count.
//!
//! [`replay`](super::replay) passes every chunk through it.

use std::collections::HashSet;
use std::ops::Range;

use atoll_machine::survey::contains;
use atoll_record::trace::Event;

/// The part of a trace that counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counted {
    /// The addresses of the regions that count.
    pub(crate) regions: HashSet<u64>,
    /// The addresses of those that an iteration begins with. Where there are none, the regions count wherever they come.
    pub(crate) begin: HashSet<u64>,
    /// The number of iterations that count: programs use some of their regions before their first iteration, and after the last
    /// one, too.
    pub(crate) iterations: u32,
}

/// A worker's place in the trace.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// Whether the worker is in a region that counts.
    inside: bool,
    /// Whether its last region was one that an iteration begins with.
    begins: bool,
    /// The number of iterations that have begun.
    iteration: u32,
}

/// The selection.
#[derive(Debug, Clone)]
pub(crate) struct Select {
    areas: Vec<Range<u64>>,
    /// What counts; `None`: everything.
    counted: Option<Counted>,
    /// The place of each worker.
    places: Vec<Place>,
}

impl Select {
    /// Makes a selection of accesses within `areas`, sorted ranges of 4K pages, and of all events those that are `counted`, if
    /// that is given. Maps and unmaps are always kept.
    pub(crate) fn new(areas: Vec<Range<u64>>, counted: Option<Counted>) -> Self {
        Self { areas, counted, places: Vec::new() }
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
        let (Some(counted), Some(worker)) = (&self.counted, event.worker()) else { return true };
        let worker = usize::from(worker);
        if self.places.len() <= worker {
            self.places.resize(worker + 1, Place::default());
        }
        let place = &mut self.places[worker];
        let was = place.inside;
        match event {
            Event::RegionBegin { name, .. } => {
                place.enter(counted, *name);
                place.inside
            }
            Event::RegionEnd { .. } => {
                place.inside = false;
                was
            }
            _ => was,
        }
    }
}

impl Place {
    /// The worker enters the region at address `name`.
    fn enter(&mut self, counted: &Counted, name: u64) {
        let begins = counted.begin.contains(&name);
        self.iteration += u32::from(begins && !self.begins);
        self.begins = begins;
        let within = counted.begin.is_empty() || (1..=counted.iterations).contains(&self.iteration);
        self.inside = within && counted.regions.contains(&name);
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
        let counted = Counted { regions: [7].into(), ..Counted::default() };
        Select::new(std::iter::once(5..10).collect(), Some(counted)).apply(&mut kept, 1);
        assert_eq!(kept, [access(0, 5), map, begin(0, 7), access(0, 5), end(0, 7)]);
        let mut kept = all.clone();
        Select::new(vec![5..10, 50..51], None).apply(&mut kept, 0);
        assert_eq!(kept, all);
    }

    /// An iteration of lu counted as one part of its sweeps and three of the operator that comes before the first iteration, too.
    #[test]
    fn regions_before_the_first_iteration_and_after_the_last_counted() {
        let (before, sweep) = (3, 4);
        let region = |name, page| {
            let access = Event::Access { worker: 0, page, write: false };
            [Event::RegionBegin { worker: 0, name }, access, Event::RegionEnd { worker: 0, name }]
        };
        let regions = [(before, 1), (sweep, 2), (sweep, 3), (before, 4), (sweep, 5), (before, 6)];
        let mut events: Vec<Event> =
            regions.into_iter().flat_map(|(name, page)| region(name, page)).collect();
        let counted = Counted { regions: [before, sweep].into(), begin: [sweep].into(), iterations: 1 };
        Select::new(std::iter::once(0..10).collect(), Some(counted)).apply(&mut events, 0);
        let wanted = regions[1..4].iter().flat_map(|&(name, page)| region(name, page)).collect::<Vec<_>>();
        assert_eq!(events, wanted);
    }
}
