//! `atoll sim`: replays a trace on a machine that need not be there.

mod job;
#[cfg_attr(not(feature = "parquet"), path = "no_parquet.rs")]
mod parquet;
pub(crate) mod replay;
pub(crate) mod select;
pub(crate) mod table;

use std::process::ExitCode;

use atoll_machine::{Machine, Outcome, Pager, Replacement, Setup, Tables, Warm};
use atoll_memory::control::EXIT_SETUP;
use atoll_pages::PageSize;

use crate::cli::{PageTablesArg, PagerArg, Policies, Share, SimArgs};
use crate::run::summary::{bytes, count};
use replay::{SimError, Trace};
use select::Counted;
use table::Cell;

impl From<PageTablesArg> for Tables {
    fn from(arg: PageTablesArg) -> Self {
        match arg {
            PageTablesArg::Private => Self::Private,
            PageTablesArg::Shared => Self::Shared,
        }
    }
}

/// Simulates what the command line says and prints the table.
pub(crate) fn sim(args: &SimArgs) -> ExitCode {
    match try_sim(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("atoll: {error}");
            ExitCode::from(EXIT_SETUP as u8)
        }
    }
}

fn try_sim(args: &SimArgs) -> Result<(), SimError> {
    let machine = replay::machine(&args.machine)?;
    if args.describe {
        describe(&machine);
    }
    let Some(path) = args.trace.as_ref().filter(|_| !args.describe) else { return Ok(()) };
    if let Some(csv) = &args.csv {
        // An error should not come only after an hour.
        write(csv, "")?;
    }
    let trace = Trace::open(path, args.paged.0)?;
    if let Some(asked) = args.workers.filter(|&asked| asked != trace.workers) {
        return Err(SimError::Workers { trace: path.display().to_string(), has: trace.workers, asked });
    }
    if !args.nodes.is_empty() {
        return job::job(args, &machine, &trace);
    }
    let counted = match (args.regions.first(), args.iterations) {
        (None, _) => None,
        (Some(_), None) => Some(Counted { regions: trace.regions(&args.regions)?, ..Counted::default() }),
        (Some(first), Some(iterations)) => Some(Counted {
            regions: trace.regions(&args.regions)?,
            begin: trace.regions(&[first])?,
            iterations,
        }),
    };
    let footprint = trace.footprint(PageSize::K4);
    let points = points(args, trace.workers, footprint);
    let setups: Vec<Setup> = points.iter().map(|(_, setup)| *setup).collect();
    let outcomes =
        trace.replay(machine.node(), &setups, Warm::Times(args.warm), counted.as_ref(), &|_, _| ())?;
    let with = |((share, setup), outcome): ((Option<Share>, Setup), Outcome)| Cell { share, setup, outcome };
    let cells: Vec<Cell> = points.into_iter().zip(outcomes).map(with).collect();
    println!(
        "{}: {} on {}; {} workers, {} events, footprint {}{}",
        path.display(),
        trace.header.arguments.join(" "),
        machine.name,
        trace.workers,
        count(trace.survey.events),
        bytes(footprint),
        match trace.header.filter {
            Some(filter) if !trace.header.exact => format!(", filter of {} pages", filter.entries),
            _ => String::new(),
        }
    );
    print!("{}", table::distribution(&trace.distribution()));
    println!();
    print!("{}", table::text(&cells));
    if let Some(csv) = &args.csv {
        write(csv, &table::csv(&machine.name, &cells))?;
    }
    if let Some(path) = &args.parquet {
        let lines = table::columns(&machine.name, &cells);
        parquet::write(path, &lines)
            .map_err(|e| SimError::Write(path.display().to_string(), std::io::Error::other(e)))?;
    }
    Ok(())
}

/// Returns everything near for each page size and kind of tables, then the grid.
fn points(args: &SimArgs, workers: usize, footprint: u64) -> Vec<(Option<Share>, Setup)> {
    let mut points = Vec::new();
    let each = |f: &mut dyn FnMut(Setup)| {
        for &page in &args.page {
            for &tables in &args.page_tables {
                let tables = tables.into();
                let (near, policy) = (None, Replacement::None);
                let pager = match args.pager {
                    PagerArg::Kernel => Pager::Kernel { batch: args.batch },
                    PagerArg::Atoll => Pager::Atoll,
                };
                f(Setup { workers, near, page, tables, policy, pager });
            }
        }
    };
    each(&mut |setup| points.push((None, setup)));
    each(&mut |setup| {
        for policy in Policies::all(&args.policy) {
            for &share in &args.near {
                let near = Some(table::near(share, footprint, &setup));
                points.push((Some(share), Setup { near, policy, ..setup }));
            }
        }
    });
    points
}

fn describe(machine: &Machine) {
    println!("{}: {}\n", machine.name, machine.about);
    for (path, value, source) in machine.numbers() {
        println!("  {path:<36} {value:>8}  {source}");
    }
}

fn write(path: &std::path::Path, text: &str) -> Result<(), SimError> {
    std::fs::write(path, text).map_err(|e| SimError::Write(path.display().to_string(), e))
}
