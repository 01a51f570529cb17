//! `atoll repro segmentation`: runs programs under 4K pages, 2M pages and a segment, on this machine (`segment_runs`) and then
//! on one simulated core of the talk's machine.
//!
//! Source: `papers/hybrid-segmentation.txt`, evaluation and conclusion: 81 % over 4K pages and 9 % over 2M pages, for Graph500.
//! The talk prints no number for RandomAccess.

use atoll_machine::{Machine, Node, PageMode, Replacement, Tables};
use atoll_pages::PageSize;

use super::ReproError;
use super::capture::Run;
use super::claims::{self, Claim};
use super::kept::Kept;
use super::page::{self, tell};
use super::segment_runs;
use super::steps::Steps;
use super::store::{Point, Store};
use crate::cli::ReproArgs;
use crate::run::summary::{bytes, write_aligned};
use crate::sim::replay::{SimError, Trace};

/// The talk's gains over 4K and 2M pages, in percent.
pub(super) const OVER_4K: f64 = 81.0;
pub(super) const OVER_2M: f64 = 9.0;
/// The reach of 64 entries of 2M, in MiB.
const REACH: u32 = 128;
/// The points of percent by which a gain may differ.
const MARGIN: f64 = 5.0;

/// The programs that are simulated; the first one is calibrated on.
const SIMULATED: [&str; 2] = ["graph500", "randomaccess"];

fn point(page: PageMode) -> Point {
    Point { cores: 1, near: None, page, tables: Tables::Private, policy: Replacement::None }
}

const MODES: [PageMode; 3] = [PageMode::One(PageSize::K4), PageMode::One(PageSize::M2), PageMode::Segment];

/// Runs and simulates the programs and prints both. The claims about this machine are printed also where the simulation fails.
pub(super) fn segmentation(args: &ReproArgs) -> Result<(), ReproError> {
    let mut steps = Steps::new("segmentation", segment_runs::steps() + SIMULATED.len() + 1);
    let mut judged = segment_runs::runs(args, &mut steps);
    let simulated = simulation(args, &mut steps);
    if let Ok(claim) = &simulated {
        judged.extend(claim.clone());
    }
    claims::print(&judged);
    simulated.map(drop)
}

/// Simulates the talk's machine; returns the claim as judged there.
fn simulation(args: &ReproArgs, steps: &mut Steps) -> Result<Option<Claim>, ReproError> {
    let class = if args.quick { "A" } else { "B" };
    // The filter is smaller than any TLB, so the misses are those of the program.
    let run =
        |program| Run { program, class, iterations: 1, options: &[], regions: &[], filter: 8, parts: (1, 1) };
    let machine = Machine::shipped("knc-5110p").map_err(SimError::from)?;
    let mut node = machine.node().clone();
    let traces = SIMULATED
        .map(run)
        .into_iter()
        .map(|run| {
            steps.next(&format!("the trace of {} {}", run.program, run.class));
            Ok((run, run.trace(args, 1)?.0))
        })
        .collect::<Result<Vec<_>, ReproError>>()?;
    let Some((calibrated_on, _)) = traces.first() else { return Ok(None) };
    steps.next("simulating the talk's machine");
    let kept = Kept::open(&args.out.join("segmentation-results.jsonl"))?;
    let cycles = calibrate((&mut node, &kept), &traces[0].1, calibrated_on.program)?;
    tell!("\nSegments (Soma, Gerofi, Ishikawa, 2014) on one core of the simulated machine knc-5110p");
    tell!(
        "calibrated: {cycles:.0} cycles a walk to a 4K page, so that a segment is {OVER_4K}% better for Graph500 (the talk's figure); \
         everything else is prediction"
    );
    tell!(
        "2M entries of the TLBs reach {REACH} MB; the talk does not say how much memory its programs had (at most 4 GB)"
    );
    let heads = ["", "memory", "4K", "2M", "segment", "over 4K", "over 2M", "dTLB misses 4K", "2M"]
        .map(str::to_owned);
    let mut rows = vec![heads.to_vec()];
    let mut over_2m = None;
    for (run, trace) in &traces {
        let mut store = Store::default();
        store.fill(run.program, (trace, None), (&node, &kept), &MODES.map(point))?;
        let seconds = |mode| store.seconds(run.program, &point(mode)).unwrap_or(f64::NAN);
        let misses = |mode| {
            store.get(run.program, &point(mode)).map_or(0, |outcome| outcome.total().counts.tlb_misses)
        };
        let gain = |mode| (seconds(mode) / seconds(PageMode::Segment) - 1.0) * 100.0;
        let [small, large, segment] = MODES;
        let mut row = vec![format!("{} {}", run.program, run.class), bytes(trace.footprint(PageSize::K4))];
        row.extend([small, large, segment].map(|mode| format!("{:.4} s", seconds(mode))));
        row.extend([small, large].map(|mode| format!("{:.1}%", gain(mode))));
        row.extend([small, large].map(|mode| misses(mode).to_string()));
        rows.push(row);
        over_2m = over_2m.or(Some(gain(large)));
    }
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_aligned(&mut out, &rows);
    page::tell_text(&out);
    let ours = over_2m.unwrap_or(f64::NAN);
    Ok(Some(Claim {
        paper: format!("Graph500: a segment is {OVER_2M}% better than 2M pages"),
        ours: format!("{ours:.1}% simulated (rule: within {MARGIN} points)"),
        held: (ours - OVER_2M).abs() <= MARGIN,
        because: None,
    }))
}

/// Sets the cycles of a walk to a 4K page so that a segment gains what the talk says.
fn calibrate((node, kept): (&mut Node, &Kept), trace: &Trace, program: &str) -> Result<f64, ReproError> {
    let [small, _, segment] = MODES.map(point);
    let mut store = Store::default();
    store.fill(program, (trace, None), (node, kept), &[small, segment])?;
    // The time with pages is linear in the cycles of a walk.
    let misses = store.get(program, &small).map_or(0, |outcome| outcome.total().counts.tlb_misses);
    let seconds = |point| store.seconds(program, point).unwrap_or(0.0);
    let lacks = seconds(&segment) * (1.0 + OVER_4K / 100.0) - seconds(&small);
    let cycles = *node.walk.cycles_4k + lacks * *node.cores.clock_mhz * 1e6 / misses.max(1) as f64;
    node.walk.cycles_4k.set(cycles, "calibrated on Graph500, 4K pages");
    Ok(cycles)
}
