//! `atoll bench segment`: runs RandomAccess and Graph500 in a direct segment, beside 4K, 2M and 1G pages, and judges the
//! targets.
//!
//! `crate::translations` runs them, with the same binary each time. Huge pages are reserved meanwhile, as root.

use std::time::Duration;

use atoll_memory::segment::PageKind;

use super::BenchError;
use super::output::Output;
use super::table::{Cell, Table};
use crate::cli::SegmentBenchArgs;
use crate::machine::meminfo;
use crate::run::summary::bytes;
use crate::translations::rounds::{rate, skipped};
use crate::translations::{Measured, Plan, Translation, Workload, measure};

/// The targets for the segment's speed over 4K pages, for RandomAccess and Graph500.
const OVER_4K: [f64; 2] = [1.5, 1.1];
/// A program is no slower if it is not slower than this share, by which two measurements of the same differ here.
const SAME: f64 = 0.98;

const TRANSLATIONS: [Translation; 6] = [
    Translation::Native(None),
    Translation::Native(Some(PageKind::Huge2M)),
    Translation::Native(Some(PageKind::Huge1G)),
    Translation::Segment(PageKind::Transparent),
    Translation::Segment(PageKind::Huge2M),
    Translation::Segment(PageKind::Huge1G),
];

/// Returns RandomAccess on a table of 2^`log` words.
pub(crate) fn randomaccess(log: u32, iterations: u32) -> Workload {
    let arguments =
        ["C", "--log-words", &log.to_string(), "--iterations", &iterations.to_string()].map(str::to_owned);
    Workload { program: "randomaccess", arguments: arguments.to_vec(), bytes: 8 << log, blocks: 2 }
}

/// Returns Graph500 of a class, of the size that the programs' README says.
pub(crate) fn graph500(class: char, roots: u32) -> Workload {
    let bytes = match class {
        'C' => 2200 << 20,
        'B' => 560 << 20,
        _ => 72 << 20,
    };
    let arguments = [class.to_string(), "--iterations".to_owned(), roots.to_string()];
    Workload { program: "graph500", arguments: arguments.to_vec(), bytes, blocks: 8 }
}

/// The most time of the eight minutes that each part may take: RandomAccess and Graph500, then each i386 program beside Linux.
const BUDGETS: [Duration; 2] = [Duration::from_secs(210), Duration::from_secs(120)];
pub(super) const CORES_BUDGET: Duration = Duration::from_secs(30);

/// The sizes of the table and the graph that the targets are for.
const TABLE: u64 = 4 << 30;
const GRAPH: char = 'B';

/// Measures, and judges the targets.
pub(super) fn bench(args: &SegmentBenchArgs) -> Result<(), BenchError> {
    let (table_bytes, class, rounds) = if args.quick {
        (512 << 20, 'A', 1)
    } else {
        (args.size.0, args.graph.chars().next().unwrap_or(GRAPH), args.rounds as usize)
    };
    let roots = if class == 'A' { 16 } else { 4 };
    let loads = [randomaccess((table_bytes / 8).ilog2(), 1), graph500(class, roots)];
    let smaller = [table_bytes < TABLE, class == 'A'];
    let plan = Plan {
        programs: args.programs.clone(),
        rounds,
        workers: args.workers,
        limit: Duration::from_secs(args.limit),
        budget: Duration::MAX,
    };
    println!("{}", needs(&loads, args.workers));
    let output = Output::new(args.output.as_deref())?;
    let mut lines = Vec::new();
    let mut worst = Some(0);
    for (((load, least), budget), smaller) in loads.iter().zip(OVER_4K).zip(BUDGETS).zip(smaller) {
        println!(
            "\n{} {}: {} with {} worker{}, the best of at most {rounds} round{}",
            load.program,
            load.arguments.join(" "),
            bytes(load.bytes),
            plan.workers,
            plural(plan.workers as usize),
            plural(rounds)
        );
        let all = measure(&TRANSLATIONS, load, &Plan { budget, ..plan.clone() });
        output.table(load.program, &table(&all))?;
        print!("{}", skipped(&all));
        worst = faults(&all).and_then(|n| Some(n.max(worst?)));
        lines.extend(targets(load, &all, least, smaller));
    }
    println!("\nsegmentation cores");
    let (calls, programs, more) = super::cores::bench(&plan);
    output.table("calls", &calls)?;
    output.table("i386", &programs)?;
    lines.extend(more);
    println!("\nTargets");
    for line in lines {
        println!("  {line}");
    }
    let (found, verdict) = match worst {
        Some(n) => (n.to_string(), judged(n == 0)),
        None => ("not counted".to_owned(), "not met"),
    };
    println!("  page faults of any worker after the start: none; {found}: {verdict}");
    Ok(())
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// Returns what the workloads need of this machine, one after the other, and what it has.
fn needs(loads: &[Workload], workers: u32) -> String {
    let pages = |kind: PageKind, load: &Workload| {
        let needed = TRANSLATIONS
            .iter()
            .filter_map(|translation| translation.pages(load, workers))
            .filter(|(k, _)| *k == kind);
        needed.map(|(_, pages)| pages).max().unwrap_or(0)
    };
    let most = |of: &dyn Fn(&Workload) -> u64| loads.iter().map(of).max().unwrap_or(0);
    let [giant, huge] = [PageKind::Huge1G, PageKind::Huge2M].map(|kind| most(&|load| pages(kind, load)));
    let all = most(&|load| {
        let own = load.bytes + load.bytes / 16;
        (pages(PageKind::Huge1G, load) << 30) + (pages(PageKind::Huge2M, load) << 21) + own
    });
    format!(
        "needs {giant} pages of 1G and {huge} of 2M, reserved meanwhile (as root; {} and {} are free), {} of memory at once in all, of which \
         {} are available. What cannot be had is left out",
        PageKind::Huge1G.free(),
        PageKind::Huge2M.free(),
        bytes(all),
        bytes(meminfo("MemAvailable").unwrap_or(0))
    )
}

pub(super) fn judged(met: bool) -> &'static str {
    if met { "met" } else { "not met" }
}

