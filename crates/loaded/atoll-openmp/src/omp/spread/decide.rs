//! The decision how a region runs: on all nodes or on the origin alone, with how many writers of a page, with which threads on which
//! node. It is made by the region's code (`safety`), by what the user wants, and by what its earlier runs took (`measure`).
//!
//! The origin's leader asks where a region begins, and tells what it took where it ends; the tables are `atoll-coherence`'s.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use atoll_coherence::agent::Mode;
use atoll_coherence::parts::Parts;
use atoll_coherence::placing::{Go, Home, Hope, Place, Placing, Took};
use atoll_coherence::region::{self as smart, Region, Rules};
use atoll_memory::control::{Consistency, Settings};
use atoll_memory::region_counts::Key;
use atoll_memory::region_spread::{RunReason, Spread, Writers};

use atoll_nodes::region::{Calming, SinglePhases, has_thrashed, invalidated_so_far};
use atoll_nodes::{clock, cpus, races};

use super::division::Division;
use super::safety::{self, How};
use super::{measure, region, tls};
use crate::start::late;
use crate::state;
use atoll_memory::futex::Lock;

/// How a run is spread over the nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spreading {
    /// Many nodes may write a page at once, but in some phases.
    pub(crate) many: bool,
    pub(crate) phases: SinglePhases,
    pub(crate) division: Division,
    /// The first thread that comes to a `single` has it, on whichever node.
    pub(crate) first_come: bool,
    /// Workers' CPU time is wanted.
    pub(crate) cpu: bool,
    /// Its tasks may be executed by other nodes than the one that makes them.
    pub(crate) tasks: bool,
    /// Whether it is calmed where its pages go to and fro.
    pub(crate) calming: Calming,
}

/// All that is known of a region.
#[derive(Default)]
struct Known {
    smart: Region,
    parts: Option<Parts>,
    /// Its pages went to and fro.
    thrashed: bool,
}

/// The run that is under way.
struct Run {
    key: Key,
    began: u64,
    /// How it is spread; none: on the origin alone.
    spread: Option<Spreading>,
    /// The run could be elsewhere, too.
    free: bool,
    threads: u32,
    nodes: u32,
    /// Copies invalidated before it.
    invalidated: u64,
}

struct State {
    known: BTreeMap<Key, Known>,
    placing: Placing<Key>,
    run: Option<Run>,
}

static STATE: Lock<State> = Lock::new(State { known: BTreeMap::new(), placing: Placing::new(), run: None });

/// The consistency that the user wants.
fn consistency() -> Option<Consistency> {
    let wanted = state::control()?.settings.consistency;
    [Consistency::Single, Consistency::Many, Consistency::Smart].into_iter().find(|c| *c as u32 == wanted)
}

/// May a thread of the team be another worker in the next region? It may not where workers keep variables of their own.
fn may_move() -> bool {
    !tls::keeps_by_thread()
}

/// The CPUs that the origin's workers have where no other node computes.
fn origin_cpus() -> u32 {
    static CPUS: OnceLock<u32> = OnceLock::new();
    *CPUS.get_or_init(cpus::available)
}

/// May other nodes execute the region's tasks? A variable that each thread has for itself is another one there. Small tasks take many
/// times as long there as here, and nothing measures yet which do: the user has to want all regions on all nodes.
fn travel(safety: &safety::Safety, settings: &Settings) -> bool {
    let is_wanted = settings.home_alone == 0 || settings.placing == SPREAD;
    is_wanted && safety.tasks && may_move()
}

/// The value of `Settings::placing` with which every region begins on all nodes.
const SPREAD: u32 = 2;

/// What is known of a region of `threads` threads before it runs.
fn hope(threads: u32, how: How, settings: &Settings) -> Hope {
    let at_home = how == How::Single && settings.placing != SPREAD;
    let here = if settings.placing == 0 { origin_cpus() } else { settings.all_cpus / settings.nodes.max(1) };
    let all = settings.all_cpus.max(here);
    Hope { origin_workers: threads.min(here), all_workers: threads.min(all), at_home }
}

/// Whether other nodes bring CPUs for a region of enough threads.
fn brings_cpus(settings: &Settings) -> bool {
    hope(u32::MAX, How::Many, settings).promises()
}

