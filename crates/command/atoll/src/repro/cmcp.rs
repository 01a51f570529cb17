//! `atoll repro cmcp`: the CMCP paper's figures and table from simulations.
//!
//! [`plan`] says what is run, [`report`] prints it beside the paper's numbers, and [`claims`] judges. Source:
//! `papers/cmcp.txt`, section 5; its numbers: `papers/cmcp.toml`.

use std::collections::{BTreeMap, HashMap};

use atoll_machine::{Machine, Node};
use atoll_pages::PageSize;
use atoll_record::trace::reader::read_trailer;

use super::capture::Run;
use super::kept::Kept;
use super::paper::{self, Paper, Program};
use super::plan::{self, Line, Plan, TOP};
use super::steps::Steps;
use super::store::{Point, Store};
use super::{ReproError, claims, draw, report};
use crate::cli::ReproArgs;
use crate::sim::replay::SimError;

/// The program that is calibrated on: to the middle of the paper's 50 to 60 percent.
const CALIBRATED_ON: &str = "bt";

/// All simulations, and their parameters.
pub(super) struct Results {
    pub(super) paper: Paper,
    pub(super) plan: Plan,
    pub(super) store: Store,
    /// The results of figure 10.
    pub(super) large: Store,
    /// Each program's best ratio p at 56 cores.
    pub(super) best: BTreeMap<String, f64>,
    /// The cycles of an instruction: those of the machine's file unless an interrupt would have to take less than no time.
    pub(super) cycles: f64,
    /// The calibrated time of being interrupted, in nanoseconds.
    pub(super) receive: f64,
    /// The relative speed that was calibrated to, and the one that was reached.
    pub(super) calibrated: (f64, f64),
}

impl Results {
    /// Returns a program's point on a line of figure 7.
    pub(super) fn point(&self, program: &Program, line: Line, cores: u32) -> Point {
        line.point(cores, program.near_percent, self.best.get(&program.name).copied().unwrap_or(0.5))
    }

    /// Returns the simulated seconds of a point.
    pub(super) fn seconds(&self, program: &Program, line: Line, cores: u32) -> Option<f64> {
        self.store.seconds(&program.name, &self.point(program, line, cores))
    }

    /// Returns the run of a program.
    pub(super) fn run(&self, program: &Program) -> Option<&Run<'static>> {
        self.plan.runs.iter().find(|run| run.program == program.name)
    }
}

/// Runs everything and prints it.
pub(super) fn cmcp(args: &ReproArgs) -> Result<(), ReproError> {
    let paper = paper::cmcp().map_err(|e| ReproError::Paper("cmcp", e))?;
    let machine = Machine::shipped("knc-5110p").map_err(SimError::from)?;
    let mut node = machine.node().clone();
    let mut results = Results {
        paper,
        plan: plan::plan(args.quick),
        store: Store::default(),
        large: Store::default(),
        best: BTreeMap::new(),
        cycles: 0.0,
        receive: 0.0,
        calibrated: (0.0, 0.0),
    };
    let kept = Kept::open(&args.out.join("cmcp-results.jsonl"))?;
    if kept.len() > 0 {
        eprintln!("atoll: {} results of an earlier run are in {}", kept.len(), kept.path().display());
    }
    let captures = captures(&results.plan);
    let mut steps = Steps::new("cmcp", captures.len() + steps_of(&results.plan));
    let mut sizes = HashMap::new();
    for (run, workers) in captures {
        steps.next(&format!("the trace of {} {} with {workers} workers", run.program, run.class));
        let path = run.captured(args, workers)?;
        let events = read_trailer(&path).map_err(|e| SimError::Trace(path.display().to_string(), e))?.events;
        sizes.insert((run.program, run.class, workers), events as f64);
    }
    let mut steps = Work { steps, sizes };
    steps.expect(&results.plan);
    steps.next(&format!("calibrating on {CALIBRATED_ON} with {TOP} workers"));
    calibrate(args, (&mut node, &kept), &mut results)?;
    for index in 0..results.plan.runs.len() {
        one(args, (&node, &kept), &mut results, (index, &mut steps))?;
    }
    report::print(&results);
    draw::figures(&results, &args.out)?;
    claims::print(&claims::claims(&results));
    Ok(())
}

/// Returns all runs that are traced, with their numbers of workers.
fn captures(plan: &Plan) -> Vec<(Run<'static>, u32)> {
    let runs = plan.runs.iter().flat_map(|run| plan.cores.iter().map(|&cores| (*run, cores)));
    let large = plan.large.iter().filter(|run| !plan.runs.contains(run)).map(|run| (*run, TOP));
    runs.chain(large).collect()
}