/// Returns the most faults of any run in a segment; `None` if one was not counted, or none ran.
fn faults(all: &[Measured]) -> Option<u64> {
    let ran = all.iter().filter(|m| matches!(m.translation, Translation::Segment(_)) && m.runs.is_ok());
    ran.map(Measured::faults).collect::<Option<Vec<u64>>>()?.into_iter().max()
}

/// Returns the table of one workload's runs.
fn table(all: &[Measured]) -> Table {
    let (small, large) =
        (rate(all, Translation::Native(None)), rate(all, Translation::Native(Some(PageKind::Huge2M))));
    let mut table =
        Table::new(["translation", "speed", "to 4K", "to 2M", "rounds", "faults", "physical pieces"]);
    for measured in all.iter().filter(|m| m.runs.is_ok()) {
        let speed = measured.rate();
        let over = |base: Option<f64>| Cell::number(speed.and_then(|speed| Some(speed / base?)), 2);
        let pieces = measured.runs.as_ref().ok().and_then(|runs| runs.last()?.pieces);
        table.row(vec![
            measured.translation.name().into(),
            speed.map_or(Cell::Nothing, |speed| crate::translations::rounds::speed(speed).into()),
            over(small),
            over(large),
            measured.runs.as_ref().map_or(0, Vec::len).to_string().into(),
            Cell::number(measured.faults().map(|n| n as f64), 0),
            pieces.map_or(Cell::Nothing, |(count, largest)| {
                format!("{count}, largest {}", bytes(largest)).into()
            }),
        ]);
    }
    table
}

/// Returns the targets' lines of one workload.
fn targets(load: &Workload, all: &[Measured], least: f64, smaller: bool) -> Vec<String> {
    let name = format!("{}, {}", load.program, bytes(load.bytes));
    let small = if smaller { " (smaller than the target means)" } else { "" };
    let best =
        [PageKind::Huge1G, PageKind::Huge2M, PageKind::Transparent].into_iter().map(Translation::Segment);
    let Some((translation, speed)) =
        best.filter_map(|translation| Some((translation, rate(all, translation)?))).next()
    else {
        return vec![format!("{name}: no segment ran: not met")];
    };
    let mut lines = Vec::new();
    let mut line = |base: Translation, least: f64, words: &str| {
        let Some(base_speed) = rate(all, base) else {
            lines.push(format!("{name}: {} did not run, nothing to compare with: not met", base.name()));
            return;
        };
        let ratio = speed / base_speed;
        lines.push(format!(
            "{name}: {} {words}; {ratio:.2} times{small}: {}",
            translation.name(),
            judged(ratio >= least)
        ));
    };
    line(Translation::Native(None), least, &format!("at least {least} times 4K pages"));
    line(
        Translation::Native(Some(PageKind::Huge2M)),
        SAME,
        &format!("no slower than 2M pages (at least {SAME} times)"),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translations::outcome::Outcome;

    fn ran(translation: Translation, rates: &[f64], faults: Option<u64>) -> Measured {
        let run = |&rate: &f64| Outcome { rate, faults, pieces: None, noise: None, walks: None };
        Measured { translation, runs: Ok(rates.iter().map(run).collect()) }
    }

    #[test]
    fn targets_are_judged_by_the_best_rounds() {
        let all = [
            ran(Translation::Native(None), &[1.0, 2.0], None),
            ran(Translation::Native(Some(PageKind::Huge2M)), &[3.0, 2.0], None),
            Measured { translation: Translation::Segment(PageKind::Huge1G), runs: Err("no pages".into()) },
            ran(Translation::Segment(PageKind::Huge2M), &[2.0, 2.97], Some(0)),
        ];
        let lines = targets(&randomaccess(29, 1), &all, 1.5, false);
        assert!(lines[0].ends_with("1.49 times: not met"), "{lines:?}");
        assert!(lines[1].ends_with("0.99 times: met"), "{lines:?}");
        assert_eq!(faults(&all), Some(0));
        assert_eq!(faults(&[ran(Translation::Segment(PageKind::Huge2M), &[1.0], None)]), None);
        assert!(targets(&randomaccess(29, 1), &all[..2], 1.5, false)[0].ends_with("not met"));
        assert!(skipped(&all).contains("skipped: no pages"));
        let needs = needs(&[randomaccess(29, 1), graph500('B', 4)], 1);
        assert!(needs.starts_with("needs 11 pages of 1G and 2"), "{needs}");
    }
}