/// The origin's leader begins the region of `key` with `threads` threads, on `nodes` nodes. None: it runs on the origin alone.
pub(crate) fn begin(key: Key, threads: u32, nodes: u32) -> Option<Spreading> {
    let control = state::control()?;
    let settings = &control.settings;
    let may_be_alone = settings.home_alone != 0 && !races::wanted();
    // Where no region runs elsewhere, whatever its code does, it is not examined: that can take longer than the region.
    let may_spread = !may_be_alone || settings.near_bytes != u64::MAX || brings_cpus(settings);
    let safety = may_spread.then(|| safety::of(key.function as usize));
    let figures = control.regions.find(key).map(|at| &control.regions.all[at].spread);
    let goes = |writers, why| {
        if let Some(figures) = figures {
            figures.goes(writers, why);
        }
    };
    let mut state = STATE.lock();
    let State { known, placing, run } = &mut *state;
    let now = clock::now();
    let invalidated = invalidated_so_far();
    let mut alone = |why, free| {
        goes(Writers::Alone, why);
        *run = Some(Run { key, began: now, spread: None, free, threads, nodes, invalidated });
        None
    };
    let Some(safety) = safety else { return alone(RunReason::NoCpus, false) };
    if safety.how == How::Alone || threads < nodes {
        tell_code(figures, safety);
        return alone(if threads < nodes { RunReason::Small } else { RunReason::Construct }, false);
    }
    if late::is_here_alone() {
        return alone(RunReason::Library, false);
    }
    let hope = hope(threads, safety.how, settings);
    // It is so in every run: all its threads are the same workers in each. Pages of limited near memory may gain by more nodes.
    if may_be_alone && !hope.promises() && settings.near_bytes == u64::MAX {
        tell_code(figures, safety);
        return alone(RunReason::NoCpus, false);
    }
    if may_be_alone && safety.waits && settings.placing != SPREAD && may_move() {
        tell_code(figures, safety);
        return alone(RunReason::AtHome, false);
    }
    let go = if may_be_alone && may_move() { Some(placing.begin(key, now, hope)) } else { None };
    if let Some(Go { place: Place::Alone, home, .. }) = go {
        let why = match home {
            Home::Measured => RunReason::OnOrigin,
            Home::Trial => RunReason::TryOrigin,
            Home::First => RunReason::AtHome,
            Home::Thrashed => RunReason::Thrashed,
        };
        tell_code(figures, safety);
        return alone(why, true);
    }
    let known = known.entry(key).or_default();
    let (many, why) = match (safety.how, consistency()) {
        (How::Many, _) if region::is_crowded(key.function) => (false, RunReason::Twins),
        (How::Many, _) if races::wanted() => (true, RunReason::Races),
        (How::Many, Some(Consistency::Many)) => (true, RunReason::User),
        (How::Many, Some(Consistency::Smart)) => {
            (known.smart.mode() == Mode::ManyWriters, reason(known.smart.why()))
        }
        (How::Many, _) => (false, RunReason::User),
        _ => (false, safety.why),
    };
    tell_code(figures, safety);
    goes(if many { Writers::Many } else { Writers::One }, why);
    let division = if may_move() {
        let parts = known.parts.take().filter(|parts| parts.threads() == threads);
        let parts = known.parts.insert(parts.unwrap_or_else(|| Parts::new(threads, nodes)));
        Division::new(parts.parts())
    } else {
        Division::equal(threads, nodes)
    };
    if let Some(figures) = figures {
        for (node, place) in (0..nodes).zip(&figures.threads) {
            place.store(division.threads(node).count, Ordering::Relaxed);
        }
    }
    let (phases, first_come) = (safety.phases, !safety.plain);
    let calming = match known.thrashed {
        // Threads that wait for each other would wait for pages that are kept.
        _ if !may_be_alone || safety.waits => Calming::Never,
        true if !may_move() => Calming::AtOnce,
        _ => Calming::Watched,
    };
    let cpu = go.is_some_and(|go| go.measure);
    let tasks = travel(safety, settings);
    let spread = Spreading { many, phases, division, first_come, cpu, tasks, calming };
    *run =
        Some(Run { key, began: now, spread: Some(spread), free: go.is_some(), threads, nodes, invalidated });
    Some(spread)
}

fn tell_code(figures: Option<&Spread>, safety: &safety::Safety) {
    if let Some(figures) = figures.filter(|figures| figures.runs.load(Ordering::Relaxed) == 0) {
        figures.address.store(safety.address, Ordering::Relaxed);
        figures.text.set(&safety.text);
    }
}

fn reason(why: smart::ModeReason) -> RunReason {
    match why {
        smart::ModeReason::New => RunReason::New,
        smart::ModeReason::Pays => RunReason::Pays,
        smart::ModeReason::Probation(_) => RunReason::Probation,
        smart::ModeReason::FellBack => RunReason::FellBack,
        smart::ModeReason::CameBack => RunReason::CameBack,
    }
}

/// How the run that has begun is spread; none: on the origin alone.
pub(crate) fn spreading() -> Option<Spreading> {
    STATE.lock().run.as_ref().and_then(|run| run.spread)
}

/// The origin's leader is behind a region: what it took decides how the next one runs. The agent does not come here, as it must not
/// wait for a lock whose holder may fault.
pub(crate) fn ended() {
    let mut state = STATE.lock();
    let State { known, placing, run } = &mut *state;
    let Some(Run { key, began, spread, free, threads, nodes, invalidated }) = run.take() else { return };
    let ns = clock::now() - began;
    if let Some(region) = measure::end(key) {
        let figures = &region.spread;
        figures.runs.fetch_add(1, Ordering::Relaxed);
        figures.ns.fetch_add(ns, Ordering::Relaxed);
        if spread.is_none() {
            figures.alone.fetch_add(1, Ordering::Relaxed);
            figures.alone_ns.fetch_add(ns, Ordering::Relaxed);
        }
    }
    let told = if spread.is_some() { measure::parts(nodes) } else { Vec::new() };
    if free {
        let measured = spread.filter(|spread| spread.cpu);
        let cpu_ns = measured.map_or(0, |spread| {
            // Workers that wait look for messages, which takes CPU time and is no work.
            let work = |(node, part): (u32, &measure::Told)| {
                part.cpu_ns.min(part.work_ns * u64::from(spread.division.threads(node).count))
            };
            (0..nodes).zip(&told).map(work).sum()
        });
        placing.ended(Took { ns, cpu_ns, thrashed: spread.is_some() && has_thrashed() });
    }
    let (Some(_), Some(known)) = (spread, known.get_mut(&key)) else { return };
    known.thrashed |= has_thrashed();
    if consistency() == Some(Consistency::Smart) && safety::of(key.function as usize).how == How::Many {
        let count = invalidated_so_far() - invalidated;
        known.smart.ended(u32::try_from(count).unwrap_or(u32::MAX), &Rules::of(threads / nodes));
    }
    if let Some(parts) = &mut known.parts {
        let work: Vec<u64> = told.iter().map(|part| part.work_ns).collect();
        parts.ended(ns, &work, measure::dealt());
    }
}
