//! Writes events in their final order, as far as they are wanted.
//!
//! `team` calls it in that order; `select` says which regions are wanted. After an error of the file everything is dropped, and
//! [`Output::finish`] returns the error.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use atoll_record::trace::{Event, Writer};

use super::select::Regions;
use crate::names::Names;

/// The number of instructions that are gathered: finer than any cost that a page can have.
pub(crate) const COMPUTE_QUANTUM: u32 = 256;

/// The limits of what is recorded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limits {
    /// The regions that are recorded; `None`: all.
    pub(crate) regions: Option<Regions>,
    /// The number of times that a mark of the first worker comes before recording ends; `None`: no limit.
    pub(crate) iterations: Option<u64>,
}

/// The trace that is being written.
pub(crate) struct Output<W: Write> {
    writer: Writer<W>,
    /// The program's object files.
    pub(crate) names: Names,
    limits: Limits,
    /// Whether the engine counts instructions.
    counts_instructions: bool,
    /// The instructions of each worker that no event has told of yet.
    gathered: Vec<u64>,
    /// The number of regions begun.
    regions: u64,
    /// The number of times that each mark of the first worker came.
    marks: HashMap<u64, u64>,
    /// The addresses of regions that were recorded.
    recorded: BTreeMap<u64, Option<String>>,
    /// The number of accesses that the engine saw.
    pub(crate) seen: u64,
    wanted: bool,
    over: bool,
    failed: Option<io::Error>,
}

impl<W: Write> Output<W> {
    /// Makes an output that writes with `writer` what `limits` allow.
    pub(crate) fn new(writer: Writer<W>, limits: Limits, counts_instructions: bool) -> Self {
        Self {
            writer,
            names: Names::default(),
            wanted: limits.regions.is_none(),
            limits,
            counts_instructions,
            gathered: Vec::new(),
            regions: 0,
            marks: HashMap::new(),
            recorded: BTreeMap::new(),
            seen: 0,
            over: false,
            failed: None,
        }
    }

    /// Notes that a team begins a region.
    pub(crate) fn region_begins(&mut self, address: u64) {
        self.regions += 1;
        let name = self.names.function(address).map(str::to_owned);
        if let Some(regions) = &self.limits.regions {
            self.wanted = regions.have(self.regions, address, name.as_deref());
            self.gathered.fill(0);
        }
        if self.wanted {
            self.recorded.insert(address, name);
        }
    }

    /// Notes that the team's region is over.
    pub(crate) fn region_ends(&mut self) {
        self.wanted = self.limits.regions.is_none();
    }

    /// Notes that the first worker is to come to a mark. What follows is not recorded if the mark has come as often as was
    /// asked for.
    pub(crate) fn mark_ahead(&mut self, name: u64) {
        if let Some(most) = self.limits.iterations
            && self.wanted
        {
            let count = self.marks.entry(name).or_default();
            *count += 1;
            self.over |= *count > most;
        }
    }

    /// Notes that a worker executed instructions.
    pub(crate) fn elapsed(&mut self, worker: u16, instructions: u64) {
        if self.counts_instructions && self.wanted {
            let worker = usize::from(worker);
            if self.gathered.len() <= worker {
                self.gathered.resize(worker + 1, 0);
            }
            self.gathered[worker] += instructions;
        }
    }

    /// Notes that a worker touched a page.
    pub(crate) fn access(&mut self, worker: u16, page: u64, write: bool) {
        self.compute(worker, u64::from(COMPUTE_QUANTUM));
        self.push(&Event::Access { worker, page, write });
    }

    /// Notes a mark of a worker.
    pub(crate) fn mark(&mut self, worker: u16, mark: &Event) {
        self.compute(worker, 1);
        self.push(mark);
    }

    /// Notes a change of the address space, which is recorded wherever recording goes on at all.
    pub(crate) fn mapping(&mut self, event: &Event) {
        let wanted = std::mem::replace(&mut self.wanted, true);
        self.push(event);
        self.wanted = wanted;
    }

    /// Writes a worker's instructions if there are at least `least`.
    fn compute(&mut self, worker: u16, least: u64) {
        if let Some(gathered) = self.gathered.get_mut(usize::from(worker))
            && *gathered >= least
        {
            let instructions = std::mem::take(gathered);
            self.push(&Event::Compute { worker, instructions });
        }
    }

    fn push(&mut self, event: &Event) {
        if self.wanted
            && !self.over
            && self.failed.is_none()
            && let Err(error) = self.writer.push(event)
        {
            self.failed = Some(error);
        }
    }

    /// Whether everything that was asked for is recorded.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Writes the end and returns the writer.
    ///
    /// # Errors
    /// The first error of writing.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        for worker in 0..self.gathered.len() {
            self.compute(worker as u16, 1);
        }
        let names = self.recorded.into_iter().filter_map(|(address, name)| Some((address, name?))).collect();
        self.writer.finish(self.seen, names)
    }
}
