//! Many replays of one trace, on all CPUs at once.
//!
//! `atoll sim` and `atoll repro` call it. Each replay reads the trace for itself, so memory stays that of as many simulations
//! as there are CPUs.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::convert::Infallible;
use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use atoll_machine::job::{JobError, JobOutcome, JobSetup, Simulation};
use atoll_machine::{
    Machine, MachineError, Node, Outcome, Part, RunError, Setup, SetupError, SimulateError, Survey, Warm,
};
use atoll_pages::PageSize;
use atoll_record::trace::reader::read_trailer;
use atoll_record::trace::{Event, Header, Reader, TraceError};
use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use super::select::{Counted, Select};
use crate::machine::usable_cpus;

/// The reason why there is no result.
#[derive(thiserror::Error, Debug)]
pub(crate) enum SimError {
    #[error("{0}: {1}")]
    Trace(String, TraceError),
    #[error("{0}: {1}")]
    Events(String, RunError<Infallible>),
    #[error("{0}")]
    Setup(#[from] SetupError),
    #[error("{0}")]
    Machine(#[from] MachineError),
    #[error("{0} cannot be read: {1}")]
    Description(String, std::io::Error),
    #[error("{trace} has {has} workers, not {asked}: capture it with atoll trace --workers {asked}")]
    Workers { trace: String, has: usize, asked: usize },
    #[error("{0} touches no memory, or none that is paged")]
    Empty(String),
    #[error("{0} has no region of that name: there are {1}")]
    Regions(String, String),
    #[error("{0} cannot be written: {1}")]
    Write(String, std::io::Error),
    #[error("{0}: {1}")]
    Job(String, JobError<TraceError>),
}

/// Returns a machine by its name, or by the path of its description.
pub(crate) fn machine(name: &str) -> Result<Machine, SimError> {
    if !name.contains('/') && !name.ends_with(".toml") {
        return Ok(Machine::shipped(name)?);
    }
    let text = std::fs::read_to_string(name).map_err(|e| SimError::Description(name.to_owned(), e))?;
    Ok(Machine::read(name, &text)?)
}

/// A trace with what it touches.
pub(crate) struct Trace {
    path: PathBuf,
    pub(crate) header: Header,
    pub(crate) survey: Survey,
    /// The names of regions by address.
    pub(crate) names: BTreeMap<u64, String>,
    /// The memory that is paged: ranges of 4K pages.
    pub(crate) areas: Vec<Range<u64>>,
    /// The number of workers to simulate.
    pub(crate) workers: usize,
}

impl Trace {
    /// Reads a trace once. Runs of touched pages of less than `least` bytes are not paged: they stay near, and are not counted.
    pub(crate) fn open(path: &Path, least: u64) -> Result<Self, SimError> {
        let wrong = |e| SimError::Trace(path.display().to_string(), e);
        let events = read_trailer(path).map_err(wrong)?.events;
        let bar = progress(events, &format!("reading {}", path.display()));
        let mut reader = Reader::open(path).map_err(wrong)?;
        let (mut survey, mut chunk) = (Survey::new(), Vec::new());
        while reader.next_chunk(&mut chunk).map_err(wrong)? {
            bar.inc(chunk.len() as u64);
            survey.take(&chunk);
            chunk.clear();
        }
        bar.finish_and_clear();
        if survey.workers() == 0 {
            return Err(SimError::Empty(path.display().to_string()));
        }
        let named = reader.trailer().map_or(0, |trailer| trailer.workers);
        let workers = survey.workers().max(named.max(reader.header().workers) as usize);
        let names = reader.trailer().map(|trailer| trailer.names.clone()).unwrap_or_default();
        let areas = survey.areas(least);
        if areas.is_empty() {
            return Err(SimError::Empty(path.display().to_string()));
        }
        Ok(Self { path: path.to_owned(), header: reader.header().clone(), survey, names, areas, workers })
    }

    /// Returns the trace's path.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Returns the trace's file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the addresses of the regions of these names: of their outlined functions, or of the functions they stand in.
    pub(crate) fn regions(&self, names: &[impl AsRef<str>]) -> Result<HashSet<u64>, SimError> {
        let stem = |name: &str| name.split("._omp_fn").next().unwrap_or_default().to_owned();
        let is = |name: &str| names.iter().any(|wanted| [name, &stem(name)].contains(&wanted.as_ref()));
        let found: HashSet<u64> =
            self.names.iter().filter(|(_, name)| is(name)).map(|(address, _)| *address).collect();
        if found.is_empty() {
            let known: BTreeSet<String> = self.names.values().map(|name| stem(name)).collect();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            return Err(SimError::Regions(self.name(), known));
        }
        Ok(found)
    }

    /// Returns the bytes of the paged memory in pages of this size.
    pub(crate) fn footprint(&self, size: PageSize) -> u64 {
        self.survey.footprint(size, &self.areas)
    }

    /// Returns the number of pages by the number of workers that use them.
    pub(crate) fn distribution(&self) -> Vec<u64> {
        self.survey.distribution(&self.areas)
    }

    /// Replays the trace under every setup, first as `warm` says and then once more for the counts, of which only those that are
    /// `counted` are taken, if given. Results are in the setups' order; `done` gets each, with its setup's index, once it is there.
    pub(crate) fn replay(
        &self,
        node: &Node,
        setups: &[Setup],
        warm: Warm,
        counted: Option<&Counted>,
        done: &(dyn Fn(usize, &Outcome) + Sync),
    ) -> Result<Vec<Outcome>, SimError> {
        // It is not known how many replays it takes until near memory has settled: then each simulation counts as one.
        let (bar, each) = match warm {
            Warm::Times(warm) => {
                let events = setups.len() as u64 * (u64::from(warm) + 1) * self.survey.events;
                (progress(events, "replaying"), ProgressBar::hidden())
            }
            Warm::Settled { .. } => (ProgressBar::hidden(), progress(setups.len() as u64, "simulating")),
        };
        let next = AtomicUsize::new(0);
        let results: Mutex<Vec<Option<Result<Outcome, SimError>>>> =
            Mutex::new(setups.iter().map(|_| None).collect());
        std::thread::scope(|scope| {
            for _ in 0..(usable_cpus() as usize).min(setups.len()) {
                scope.spawn(|| {
                    while let Some((index, setup)) =
                        Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|n| Some((n, setups.get(n)?)))
                    {
                        let result = self.one(node, setup, (warm, counted), &bar);
                        match &result {
                            Ok(outcome) => done(index, outcome),
                            Err(_) => next.store(setups.len(), Ordering::Relaxed),
                        }
                        each.inc(1);
                        // No thread panics while it holds the lock.
                        if let Ok(mut results) = results.lock() {
                            results[index] = Some(result);
                        }
                    }
                });
            }
        });
        bar.finish_and_clear();
        each.finish_and_clear();
        // Where one failed, others may not have begun; the first failure is reported.
        results.into_inner().unwrap_or_default().into_iter().flatten().collect()
    }

    /// Replays the trace over several nodes, `warm` times whole and once more, and counts all of it.
    pub(crate) fn job(&self, machine: &Machine, setup: JobSetup, warm: u32) -> Result<JobOutcome, SimError> {
        let wrong = |error| SimError::Job(self.name(), error);
        let mut simulation = Simulation::new(machine, setup).map_err(wrong)?;
        let bar = progress((u64::from(warm) + 1) * self.survey.events, "replaying");
        for _ in 0..=warm {
            let mut reader = Reader::open(&self.path).map_err(|e| SimError::Trace(self.name(), e))?;
            let next = |into: &mut Vec<Event>| {
                let before = into.len();
                let more = reader.next_chunk(into)?;
                bar.inc((into.len() - before) as u64);
                Ok(more)
            };
            simulation.run(next).map_err(wrong)?;
        }
        bar.finish_and_clear();
        Ok(simulation.outcome())
    }

    fn one(
        &self,
        node: &Node,
        setup: &Setup,
        (warm, counted): (Warm, Option<&Counted>),
        bar: &ProgressBar,
    ) -> Result<Outcome, SimError> {
        let open = |part| {
            let mut reader = Reader::open(&self.path)?;
            let mut select =
                Select::new(self.areas.clone(), counted.filter(|_| part == Part::Counted).cloned());
            Ok(move |into: &mut Vec<Event>| {
                let before = into.len();
                let more = reader.next_chunk(into)?;
                bar.inc((into.len() - before) as u64);
                select.apply(into, before);
                Ok(more)
            })
        };
        atoll_machine::simulate(node, setup, warm, open).map_err(|error| match error {
            SimulateError::Setup(error) => SimError::Setup(error),
            SimulateError::Run(RunError::Source(error)) => SimError::Trace(self.name(), error),
            SimulateError::Run(RunError::Worker { worker, workers }) => {
                SimError::Events(self.name(), RunError::Worker { worker, workers })
            }
            SimulateError::Run(RunError::TooLong) => SimError::Events(self.name(), RunError::TooLong),
        })
    }
}

/// Makes a progress bar with the remaining time, where there is a terminal to see it.
fn progress(events: u64, what: &str) -> ProgressBar {
    use std::io::IsTerminal;
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(events);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent}%, {left}{msg}") {
        let left = |state: &ProgressState, out: &mut dyn Write| {
            if let Some(left) = left(state.elapsed(), state.pos(), state.len().unwrap_or(0)) {
                // A bar that cannot be drawn is drawn again soon.
                let _ = write!(out, "{left}, ");
            }
        };
        bar.set_style(style.with_key("left", left));
    }
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(TICK);
    bar
}

