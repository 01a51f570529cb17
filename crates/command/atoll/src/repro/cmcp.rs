//! `atoll repro cmcp`: the CMCP paper's figures and table from simulations.
//!
//! [`plan`] says what is run, [`report`] prints it beside the paper's numbers, and [`claims`] judges. Source:
//! `papers/cmcp.txt`, section 5; its numbers: `papers/cmcp.toml`.

use std::collections::BTreeMap;

use atoll_machine::{Machine, Node};
use atoll_pages::PageSize;

use super::paper::{self, Paper, Program};
use super::plan::{self, Line, Plan, TOP};
use super::steps::Steps;
use super::store::{Point, Store};
use super::{ReproError, claims, draw, report};
use crate::cli::ReproArgs;

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
    /// The cycles of an instruction: those of the machine's file unless a major fault would have to take less than no time.
    pub(super) cycles: f64,
    /// The calibrated work of a major fault, in nanoseconds.
    pub(super) major: f64,
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
    pub(super) fn run(&self, program: &Program) -> Option<&super::capture::Run> {
        self.plan.runs.iter().find(|run| run.program == program.name)
    }
}

/// Runs everything and prints it.
pub(super) fn cmcp(args: &ReproArgs) -> Result<(), ReproError> {
    let paper = paper::cmcp().map_err(ReproError::Paper)?;
    let machine = Machine::shipped("knc-5110p").map_err(crate::sim::replay::SimError::from)?;
    let mut node = machine.node().clone();
    let mut results = Results {
        paper,
        plan: plan::plan(args.quick),
        store: Store::default(),
        large: Store::default(),
        best: BTreeMap::new(),
        cycles: 0.0,
        major: 0.0,
        calibrated: (0.0, 0.0),
    };
    let mut steps = Steps::new("cmcp", steps_of(&results.plan));
    steps.next(&format!("calibrating on {CALIBRATED_ON} with {TOP} workers"));
    calibrate(args, &mut node, &mut results)?;
    for index in 0..results.plan.runs.len() {
        one(args, &node, &mut results, (index, &mut steps))?;
    }
    report::print(&results);
    draw::figures(&results, &args.out)?;
    claims::print(&claims::claims(&results));
    Ok(())
}

/// Returns the number of steps: the calibration, and for each program 56 cores, all page sizes, and each of the other numbers
/// of cores.
fn steps_of(plan: &Plan) -> usize {
    let others = plan.cores.iter().filter(|&&cores| cores != TOP).count();
    1 + plan.runs.len() * (2 + others)
}

/// The longest work of a major fault that calibration tries, in nanoseconds.
const MOST_WORK: f64 = 200e3;
/// The most cycles of an instruction that calibration tries.
const MOST_CYCLES: f64 = 50.0;
/// Relative speeds that differ by less are the same.
const REACHED: f64 = 0.002;

/// Sets the work of a major fault, which nobody has measured, so that FIFO at the paper's limit is as slow as the paper
/// says. An instruction takes the cycles that the machine's file bounds it by; more only if that speed is not reached with no work
/// at all.
fn calibrate(args: &ReproArgs, node: &mut Node, results: &mut Results) -> Result<(), ReproError> {
    let text = &results.paper.text;
    let wanted = (text.relative_low + text.relative_high) / 2.0;
    let missing = || ReproError::Missing(CALIBRATED_ON.to_owned());
    let program = results.paper.programs.iter().find(|p| p.name == CALIBRATED_ON).ok_or_else(missing)?;
    let run = results.run(program).ok_or_else(missing)?;
    let (trace, regions) = run.trace(args, TOP)?;
    let points = [Line::NoMovement, Line::Fifo].map(|line| line.point(TOP, program.near_percent, 0.0));
    let relative = |node: &Node| {
        let mut store = Store::default();
        store.fill(CALIBRATED_ON, (&trace, regions.as_ref()), node, &points)?;
        store.relative(CALIBRATED_ON, &points[1], &points[0]).ok_or_else(missing)
    };
    let source = "calibrated on bt, 56 cores, FIFO, 64 % near";
    node.fault.major_ns.set(0.0, source);
    let mut reached = relative(node)?;
    if reached > wanted {
        reached = approach(wanted, (MOST_WORK, 0.0), |work| {
            node.fault.major_ns.set(work, source);
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
    results.major = *node.fault.major_ns;
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
    node: &Node,
    results: &mut Results,
    (index, steps): (usize, &mut Steps),
) -> Result<(), ReproError> {
    let (run, large) = (results.plan.runs[index], results.plan.large[index]);
    let missing = || ReproError::Missing(run.program.to_owned());
    let program = results.paper.programs.iter().find(|p| p.name == run.program).ok_or_else(missing)?;
    let (name, limit) = (program.name.clone(), program.near_percent);

    // The points at 56 cores come first: figure 9 says which p is the best, and figure 7 uses that one.
    steps.next(&format!("{name} {} with {TOP} workers: ratios, near limits, policies", run.class));
    let (trace, regions) = run.trace(args, TOP)?;
    let mut points: Vec<Point> = results.plan.ratios.iter().map(|&p| plan::by_ratio(limit, p)).collect();
    points.push(plan::by_near(None));
    points.extend(results.plan.near.iter().map(|&near| plan::by_near(Some(near))));
    points.extend(Line::ALL.into_iter().filter(|line| *line != Line::Cmcp).map(|l| l.point(TOP, limit, 0.0)));
    results.store.fill(&name, (&trace, regions.as_ref()), node, &points)?;
    let seconds = |p: f64| results.store.seconds(&name, &plan::by_ratio(limit, p)).unwrap_or(f64::INFINITY);
    let best = results.plan.ratios.iter().copied().min_by(|a, b| seconds(*a).total_cmp(&seconds(*b)));
    results.best.insert(name.clone(), best.unwrap_or(0.5));
    results.store.fill(&name, (&trace, regions.as_ref()), node, &plan::halves(results.best[&name]))?;

    let sizes: Vec<Point> = PageSize::ALL
        .into_iter()
        .flat_map(|size| {
            let limits = results.plan.near_by_page.iter().map(|near| Some(*near));
            limits.chain([None]).map(move |near| plan::by_page(size, near))
        })
        .collect();
    steps.next(&format!("{name} {} with {TOP} workers: page sizes", large.class));
    if large == run {
        results.large.fill(&name, (&trace, regions.as_ref()), node, &sizes)?;
    } else {
        let (trace, regions) = large.trace(args, TOP)?;
        results.large.fill(&name, (&trace, regions.as_ref()), node, &sizes)?;
    }

    let p = results.best[&name];
    for &cores in results.plan.cores.iter().filter(|&&cores| cores != TOP) {
        steps.next(&format!("{name} {} with {cores} workers: policies", run.class));
        let (trace, regions) = run.trace(args, cores)?;
        let points: Vec<Point> = Line::ALL.into_iter().map(|line| line.point(cores, limit, p)).collect();
        results.store.fill(&name, (&trace, regions.as_ref()), node, &points)?;
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
        let slower = |work: f64| Ok::<_, Infallible>(1.0 / (1.0 + work / 1e4));
        assert!((approach(0.55, (MOST_WORK, 0.0), slower).unwrap() - 0.55).abs() < REACHED);
    }
}
