//! The table without flags: atoll with no flag but `--near`, beside native, Linux swap and the best flags found by hand.
//!
//! It is made of the same sheets and rounds as [`full`] is. `plan` has its programs and subjects, `targets` its
//! targets. Nothing is calibrated here: `--near` is the limit that swap gets, as a user would write it.

use std::time::Duration;

use atoll_bench_common::table;

use crate::Options;
use crate::bench::{Bench, Places};
use crate::error::Error;
use crate::part::{Cell, Part};
use crate::sheet::{KILLED, Sheet, mebibytes};
use crate::subject::{Atoll, Device, Subject};
use crate::{full, plan, report, targets};

const RUNS: u32 = 3;
const RUNS_QUICK: u32 = 1;
/// The longest time of a run in seconds.
const TIMEOUT: u64 = 90;
/// A run under swap is cut once it took this many times as long as atoll's defaults.
const PATIENCE: f64 = 12.0;
/// The most runs under swap until one is not killed: fewer than elsewhere, as there are more programs.
const KILLED_AT_MOST: u32 = 3;

/// Measures; returns `false` if a run failed or its result was wrong.
pub(crate) fn no_flags(options: &Options) -> Result<bool, Error> {
    let places =
        Places::beside("lookups", options.atoll.clone(), options.programs_dir.clone(), options.dir.clone())?;
    let programs =
        full::chosen(options, if options.quick { &plan::NO_FLAGS_QUICK } else { &plan::NO_FLAGS })?;
    let swap_bytes = if options.quick { full::SWAP_BYTES_QUICK } else { full::SWAP_BYTES };
    let timeout = Duration::from_secs(options.timeout.unwrap_or(TIMEOUT));
    let mut bench = Bench::new(places, timeout, swap_bytes, 0, &options.zram_algorithm)?;
    bench.killed_at_most = KILLED_AT_MOST;
    println!("{}", full::machine(&bench));

    let mut sheets = Vec::new();
    for program in programs {
        let mut sheet = Sheet::new(&bench, program, options.percent)?;
        sheet.patience = Some(PATIENCE);
        let cell = |subject: Subject| {
            let mut cell = Cell::new(subject);
            cell.out = bench.refused(&cell.subject);
            cell
        };
        let asked = |subject: &Subject| full::asked(options, subject);
        sheet.all.cells = plan::no_flags_all().into_iter().filter(asked).map(cell).collect();
        sheet.limited.cells = plan::no_flags_limited().into_iter().filter(asked).map(cell).collect();
        sheets.push(sheet);
    }
    let runs = options.runs.unwrap_or(if options.quick { RUNS_QUICK } else { RUNS });
    let budget = Duration::from_secs(60 * options.budget);
    full::rounds(&bench, runs, budget, |bench| full::round(&mut sheets, bench))?;

    println!(
        "\nNo flag but --near, {}% of the footprint; medians\n{}",
        options.percent,
        limited(&sheets).trim_end()
    );
    for sheet in &sheets {
        for remark in sheet.limited.cells.iter().chain(&sheet.all.cells).filter_map(report::remark) {
            println!("  {} {}, {remark}", sheet.program.name, sheet.program.class);
        }
    }
    println!("\nNo flag, all memory near or nearly all\n{}", all(&sheets));
    println!("Targets");
    for line in targets::no_flags(&sheets, options.percent) {
        println!("{line}");
    }
    full::finish(options, &sheets, None)
}

/// Returns what a table says of a subject: its seconds, or why there are none.
fn said(part: &Part, subject: &Subject) -> String {
    match part.cell(subject) {
        Some(cell) => match (cell.figure(), cell.out.as_deref()) {
            (Some(figure), _) if figure.cut => format!("{:.1} timed out", figure.median),
            (Some(figure), _) => report::seconds(&figure),
            (None, Some(KILLED)) => "killed".to_owned(),
            (None, _) => "failed or left out".to_owned(),
        },
        None => "not run".to_owned(),
    }
}

/// Returns the table at part of the memory, in seconds.
fn limited(sheets: &[Sheet]) -> String {
    let heads =
        ["s", "footprint", "--near", "native", "swap zram", "swap file", "defaults", "best by hand", ""];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows[0].push("swap / defaults".to_owned());
    for sheet in sheets {
        let part = &sheet.limited;
        let best = targets::best_by_hand(sheet);
        let flags = best.as_ref().map_or(String::new(), |(subject, _)| {
            let words = subject.atoll().map(|atoll| [atoll.far, atoll.page]).into_iter().flatten().flatten();
            words.collect::<Vec<&str>>().join(" ")
        });
        rows.push(vec![
            format!("{} {}", sheet.program.name, sheet.program.class),
            mebibytes(sheet.footprint),
            mebibytes(sheet.limit),
            said(part, &Subject::Native),
            said(part, &Subject::Swap(Device::Zram)),
            said(part, &Subject::Swap(Device::File)),
            said(part, &Subject::Atoll(plan::DEFAULTS)),
            best.map_or("-".to_owned(), |(subject, _)| said(part, &subject)),
            flags,
            match targets::swap_over_defaults(sheet) {
                Some(ratio) => format!("{}{:.2}", if ratio.at_least { ">=" } else { "" }, ratio.times),
                None => "-".to_owned(),
            },
        ]);
    }
    table(&rows)
}

/// Returns the table with all or nearly all memory near, in seconds and times native.
fn all(sheets: &[Sheet]) -> String {
    let subjects = plan::no_flags_all();
    let mut rows = vec![vec!["s (times native)".to_owned()]];
    rows[0].extend(subjects.iter().map(|subject| match subject.atoll() {
        Some(Atoll { percent: Some(percent), .. }) => format!("--near {percent}%"),
        Some(_) => "no flag".to_owned(),
        None => "native".to_owned(),
    }));
    for sheet in sheets {
        let native = sheet.all.median(&Subject::Native);
        let mut row = vec![format!("{} {}", sheet.program.name, sheet.program.class)];
        row.extend(subjects.iter().map(|subject| {
            let times = sheet.all.median(subject).zip(native).filter(|_| *subject != Subject::Native);
            let times = times.map(|(figure, native)| format!(" ({:.2})", figure.median / native.median));
            format!("{}{}", said(&sheet.all, subject), times.unwrap_or_default())
        }));
        rows.push(row);
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_says_why_there_is_no_figure() {
        let zram = Subject::Swap(Device::Zram);
        let mut cell = Cell::new(zram.clone());
        cell.out = Some(KILLED.to_owned());
        let part = Part { words: Vec::new(), checksum: String::new(), cells: vec![cell] };
        assert_eq!(said(&part, &zram), "killed");
        assert_eq!(said(&part, &Subject::Swap(Device::File)), "not run");
    }
}
