//! The whole measurement: all programs and all subjects, round by round, then tables and targets.

use std::time::{Duration, Instant};

use crate::Options;
use crate::bench::{Allowed, Bench, Places};
use crate::error::Error;
use crate::micro::Micro;
use crate::part::Cell;
use crate::plan::Program;
use crate::sheet::Sheet;
use crate::subject::Subject;
use crate::{plan, report, targets};

/// The longest time of a run in seconds.
const TIMEOUT: u64 = 60;
const RUNS: u32 = 5;
const RUNS_QUICK: u32 = 2;
/// The bytes of swap: twice the largest footprint, and what the microbenchmark needs.
pub(crate) const SWAP_BYTES: u64 = 1280 << 20;
pub(crate) const SWAP_BYTES_QUICK: u64 = 320 << 20;
/// The bytes of huge pages: the largest footprint, with unused ends of huge pages.
const HUGE_BYTES: u64 = 1280 << 20;
const TABLE_MEBIBYTES: u64 = 256;
const TABLE_MEBIBYTES_QUICK: u64 = 64;

/// Measures; returns `false` if a run failed or its result was wrong.
pub(crate) fn full(options: &Options) -> Result<bool, Error> {
    let places =
        Places::beside("cg", options.atoll.clone(), options.programs_dir.clone(), options.dir.clone())?;
    let programs = chosen(options, if options.quick { &plan::QUICK } else { &plan::FULL })?;
    let swap_bytes = if options.quick { SWAP_BYTES_QUICK } else { SWAP_BYTES };
    let timeout = Duration::from_secs(options.timeout.unwrap_or(TIMEOUT));
    let bench = Bench::new(places, timeout, swap_bytes, HUGE_BYTES, &options.zram_algorithm)?;
    let runs = options.runs.unwrap_or(if options.quick { RUNS_QUICK } else { RUNS });
    println!("{}", machine(&bench));

    let policy = bench.default_policy()?;
    let mut sheets = Vec::new();
    for program in programs {
        let mut sheet = Sheet::new(&bench, program, options.percent)?;
        fill(&mut sheet, &bench, options, &policy)?;
        sheets.push(sheet);
    }
    let budget = Duration::from_secs(60 * options.budget);
    let mut micro = None;
    if !options.no_micro {
        let size = if options.quick { TABLE_MEBIBYTES_QUICK } else { TABLE_MEBIBYTES };
        let mut measured = Micro::new(size);
        rounds(&bench, runs, budget, |bench| measured.round(bench))?;
        micro = Some(measured);
    }
    rounds(&bench, runs, budget, |bench| round(&mut sheets, bench))?;

    print(&sheets, micro.as_ref(), options.percent);
    finish(options, &sheets, micro.as_ref())
}

/// Returns those of the programs that the command line asks for.
pub(crate) fn chosen(options: &Options, programs: &[Program]) -> Result<Vec<Program>, Error> {
    if let Some(unknown) = options.programs.iter().find(|p| !programs.iter().any(|q| q.name == **p)) {
        let known: Vec<&str> = programs.iter().map(|p| p.name).collect();
        return Err(Error::said(format!("no such program: {unknown}; there are {}", known.join(", "))));
    }
    let asked = |name: &str| options.programs.is_empty() || options.programs.iter().any(|p| p == name);
    Ok(programs.iter().copied().filter(|program| asked(program.name)).collect())
}

/// Whether the command line asks for this subject; native is always measured, as all is compared with it.
pub(crate) fn asked(options: &Options, subject: &Subject) -> bool {
    let name = subject.to_string();
    options.subjects.is_empty()
        || *subject == Subject::Native
        || options.subjects.iter().any(|word| name.contains(word.as_str()))
}

/// Writes the samples and prints what was wrong; returns `false` if anything was.
pub(crate) fn finish(options: &Options, sheets: &[Sheet], micro: Option<&Micro>) -> Result<bool, Error> {
    if let Some(path) = &options.csv {
        std::fs::write(path, report::csv(sheets, micro)).map_err(|e| Error::at("write", path, e))?;
    }
    let wrong: Vec<&String> =
        sheets.iter().flat_map(|s| &s.wrong).chain(micro.iter().flat_map(|m| &m.wrong)).collect();
    for what in &wrong {
        println!("wrong: {what}");
    }
    Ok(wrong.is_empty())
}

