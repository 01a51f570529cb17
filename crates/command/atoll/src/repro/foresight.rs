//! `atoll repro foresight`: the pages that each replacement policy fetches in steady state, beside Belady's MIN, which knows the future.
//!
//! No paper's: it judges this project's own policy, `adaptive`, by the targets that `docs/foresight.md` explains. The simulated pager is
//! the paper's kernel, which brings one page at a fault, so that policies differ in nothing but their victims.

use atoll_machine::{Machine, PageMode, Replacement, Tables};
use atoll_pages::PageSize;

use super::ReproError;
use super::capture::Run;
use super::kept::Kept;
use super::page::{self, tell};
use super::steps::Steps;
use super::store::{Point, Store};
use crate::cli::ReproArgs;
use crate::plot::{Figure, Scale, Series};
use crate::run::summary::write_aligned;
use crate::sim::replay::SimError;

/// The policies that are compared, the default one last.
const POLICIES: [&str; 4] = ["fifo", "lru", "cmcp", "adaptive"];
/// The near limits in percent of what the program touches.
const NEAR: [f64; 5] = [25.0, 37.0, 50.0, 64.0, 75.0];
/// The most fetches of `adaptive`, times MIN's, in programs that repeat their steps.
const TARGET: f64 = 1.15;
/// The most fetches of `adaptive`, times the best other policy's, in programs that do not.
const OTHERS_TARGET: f64 = 1.02;

/// A program, the regions of one of its steps, and whether a step uses the same pages in the same order as the one before.
struct Program {
    run: Run<'static>,
    repeats: bool,
}

/// Returns the programs, of the smaller classes for `quick`.
fn programs(quick: bool) -> Vec<Program> {
    let program = |program, classes: [&'static str; 2], options, regions, repeats| Program {
        run: Run {
            program,
            class: classes[usize::from(!quick)],
            iterations: 1,
            options,
            regions,
            filter: 32,
            parts: (1, 1),
        },
        repeats,
    };
    vec![
        program("cg", ["W", "A"], &["--steps", "1"], &["conjugate_gradient", "power_step"], true),
        program("lu", ["W", "A"], &[], &["relax", "cfd_add", "compute_rhs"], true),
        program(
            "bt",
            ["W", "A"],
            &[],
            &["x_solve", "y_solve", "z_solve", "cfd_add", "cfd_compute_rhs"],
            true,
        ),
        program(
            "sp",
            ["W", "A"],
            &[],
            &[
                "to_x",
                "x_solve",
                "x_to_y",
                "y_solve",
                "y_to_z",
                "z_solve",
                "from_z",
                "cfd_add",
                "cfd_compute_rhs",
            ],
            true,
        ),
        program(
            "stencil",
            ["W", "A"],
            &[],
            &["linearise_pressure", "fill_halo", "diffuse", "diagnose", "carry", "advance", "saturate"],
            true,
        ),
        program("pagerank", ["W", "A"], &[], &["divide", "pull"], false),
        program("lookups", ["W", "A"], &[], &["main"], false),
    ]
}

/// What one program fetches with a number of workers.
struct Row {
    program: &'static str,
    workers: u32,
    repeats: bool,
    /// Pages fetched: by near limit, for each policy, and MIN's behind them.
    fetches: Vec<[f64; POLICIES.len() + 1]>,
}

impl Row {
    /// Returns a policy's fetches, times MIN's, at a near limit; `None` where MIN fetches nothing.
    fn times(&self, policy: usize, near: usize) -> Option<f64> {
        let row = &self.fetches[near];
        (row[POLICIES.len()] > 0.0).then(|| row[policy] / row[POLICIES.len()])
    }

    /// Returns the default policy's fetches, times those of the best other policy.
    fn against_others(&self, near: usize) -> Option<f64> {
        let (default, others) = self.fetches[near][..POLICIES.len()].split_last()?;
        let best = others.iter().copied().fold(f64::INFINITY, f64::min);
        (best > 0.0).then(|| default / best)
    }
}

/// Simulates everything and prints it.
pub(super) fn foresight(args: &ReproArgs) -> Result<(), ReproError> {
    let machine = Machine::shipped("knc-5110p").map_err(SimError::from)?;
    let workers: &[u32] = if args.quick { &[2] } else { &[2, 8, 56] };
    let kept = Kept::open(&args.out.join("foresight-results.jsonl"))?;
    let programs = programs(args.quick);
    let mut steps = Steps::new("foresight", programs.len() * workers.len());
    let mut rows = Vec::new();
    for Program { run, repeats } in &programs {
        for &workers in workers {
            steps.next(&format!("{} {} with {workers} workers", run.program, run.class));
            let (trace, counted) = run.trace(args, workers)?;
            let point = |near: f64, policy: &str| Point {
                cores: workers,
                near: Some(near),
                page: PageMode::One(PageSize::K4),
                tables: Tables::Private,
                policy: policy.parse().unwrap_or(Replacement::None),
            };
            let names = || POLICIES.into_iter().chain(["min"]);
            let points: Vec<Point> =
                NEAR.iter().flat_map(|&near| names().map(move |name| point(near, name))).collect();
            let mut store = Store::default();
            store.fill(run.program, (&trace, counted.as_ref()), (machine.node(), &kept), &points)?;
            let fetches = points.chunks(POLICIES.len() + 1).map(|points| {
                let mut row = [0.0; POLICIES.len() + 1];
                for (place, point) in row.iter_mut().zip(points) {
                    let outcome = store.get(run.program, point);
                    *place = outcome.map_or(0.0, |outcome| outcome.total().counts.page_ins() as f64);
                }
                row
            });
            rows.push(Row { program: run.program, workers, repeats: *repeats, fetches: fetches.collect() });
        }
    }
    print(&rows);
    draw(&rows, args)
}

