//! Knows which region runs, in which mode, and what each node fetches at its entry.
//!
//! It keeps a `Region` and plans of `atoll-coherence` for each mark that a program passes; the simulation tells it what
//! happens.

use std::collections::{BTreeSet, HashMap};

use atoll_coherence::agent::Mode;
use atoll_coherence::plan::{Costs, Fate, Plan};
use atoll_coherence::region::{Region, Rules};

use super::Consistency;
use super::counts::{Job, RegionOutcome};

/// What is known of one region.
struct Known {
    region: Region,
    /// The plan of each node.
    plans: Vec<Plan>,
    outcome: RegionOutcome,
}

/// The state of a node in the current run.
#[derive(Default, Clone)]
struct Run {
    /// The pages fetched at the entry and not used yet.
    ahead: BTreeSet<u64>,
    used: BTreeSet<u64>,
    /// The picoseconds of the entry.
    entry: u64,
}

/// The regions of a job.
pub(super) struct Regions {
    consistency: Consistency,
    prefetch: bool,
    rules: Rules,
    nodes: usize,
    index: HashMap<u64, usize>,
    known: Vec<Known>,
    /// The region that runs; `None` between regions.
    current: Option<usize>,
    began: u64,
    runs: Vec<Run>,
    /// Counts between regions, which nothing reads.
    between: Job,
    /// The picoseconds of read faults, and their number, for the cost of a fault.
    faults: (u64, u64),
    before: Job,
}

impl Regions {
    pub(super) fn new(consistency: Consistency, prefetch: bool, workers: usize, nodes: u8) -> Self {
        let nodes = usize::from(nodes);
        Self {
            consistency,
            prefetch,
            rules: Rules::of(workers.div_ceil(nodes) as u32),
            nodes,
            index: HashMap::new(),
            known: Vec::new(),
            current: None,
            began: 0,
            runs: vec![Run::default(); nodes],
            between: Job::default(),
            faults: (0, 0),
            before: Job::default(),
        }
    }

    /// Returns how the current region treats pages that several nodes write.
    pub(super) fn mode(&self) -> Mode {
        match (self.consistency, self.current) {
            (Consistency::Sc, _) | (_, None) => Mode::OneWriter,
            (Consistency::Mw, Some(_)) => Mode::ManyWriters,
            (Consistency::Smart, Some(at)) => self.known[at].region.mode(),
        }
    }

    /// Returns the counts of the current region.
    pub(super) fn counts(&mut self) -> &mut Job {
        match self.current {
            Some(at) => &mut self.known[at].outcome.counts,
            None => &mut self.between,
        }
    }

    /// Notes that a worker of `node` reads `page`.
    pub(super) fn used(&mut self, node: usize, page: u64) {
        let run = &mut self.runs[node];
        if !run.ahead.is_empty() && run.ahead.remove(&page) {
            run.used.insert(page);
            self.counts().fetched_used += 1;
        }
    }

    /// Notes that a worker of `node` had to wait for `page` to read it.
    pub(super) fn faulted(&mut self, node: usize, page: u64) {
        if let (true, Some(at)) = (self.prefetch, self.current) {
            self.known[at].plans[node].faulted(page);
        }
    }

    /// Notes that a worker waited for a page for `time`.
    pub(super) fn waited(&mut self, time: u64, write: bool) {
        if !write {
            self.faults = (self.faults.0 + time, self.faults.1 + 1);
        }
    }

    /// Returns the pages that `node` is to fetch now.
    pub(super) fn plan(&mut self, node: usize) -> Vec<u64> {
        match self.current {
            Some(at) if self.prefetch => self.known[at].plans[node].enter().collect(),
            _ => Vec::new(),
        }
    }

    /// Notes the fetched pages that were not there before.
    pub(super) fn fetched(&mut self, node: usize, pages: Vec<u64>) {
        self.counts().fetched += pages.len() as u64;
        self.runs[node] = Run { ahead: pages.into_iter().collect(), ..Run::default() };
    }

    /// Notes that fetching took `node` this time.
    pub(super) fn entered(&mut self, node: usize, time: u64) {
        self.runs[node].entry = time;
    }

    /// Ends the current region and begins the one called `mark`, or none.
    pub(super) fn next(&mut self, mark: Option<u64>, clock: u64, all: &mut Job) {
        if let Some(at) = self.current {
            let known = &mut self.known[at];
            known.outcome.elapsed += clock.saturating_sub(self.began);
            let sent = |job: &Job| job.invalidations + job.batched;
            let invalidations = sent(&known.outcome.counts) - sent(&self.before);
            known.region.ended(u32::try_from(invalidations).unwrap_or(u32::MAX), &self.rules);
            all.fetched_used += known.outcome.counts.fetched_used - self.before.fetched_used;
            let fault = self.faults.0.checked_div(self.faults.1).unwrap_or(0);
            for (plan, run) in known.plans.iter_mut().zip(&mut self.runs) {
                let run = std::mem::take(run);
                let fate = |page| match (run.ahead.contains(&page), run.used.contains(&page)) {
                    (true, _) => Fate::Unused,
                    (_, true) => Fate::Used,
                    _ => Fate::Here,
                };
                plan.ended(Costs { entry: run.entry, fault }, fate);
            }
        }
        self.began = clock;
        self.current = mark.map(|name| {
            *self.index.entry(name).or_insert_with(|| {
                let counts = Job::default();
                let outcome = RegionOutcome { name, runs: 0, many: 0, elapsed: 0, counts };
                let plans = vec![Plan::default(); self.nodes];
                self.known.push(Known { region: Region::default(), plans, outcome });
                self.known.len() - 1
            })
        });
        if let Some(at) = self.current {
            let many = self.mode() == Mode::ManyWriters;
            let outcome = &mut self.known[at].outcome;
            outcome.runs += 1;
            outcome.many += u64::from(many);
            self.before = outcome.counts;
        }
    }

    /// Ends the trace.
    pub(super) fn end(&mut self, all: &mut Job) {
        self.next(None, self.began, all);
    }

    pub(super) fn outcomes(&self) -> Vec<RegionOutcome> {
        self.known.iter().map(|known| known.outcome.clone()).collect()
    }
}