/// The steps, with the work of each: events times simulations.
struct Work {
    steps: Steps,
    /// The events of each trace, by program, class and number of workers.
    sizes: HashMap<(&'static str, &'static str, u32), f64>,
}

impl Work {
    fn next(&mut self, what: &str) {
        self.steps.next(what);
    }

    fn size(&self, run: &Run<'static>, workers: u32) -> f64 {
        self.sizes.get(&(run.program, run.class, workers)).copied().unwrap_or(0.0)
    }

    /// All simulations are still to be done, except those of the calibration, whose number nobody knows.
    fn expect(&mut self, plan: &Plan) {
        let [top, halves, sizes, other] = numbers(plan);
        let mut work = 0.0;
        for (run, large) in plan.runs.iter().zip(&plan.large) {
            work += self.size(run, TOP) * (top + halves) + self.size(large, TOP) * sizes;
            let others = plan.cores.iter().filter(|&&cores| cores != TOP);
            work += others.map(|&cores| self.size(run, cores) * other).sum::<f64>();
        }
        self.steps.expect(work);
    }

    /// So many of `points` simulations of a run are done; the others' results were there.
    fn did(&mut self, (run, workers): (&Run<'static>, u32), points: f64, done: usize) {
        let size = self.size(run, workers);
        self.steps.did(size * done as f64);
        self.steps.skip(size * (points - done as f64));
    }
}

/// Returns the numbers of simulations: those at 56 cores, those with half of the memory, those of page sizes, and those at another
/// number of cores.
fn numbers(plan: &Plan) -> [f64; 4] {
    let top = plan.ratios.len() + 1 + plan.near.len() + Line::ALL.len() - 1;
    let sizes = PageSize::ALL.len() * (plan.near_by_page.len() + 1);
    [top, 2 * plan::HALF_SIZES.len(), sizes, Line::ALL.len()].map(|n| n as f64)
}

/// Returns the number of steps: the calibration, and for each program 56 cores, all page sizes, and each of the other numbers
/// of cores.
fn steps_of(plan: &Plan) -> usize {
    let others = plan.cores.iter().filter(|&&cores| cores != TOP).count();
    1 + plan.runs.len() * (2 + others)
}

/// The longest time of an interrupt that calibration tries, in nanoseconds.
const MOST_TIME: f64 = 50e3;
/// The most cycles of an instruction that calibration tries.
const MOST_CYCLES: f64 = 50.0;
/// Relative speeds that differ by less are the same.
const REACHED: f64 = 0.002;

/// Sets the time of being interrupted for an invalidation, which nobody has measured, so that FIFO at the paper's limit is as slow
/// as the paper says. The paper names invalidations as what costs the time, of which LRU has more and CMCP fewer than FIFO; were
/// it the work of faults, LRU would be faster than FIFO. An instruction takes the cycles that the machine's file bounds it by; more
/// only if that speed is not reached with interrupts that take no time at all.
fn calibrate(
    args: &ReproArgs,
    (node, kept): (&mut Node, &Kept),
    results: &mut Results,
) -> Result<(), ReproError> {
    let text = &results.paper.text;
    let wanted = (text.relative_low + text.relative_high) / 2.0;
    let missing = || ReproError::Missing(CALIBRATED_ON.to_owned());
    let program = results.paper.programs.iter().find(|p| p.name == CALIBRATED_ON).ok_or_else(missing)?;
    let run = results.run(program).ok_or_else(missing)?;
    let (trace, counted) = run.trace(args, TOP)?;
    let points = [Line::NoMovement, Line::Fifo].map(|line| line.point(TOP, program.near_percent, 0.0));
    let relative = |node: &Node| {
        let mut store = Store::default();
        store.fill(CALIBRATED_ON, (&trace, counted.as_ref()), (node, kept), &points)?;
        store.relative(CALIBRATED_ON, &points[1], &points[0]).ok_or_else(missing)
    };
    let source = "calibrated on bt, 56 cores, FIFO, 64 % near";
    node.invalidation.receive_ns.set(0.0, source);
    let mut reached = relative(node)?;
    if reached > wanted {
        reached = approach(wanted, (MOST_TIME, 0.0), |time| {
            node.invalidation.receive_ns.set(time, source);
            relative(node)
        })?;
    } else if reached < wanted - REACHED {
        let bound = *node.cores.cycles_per_instruction;
        // The slower computing is, the less the same faults matter.
        reached = approach(wanted, (bound, MOST_CYCLES), |cycles| {
            node.cores.cycles_per_instruction.set(cycles, source);
            relative(node)
        })?;
    }
    results.cycles = *node.cores.cycles_per_instruction;
    results.receive = *node.invalidation.receive_ns;
    results.calibrated = (wanted, reached);
    Ok(())
}

/// Halves the interval between a number that gives too little and one that gives too much until `of` gives what is `wanted`, or
/// until both are equally good; returns what was reached.
fn approach<E>(
    wanted: f64,
    (mut little, mut much): (f64, f64),
    mut of: impl FnMut(f64) -> Result<f64, E>,
) -> Result<f64, E> {
    let mut reached = 0.0;
    for _ in 0..14 {
        let middle = (little + much) / 2.0;
        reached = of(middle)?;
        if (reached - wanted).abs() < REACHED {
            break;
        }
        if reached < wanted { little = middle } else { much = middle }
    }
    Ok(reached)
}

/// Simulates all points of one program.
fn one(
    args: &ReproArgs,
    (node, kept): (&Node, &Kept),
    results: &mut Results,
    (index, steps): (usize, &mut Work),
) -> Result<(), ReproError> {
    let (run, large) = (results.plan.runs[index], results.plan.large[index]);
    let missing = || ReproError::Missing(run.program.to_owned());
    let program = results.paper.programs.iter().find(|p| p.name == run.program).ok_or_else(missing)?;
    let (name, limit) = (program.name.clone(), program.near_percent);

    // The points at 56 cores come first: figure 9 says which p is the best, and figure 7 uses that one.
    steps.next(&format!("{name} {} with {TOP} workers: ratios, near limits, policies", run.class));
    let (trace, counted) = run.trace(args, TOP)?;
    let mut points: Vec<Point> = results.plan.ratios.iter().map(|&p| plan::by_ratio(limit, p)).collect();
    points.push(plan::by_near(None));
    points.extend(results.plan.near.iter().map(|&near| plan::by_near(Some(near))));
    points.extend(Line::ALL.into_iter().filter(|line| *line != Line::Cmcp).map(|l| l.point(TOP, limit, 0.0)));
    let mut done = results.store.fill(&name, (&trace, counted.as_ref()), (node, kept), &points)?;
    let seconds = |p: f64| results.store.seconds(&name, &plan::by_ratio(limit, p)).unwrap_or(f64::INFINITY);
    let best = results.plan.ratios.iter().copied().min_by(|a, b| seconds(*a).total_cmp(&seconds(*b)));
    results.best.insert(name.clone(), best.unwrap_or(0.5));
    let halves = plan::halves(results.best[&name]);
    done += results.store.fill(&name, (&trace, counted.as_ref()), (node, kept), &halves)?;
    let [top, half, of_sizes, other] = numbers(&results.plan);
    steps.did((&run, TOP), top + half, done);

    let sizes: Vec<Point> = PageSize::ALL
        .into_iter()
        .flat_map(|size| {
            let limits = results.plan.near_by_page.iter().map(|near| Some(*near));
            limits.chain([None]).map(move |near| plan::by_page(size, near))
        })
        .collect();
    steps.next(&format!("{name} {} with {TOP} workers: page sizes", large.class));
    let done = if large == run {
        results.large.fill(&name, (&trace, counted.as_ref()), (node, kept), &sizes)?
    } else {
        let (trace, counted) = large.trace(args, TOP)?;
        results.large.fill(&name, (&trace, counted.as_ref()), (node, kept), &sizes)?
    };
    steps.did((&large, TOP), of_sizes, done);

    let p = results.best[&name];
    for &cores in results.plan.cores.iter().filter(|&&cores| cores != TOP) {
        steps.next(&format!("{name} {} with {cores} workers: policies", run.class));
        let (trace, counted) = run.trace(args, cores)?;
        let points: Vec<Point> = Line::ALL.into_iter().map(|line| line.point(cores, limit, p)).collect();
        let done = results.store.fill(&name, (&trace, counted.as_ref()), (node, kept), &points)?;
        steps.did((&run, cores), other, done);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// The cycles of an instruction were calibrated to 1.16, where the processor takes at least 2.
    #[test]
    fn an_instruction_was_calibrated_to_take_less_than_the_processor_can() {
        let speed = |cycles: f64| Ok::<_, Infallible>(cycles / (cycles + 4.0));
        let reached = approach(0.55, (2.0, 50.0), speed).unwrap();
        assert!((reached - 0.55).abs() < REACHED);
        // A value beyond the bound is not reached.
        assert!(approach(0.1, (2.0, 50.0), speed).unwrap() > 0.3);
        let slower = |time: f64| Ok::<_, Infallible>(1.0 / (1.0 + time / 1e4));
        assert!((approach(0.55, (MOST_TIME, 0.0), slower).unwrap() - 0.55).abs() < REACHED);
    }
}
