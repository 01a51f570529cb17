//! The results of simulations by their parameters: reports look their cells up here.

use std::collections::HashMap;
use std::sync::Mutex;

use atoll_machine::{Node, Outcome, PageMode, Pager, Replacement, Setup, Tables, Warm};
use atoll_pages::PageSize;

use super::ReproError;
use super::kept::{self, Kept};
use crate::cli::Share;
use crate::sim::replay::Trace;
use crate::sim::select::Counted;
use crate::sim::table;

/// The replays before the one that counts. The paper's programs do 75 to 250 iterations, of which only the first few see what
/// the program's beginning left in near memory.
const WARM: Warm = Warm::Settled { within: WITHIN, most: REPLAYS };
/// The share of the pages by which two replays may differ.
pub(super) const WITHIN: f64 = 0.02;
/// The most replays.
pub(super) const REPLAYS: u32 = 12;

/// The parameters of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub(super) cores: u32,
    /// The near limit in percent of the footprint; `None`: everything near.
    pub(super) near: Option<f64>,
    pub(super) page: PageMode,
    pub(super) tables: Tables,
    pub(super) policy: Replacement,
}

impl Point {
    pub(super) fn key(&self, program: &str) -> String {
        format!("{program} {} {:?} {} {} {}", self.cores, self.near, self.page, self.tables, self.policy)
    }

    /// Returns the setup. Limits are in percent of what the program touches in pages of the point's size, so that all of it
    /// fits at 100 %.
    fn setup(&self, trace: &Trace) -> Setup {
        let (page, tables, policy) = (self.page, self.tables, self.policy);
        let setup = Setup {
            workers: self.cores as usize,
            near: None,
            page,
            tables,
            policy,
            pager: Pager::Kernel { batch: 1 },
        };
        let footprint = trace.footprint(page.smallest());
        Setup { near: self.near.map(|share| table::near(Share::Percent(share), footprint, &setup)), ..setup }
    }
}

/// Returns a hash of all costs.
fn costs(node: &Node) -> u32 {
    let numbers = node.numbers().into_iter().map(|(path, value, _)| format!("{path}={value};"));
    kept::hash(numbers.collect::<String>().as_bytes())
}

fn file_name(trace: &Trace) -> String {
    trace.path().file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The results by program and point.
#[derive(Debug, Default)]
pub(super) struct Store {
    outcomes: HashMap<String, Outcome>,
    distributions: HashMap<(String, u32), Vec<u64>>,
    footprints: HashMap<String, u64>,
}

impl Store {
    /// Simulates `points` of `program`, unless `kept` has their results, and keeps the results. All points have the trace's
    /// workers. Returns the number of simulations.
    pub(super) fn fill(
        &mut self,
        program: &str,
        (trace, counted): (&Trace, Option<&Counted>),
        (node, kept): (&Node, &Kept),
        points: &[Point],
    ) -> Result<usize, ReproError> {
        let mut new: Vec<Point> = Vec::new();
        for point in points {
            if !self.outcomes.contains_key(&point.key(program)) && !new.contains(point) {
                new.push(*point);
            }
        }
        let costs = costs(node);
        let name = |point: &Point| format!("{} {costs:08x} {}", file_name(trace), point.key(program));
        let known = |point: &Point| Some((point.key(program), kept.get(&name(point))?.clone()));
        self.outcomes.extend(new.iter().filter_map(known));
        new.retain(|point| kept.get(&name(point)).is_none());
        let setups: Vec<Setup> = new.iter().map(|point| point.setup(trace)).collect();
        let failed = Mutex::new(None);
        let done = |index: usize, outcome: &Outcome| {
            if let (Err(error), Ok(mut failed)) = (kept.write(&name(&new[index]), outcome), failed.lock()) {
                *failed = Some(error);
            }
        };
        let outcomes = trace.replay(node, &setups, WARM, counted, &done)?;
        if let Some(error) = failed.into_inner().ok().flatten() {
            return Err(error);
        }
        self.outcomes.extend(new.iter().map(|point| point.key(program)).zip(outcomes));
        let cores = points.first().map_or(0, |point| point.cores);
        self.distributions.insert((program.to_owned(), cores), trace.distribution());
        self.footprints.insert(program.to_owned(), trace.footprint(PageSize::K4));
        Ok(new.len())
    }

    /// Returns the number of simulations, and of those whose last replays still differed in the pages they brought.
    pub(super) fn settled(&self) -> (usize, usize) {
        let unsettled = self.outcomes.values().filter(|outcome| !outcome.settled).count();
        (self.outcomes.len(), unsettled)
    }

    /// Returns the result at a point.
    pub(super) fn get(&self, program: &str, point: &Point) -> Option<&Outcome> {
        self.outcomes.get(&point.key(program))
    }

    /// Returns the simulated seconds at a point.
    pub(super) fn seconds(&self, program: &str, point: &Point) -> Option<f64> {
        self.get(program, point).map(|outcome| outcome.elapsed as f64 / 1e12)
    }

    /// Returns the time of `base` over that of `point`: the speed in units of the base's.
    pub(super) fn relative(&self, program: &str, point: &Point, base: &Point) -> Option<f64> {
        Some(self.seconds(program, base)? / self.seconds(program, point)?)
    }

    /// Returns the number of pages by the number of workers that use them.
    pub(super) fn distribution(&self, program: &str, cores: u32) -> Option<&[u64]> {
        self.distributions.get(&(program.to_owned(), cores)).map(Vec::as_slice)
    }

    /// Returns the bytes that a program touches.
    pub(super) fn footprint(&self, program: &str) -> u64 {
        self.footprints.get(program).copied().unwrap_or(0)
    }
}
