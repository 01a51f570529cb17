//! `atoll repro cmcp`: the CMCP paper's figures and table from simulations.
//!
//! [`plan`] says what is run, [`report`] prints it beside the paper's numbers,
//! [`claims`] judges. Source: `papers/cmcp.txt`, section 5; its numbers: `papers/cmcp.toml`.

use std::collections::BTreeMap;

use atoll_machine::{Machine, Node};
use atoll_pages::PageSize;

use super::paper::{self, Paper, Program};
use super::plan::{self, Line, Plan, TOP};
use super::store::{Point, Store};
use super::{ReproError, claims, draw, report};
use crate::cli::ReproArgs;

/// What is calibrated: the middle of the paper's 50 to 60 percent, on this program.
const CALIBRATED_ON: &str = "bt";

/// Everything that was simulated, and what for.
pub(super) struct Results {
    pub(super) paper: Paper,
    pub(super) plan: Plan,
    pub(super) store: Store,
    /// Figure 10's.
    pub(super) large: Store,
    /// Each program's best ratio p at 56 cores.
    pub(super) best: BTreeMap<String, f64>,
    /// The calibrated cycles of an instruction.
    pub(super) cycles: f64,
    /// The relative speed that was calibrated to, and reached.
    pub(super) calibrated: (f64, f64),
}

impl Results {
    /// A program's point on a line of figure 7.
    pub(super) fn point(&self, program: &Program, line: Line, cores: u32) -> Point {
        line.point(cores, program.near_percent, self.best.get(&program.name).copied().unwrap_or(0.5))
    }

    /// Simulated seconds of it.
    pub(super) fn seconds(&self, program: &Program, line: Line, cores: u32) -> Option<f64> {
        self.store.seconds(&program.name, &self.point(program, line, cores))
    }

    /// The run of a program.
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
        calibrated: (0.0, 0.0),
    };
    calibrate(args, &mut node, &mut results)?;
    for index in 0..results.plan.runs.len() {
        one(args, &node, &mut results, index)?;
    }
    report::print(&results);
    draw::figures(&results, &args.out)?;
    claims::print(&claims::claims(&results));
    Ok(())
}

/// Sets the cycles of an instruction so that FIFO at the paper's limit is as slow as the paper says.
fn calibrate(args: &ReproArgs, node: &mut Node, results: &mut Results) -> Result<(), ReproError> {
    let text = &results.paper.text;
    let wanted = (text.relative_low + text.relative_high) / 2.0;
    let missing = || ReproError::Missing(CALIBRATED_ON.to_owned());
    let program = results.paper.programs.iter().find(|p| p.name == CALIBRATED_ON).ok_or_else(missing)?;
    let run = results.run(program).ok_or_else(missing)?;
    let (trace, regions) = run.trace(args, TOP)?;
    let points = [Line::NoMovement, Line::Fifo].map(|line| line.point(TOP, program.near_percent, 0.0));
    // The slower computing is, the less the same faults matter.
    let (mut low, mut high) = (0.05_f64, 50.0_f64);
    let mut reached = 0.0;
    for _ in 0..10 {
        let cycles = (low * high).sqrt();
        node.cores.cycles_per_instruction.set(cycles, "calibrated on bt, 56 cores, FIFO, 64 % near");
        let mut store = Store::default();
        store.fill(CALIBRATED_ON, (&trace, regions.as_ref()), node, &points)?;
        reached = store.relative(CALIBRATED_ON, &points[1], &points[0]).ok_or_else(missing)?;
        if (reached - wanted).abs() < 0.002 {
            break;
        }
        if reached < wanted { low = cycles } else { high = cycles }
    }
    results.cycles = *node.cores.cycles_per_instruction;
    results.calibrated = (wanted, reached);
    Ok(())
}

/// Simulates everything of one program.
fn one(args: &ReproArgs, node: &Node, results: &mut Results, index: usize) -> Result<(), ReproError> {
    let (run, large) = (results.plan.runs[index], results.plan.large[index]);
    let missing = || ReproError::Missing(run.program.to_owned());
    let program = results.paper.programs.iter().find(|p| p.name == run.program).ok_or_else(missing)?;
    let (name, limit) = (program.name.clone(), program.near_percent);

    // At 56 cores first: figure 9 says which p is the best, and that is used for figure 7.
    let (trace, regions) = run.trace(args, TOP)?;
    let mut points: Vec<Point> = results.plan.ratios.iter().map(|&p| plan::by_ratio(limit, p)).collect();
    points.push(plan::by_near(None));
    points.extend(results.plan.near.iter().map(|&near| plan::by_near(Some(near))));
    points.extend(Line::ALL.into_iter().filter(|line| *line != Line::Cmcp).map(|l| l.point(TOP, limit, 0.0)));
    results.store.fill(&name, (&trace, regions.as_ref()), node, &points)?;
    let seconds = |p: f64| results.store.seconds(&name, &plan::by_ratio(limit, p)).unwrap_or(f64::INFINITY);
    let best = results.plan.ratios.iter().copied().min_by(|a, b| seconds(*a).total_cmp(&seconds(*b)));
    results.best.insert(name.clone(), best.unwrap_or(0.5));

    let sizes: Vec<Point> = PageSize::ALL
        .into_iter()
        .flat_map(|size| {
            let limits = results.plan.near_by_page.iter().map(|near| Some(*near));
            limits.chain([None]).map(move |near| plan::by_page(size, near))
        })
        .collect();
    if large == run {
        results.large.fill(&name, (&trace, regions.as_ref()), node, &sizes)?;
    } else {
        let (trace, regions) = large.trace(args, TOP)?;
        results.large.fill(&name, (&trace, regions.as_ref()), node, &sizes)?;
    }

    let p = results.best[&name];
    for &cores in results.plan.cores.iter().filter(|&&cores| cores != TOP) {
        let (trace, regions) = run.trace(args, cores)?;
        let points: Vec<Point> = Line::ALL.into_iter().map(|line| line.point(cores, limit, p)).collect();
        results.store.fill(&name, (&trace, regions.as_ref()), node, &points)?;
    }
    Ok(())
}
