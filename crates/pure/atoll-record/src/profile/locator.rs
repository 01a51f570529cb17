//! Finds what each sample touched: the span that had its address at its time, and the region that ran.
//!
//! Samples are to be looked up in their order in the record, which is that of time except for a few. Then one sweep over what
//! was born and died is enough, however often an address was used again. A sample that is earlier than the last is looked up as
//! if it were not.

use std::collections::HashMap;

use super::event::Event;
use super::reader::Profile;
use super::sample::Sample;
use super::span::{Kind, Layer, Variable};

/// The place that a sample touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// An index of [`Profile::spans`]; `None`: in no memory that is known.
    pub span: Option<u32>,
    /// An index of [`Profile::variables`], for that span's variable.
    pub variable: Option<u32>,
    /// An index of [`Profile::variables`]: the file whose code the instruction is; `None`: not known.
    pub code: Option<u32>,
    /// An index of [`Profile::regions`]; `None`: outside of all regions.
    pub region: Option<u32>,
}

/// OpenMP runtimes that programs bring, by how their libraries' names begin.
const RUNTIMES: [&str; 3] = ["libgomp.so", "libomp.so", "libiomp5.so"];

/// What a thread was doing when a sample was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// The thread made the access.
    Access,
    /// The access faulted, and atoll's runtime was at work for it.
    Paging,
    /// The thread did OpenMP's own work, most of it waiting.
    Waiting,
    /// The thread did other work of atoll's within the program that it profiles.
    Own,
}

impl Place {
    /// Returns what the thread was doing.
    pub fn doing(&self, profile: &Profile, sample: &Sample) -> Doing {
        let variable = |number: Option<u32>| profile.variables.get(number? as usize);
        let worker = profile.workers.get(sample.worker as usize);
        if sample.is_paging() {
            return Doing::Paging;
        }
        match variable(self.code) {
            Some(code) if RUNTIMES.iter().any(|runtime| code.name.starts_with(runtime)) => Doing::Waiting,
            // The runtime's threads beside the workers evict, and resolve faults for workers.
            Some(code) if code.name.starts_with("libatoll_openmp.so") => {
                match worker.and_then(|w| w.number) {
                    Some(_) => Doing::Waiting,
                    None => Doing::Paging,
                }
            }
            Some(code) if code.is_atolls() => Doing::Own,
            _ if variable(self.variable).is_some_and(Variable::is_atolls) => Doing::Own,
            _ => Doing::Access,
        }
    }
}

/// The number of layers: narrower kinds of memory lie over wider ones.
const LAYERS: usize = 3;

fn layer(kind: Kind) -> usize {
    match kind {
        Kind::Heap => 0,
        Kind::Global => 1,
        _ => 2,
    }
}

#[derive(Debug, Clone, Default)]
struct Space {
    layers: [Layer; LAYERS],
    region: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Died(u32),
    Ended(u32),
    Executed(u32),
    Forked(u32, u32),
    Born(u32),
    Began(u32),
}

/// Finds the places that samples touched.
#[derive(Debug)]
pub struct Locator<'a> {
    profile: &'a Profile,
    steps: Vec<(u64, Step)>,
    next: usize,
    spaces: HashMap<u32, Space>,
}

impl<'a> Locator<'a> {
    pub(super) fn new(profile: &'a Profile) -> Self {
        let mut steps = Vec::new();
        for event in &profile.events {
            match *event {
                Event::Fork { time_ns, space, parent } => steps.push((time_ns, Step::Forked(space, parent))),
                Event::Exec { time_ns, space, .. } => steps.push((time_ns, Step::Executed(space))),
                _ => {}
            }
        }
        for (number, span) in profile.spans.iter().enumerate() {
            steps.push((span.born_ns, Step::Born(number as u32)));
            if span.died_ns != u64::MAX {
                steps.push((span.died_ns, Step::Died(number as u32)));
            }
        }
        for (number, phase) in profile.phases.iter().enumerate() {
            steps.push((phase.begin_ns, Step::Began(number as u32)));
            if phase.end_ns != u64::MAX {
                steps.push((phase.end_ns, Step::Ended(number as u32)));
            }
        }
        // At one time, memory that ends makes room for memory that begins, in the order in which it began.
        let rank = |step: &Step| match *step {
            Step::Died(_) | Step::Ended(_) => 0,
            Step::Forked(..) => 1,
            Step::Executed(_) => 2,
            Step::Born(_) | Step::Began(_) => 3,
        };
        steps.sort_by_key(|(time, step)| (*time, rank(step)));
        Self { profile, steps, next: 0, spaces: HashMap::new() }
    }

    /// Returns the place that the sample touched.
    pub fn place(&mut self, sample: &Sample) -> Place {
        while let Some(&(time, step)) = self.steps.get(self.next)
            && time <= sample.time_ns
        {
            self.next += 1;
            self.step(step);
        }
        let profile = self.profile;
        let Some(worker) = profile.workers.get(sample.worker as usize) else { return Place::default() };
        let Some(space) = self.spaces.get(&worker.space) else { return Place::default() };
        let span = space.layers.iter().find_map(|layer| layer.at(sample.address));
        let variable_of = |span: u32| profile.spans.get(span as usize).map(|span| span.variable);
        let code =
            if sample.ip == 0 { None } else { space.layers[LAYERS - 1].at(sample.ip).and_then(variable_of) };
        Place { code, span, variable: span.and_then(variable_of), region: space.region }
    }

    fn step(&mut self, step: Step) {
        let profile = self.profile;
        let span = |number: u32| {
            let span = profile.spans[number as usize];
            let kind = profile.variables[span.variable as usize].kind;
            (span.space, layer(kind), span.start..span.start.saturating_add(span.bytes))
        };
        match step {
            Step::Born(number) => {
                let (space, layer, range) = span(number);
                self.spaces.entry(space).or_default().layers[layer].put(range, number);
            }
            Step::Died(number) => {
                let (space, layer, range) = span(number);
                if let Some(space) = self.spaces.get_mut(&space)
                    && space.layers[layer].at(range.start).is_none_or(|there| there == number)
                {
                    space.layers[layer].clear(range);
                }
            }
            Step::Began(number) => {
                let phase = profile.phases[number as usize];
                self.spaces.entry(phase.space).or_default().region = Some(phase.region);
            }
            Step::Ended(number) => {
                if let Some(space) = self.spaces.get_mut(&profile.phases[number as usize].space) {
                    space.region = None;
                }
            }
            // The memory that it had from its parent is gone, too.
            Step::Executed(space) => drop(self.spaces.remove(&space)),
            Step::Forked(child, parent) => {
                let state = self.spaces.get(&parent).cloned().unwrap_or_default();
                self.spaces.insert(child, state);
            }
        }
    }
}