fn print(rows: &[Row]) {
    tell!("Pages fetched in steady state, times those of Belady's MIN, by percent of the footprint near");
    let mut lines = vec![vec!["".to_owned(), "workers".to_owned(), "policy".to_owned()]];
    lines[0].extend(NEAR.map(|near| format!("{near}%")));
    for row in rows {
        for (index, policy) in POLICIES.iter().enumerate() {
            let mut line = vec![row.program.to_owned(), row.workers.to_string(), (*policy).to_owned()];
            line.extend((0..NEAR.len()).map(|near| said(row.times(index, near))));
            lines.push(line);
        }
        let mut line = vec![row.program.to_owned(), row.workers.to_string(), "MIN, pages".to_owned()];
        line.extend(row.fetches.iter().map(|row| format!("{}", row[POLICIES.len()])));
        lines.push(line);
    }
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_aligned(&mut text, &lines);
    page::tell_text(&text);
    tell!("\nTargets");
    let default = POLICIES.len() - 1;
    let of = |repeats: bool| rows.iter().filter(move |row| row.repeats == repeats);
    let by_min =
        of(true).flat_map(|row| (0..NEAR.len()).map(move |near| (row, near, row.times(default, near))));
    tell!("  {}", target("programs that repeat their steps: adaptive over MIN", TARGET, by_min));
    let by_others =
        of(false).flat_map(|row| (0..NEAR.len()).map(move |near| (row, near, row.against_others(near))));
    tell!("  {}", target("others: adaptive over the best other policy", OTHERS_TARGET, by_others));
}

/// Returns a target's line: the worst of all cases, and how many cases meet it.
fn target<'r>(what: &str, most: f64, cases: impl Iterator<Item = (&'r Row, usize, Option<f64>)>) -> String {
    let cases: Vec<(&Row, usize, f64)> =
        cases.filter_map(|(row, near, times)| Some((row, near, times?))).collect();
    let Some((row, near, worst)) = cases.iter().max_by(|a, b| a.2.total_cmp(&b.2)) else {
        return format!("{what}, at most {most}: nothing was measured");
    };
    let met = cases.iter().filter(|(_, _, times)| *times <= most).count();
    format!(
        "{what}, at most {most}: {:.2} at worst ({} with {} workers, {}% near), {met} of {} cases: {}",
        worst,
        row.program,
        row.workers,
        NEAR[*near],
        cases.len(),
        if met == cases.len() { "met" } else { "not met" }
    )
}

fn said(times: Option<f64>) -> String {
    times.map_or("-".to_owned(), |times| format!("{times:.2}"))
}

/// Returns the geometric mean over the programs that repeat their steps.
fn mean(rows: &[Row], policy: usize, near: usize) -> Option<f64> {
    let all: Vec<f64> =
        rows.iter().filter(|row| row.repeats).filter_map(|row| row.times(policy, near)).collect();
    let sum: f64 = all.iter().map(|times| times.ln()).sum();
    (!all.is_empty()).then(|| (sum / all.len() as f64).exp())
}

fn draw(rows: &[Row], args: &ReproArgs) -> Result<(), ReproError> {
    let series = POLICIES.iter().enumerate().map(|(policy, name)| Series {
        name: (*name).to_owned(),
        points: (0..NEAR.len()).filter_map(|near| Some((NEAR[near], mean(rows, policy, near)?))).collect(),
    });
    let figure = Figure {
        file: "foresight-min".into(),
        title: "Pages fetched, times Belady's MIN: cg, lu, bt, sp, stencil".into(),
        x: "percent of memory near",
        y: "times MIN, geometric mean",
        scale: Scale::Plain,
        series: series.collect(),
    };
    let path = args.out.join("foresight-min.svg");
    figure.draw(&path).map_err(|what| ReproError::Draw(path.display().to_string(), what))?;
    tell!("\nfigure: {}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(program: &'static str, repeats: bool, fetches: [f64; 5]) -> Row {
        Row { program, workers: 2, repeats, fetches: vec![fetches; NEAR.len()] }
    }

    #[test]
    fn a_target_names_its_worst_case_and_counts_those_that_meet_it() {
        let rows = [
            row("cg", true, [200.0, 190.0, 150.0, 110.0, 100.0]),
            row("bt", true, [9.0, 9.0, 9.0, 6.0, 4.0]),
        ];
        let cases = rows.iter().map(|row| (row, 1, row.times(3, 1)));
        assert_eq!(
            target("over MIN", TARGET, cases),
            "over MIN, at most 1.15: 1.50 at worst (bt with 2 workers, 37% near), 1 of 2 cases: not met"
        );
        let mean = mean(&rows, 3, 0).unwrap();
        assert!((mean - (1.1_f64 * 1.5).sqrt()).abs() < 1e-9);
    }

    #[test]
    fn a_program_that_fits_has_no_figure_and_fails_no_target() {
        let fits = row("cg", true, [0.0; 5]);
        assert_eq!((fits.times(0, 0), fits.against_others(0)), (None, None));
        assert!(
            target("x", 1.0, [(&fits, 0, fits.times(3, 0))].into_iter()).ends_with("nothing was measured")
        );
        assert_eq!(row("x", false, [20.0, 10.0, 15.0, 12.0, 5.0]).against_others(0), Some(1.2));
    }
}