/// The time between two drawings of a bar.
const TICK: Duration = Duration::from_millis(500);
/// The time and the share of the events after which the remaining time is estimated.
const ESTIMATED_AFTER: (Duration, f64) = (Duration::from_secs(1), 0.005);

/// Returns the remaining time at the pace so far; `None` while that is not known, and where everything was read and only the
/// last part is still simulated.
fn left(elapsed: Duration, done: u64, all: u64) -> Option<String> {
    let share = done as f64 / all.max(1) as f64;
    if elapsed < ESTIMATED_AFTER.0 || share < ESTIMATED_AFTER.1 || done >= all {
        return None;
    }
    let seconds = (elapsed.as_secs_f64() * (1.0 - share) / share).ceil() as u64;
    Some(match seconds {
        0..120 => format!("{seconds} s left"),
        _ => format!("{} min left", seconds.div_ceil(60)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bars said "0s left" until the first events were through, and again from the last one read to the end.
    #[test]
    fn nothing_was_done_yet_and_0_s_were_left() {
        let after = |seconds, done| left(Duration::from_secs(seconds), done, 1000);
        assert_eq!((after(0, 0), after(60, 0), after(0, 500), after(60, 1000)), (None, None, None, None));
        assert_eq!(after(10, 500).as_deref(), Some("10 s left"));
        assert_eq!(after(1000, 999).as_deref(), Some("2 s left"));
        assert_eq!(after(60, 100).as_deref(), Some("9 min left"));
        assert_eq!(left(Duration::from_secs(9), 0, 0), None);
    }
}