/// Calibrates the sheet and gives it its cells.
fn fill(sheet: &mut Sheet, bench: &Bench, options: &Options, policy: &str) -> Result<(), Error> {
    let asked = |subject: &Subject| asked(options, subject);
    let mut refused: Vec<(&'static str, String)> = Vec::new();
    let subjects = plan::limited(sheet.program.name, policy);
    for page in plan::PAGES {
        let wanted = |s: &Subject| asked(s) && s.atoll().is_some_and(|a| a.page == Some(page));
        if !subjects.iter().any(wanted) {
            continue;
        }
        let calibrated: Allowed<()> = match &bench.huge {
            Err(why) if page == "2M" => Err(why.clone()),
            _ => match sheet.calibrate(bench, page) {
                Ok(()) => Ok(()),
                Err(Error::Said(why)) => Err(why),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
            },
        };
        if let Err(why) = calibrated {
            bench.say(&format!("{} {}: {why}", sheet.program.name, sheet.program.class));
            refused.push((page, why));
        }
    }
    let cell = |subject: Subject, limited: bool| {
        let mut cell = Cell::new(subject);
        cell.out = bench.refused(&cell.subject);
        let page = cell.subject.atoll().and_then(|atoll| atoll.page);
        if let Some((_, why)) = refused.iter().find(|(p, _)| limited && Some(*p) == page) {
            cell.out = Some(why.clone());
        }
        cell
    };
    sheet.all.cells = plan::all_near().into_iter().filter(asked).map(|s| cell(s, false)).collect();
    sheet.limited.cells = subjects.into_iter().filter(asked).map(|s| cell(s, true)).collect();
    Ok(())
}

/// Measures rounds of everything, as many as fit. The first round tries out settings and may take longer than the others.
pub(crate) fn rounds(
    bench: &Bench,
    runs: u32,
    budget: Duration,
    mut round: impl FnMut(&Bench) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut last = Duration::ZERO;
    for run in 1..=runs {
        if bench.start.elapsed() + last > budget {
            bench.say(&format!(
                "only {} of {runs} rounds fit into {} minutes",
                run - 1,
                budget.as_secs() / 60
            ));
            return Ok(());
        }
        bench.say(&format!("round {run} of {runs}"));
        let start = Instant::now();
        round(bench)?;
        last = start.elapsed();
    }
    Ok(())
}

/// Takes one more sample of every cell.
pub(crate) fn round(sheets: &mut [Sheet], bench: &Bench) -> Result<(), Error> {
    for sheet in sheets {
        for index in 0..sheet.all.cells.len() {
            sheet.sample(bench, true, index)?;
        }
        for index in 0..sheet.limited.cells.len() {
            sheet.sample(bench, false, index)?;
        }
    }
    Ok(())
}

fn print(sheets: &[Sheet], micro: Option<&Micro>, percent: u32) {
    for sheet in sheets {
        println!("\n{}", report::sheet(sheet, percent));
    }
    println!("All memory near\n{}", report::overview(sheets, |s| &s.all));
    println!("{percent}% near\n{}", report::overview(sheets, |s| &s.limited));
    if let Some(micro) = micro {
        println!("{}", report::micro(micro));
    }
    println!("Targets");
    for line in targets::lines(sheets, micro, percent) {
        println!("{line}");
    }
}

/// Returns a line about the machine and the tools of the measurement.
pub(crate) fn machine(bench: &Bench) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map_or("unknown".to_owned(), |(_, value)| value.trim().to_owned())
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut lines = vec![format!(
        "{}, {cpus} CPUs of which {} are used, {} of memory, Linux {}",
        field(&read("/proc/cpuinfo"), "model name"),
        cpus.min(crate::process::CPUS),
        field(&read("/proc/meminfo"), "MemTotal"),
        read("/proc/sys/kernel/osrelease").trim()
    )];
    if let Err(why) = &bench.groups {
        lines.push(format!("no memory limits: {why}"));
    }
    for (what, swap) in [("zram", &bench.zram), ("swap file", &bench.file)] {
        lines.push(match swap {
            Ok(swap) => format!("Linux swap: {}, swappiness 100", swap.name),
            Err(why) => format!("Linux swap, {what} left out: {why}"),
        });
    }
    if let Err(why) = &bench.huge {
        lines.push(format!("2M pages left out: {why}"));
    }
    lines.join("\n")
}
