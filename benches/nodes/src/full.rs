//! The whole measurement: single steps, all programs in all settings round by round, predictions; then tables and targets.

use std::collections::BTreeSet;

use crate::error::Error;
use crate::message;
use crate::micro::Micro;
use crate::places::Places;
use crate::plan::{self, PROGRAMS, Program};
use crate::prediction::{self, Prediction};
use crate::sheet::Sheet;
use crate::{Options, fair, links, paper, report, targets};

/// The most runs over a link, as these take longest.
const LINK_RUNS: u32 = 3;

/// Measures; returns `false` if a run failed or its result was wrong.
///
/// # Errors
/// If something is missing.
pub(crate) fn full(options: &Options) -> Result<bool, Error> {
    let places = Places::new(options)?;
    let paper = paper::popcorn()?;
    let chosen = |name: &str| options.programs.is_empty() || options.programs.iter().any(|p| p == name);
    let known: BTreeSet<&str> = PROGRAMS.iter().map(|program| program.name).chain(fair::names()).collect();
    if let Some(unknown) = options.programs.iter().find(|p| !known.contains(p.as_str())) {
        let known = Vec::from_iter(known).join(", ");
        return Err(Error::said(format!("no such program: {unknown}; there are {known}")));
    }
    let class =
        options.class.as_deref().unwrap_or(if options.quick { plan::CLASS_QUICK } else { plan::CLASS });
    let runs = options.runs.unwrap_or(if options.quick { plan::RUNS_QUICK } else { plan::RUNS });
    let programs = PROGRAMS.into_iter().filter(|program| chosen(program.name));
    println!("{} nodes, {} workers, {} CPUs; medians of {runs}\n", places.nodes, places.workers, cpus());

    let (mut lines, mut wrong) = (Vec::new(), Vec::new());
    // This comes first, as it forks.
    let trips = if options.no_micro { None } else { Some(message::trips()?) };
    let mut micro = if options.no_micro && options.no_links { None } else { Some(Micro::build()?) };
    if let (Some(trips), Some(measured)) = (trips, &mut micro) {
        for round in 1..=runs {
            places.say(&format!("single steps, round {round} of {runs}"));
            measured.round(&places)?;
        }
        println!("single steps (us, GB/s)\n{}", report::steps(measured));
        println!(
            "  a message there and back: {:.2} us, {:.2} us where nodes sleep between messages\n",
            trips.looking, trips.sleeping
        );
        lines.extend(targets::steps(measured, Some(trips), &paper));
        wrong.extend(measured.wrong.iter().cloned());
    }

    let mut sheets: Vec<Sheet> = Vec::new();
    if !options.no_programs {
        sheets.extend(programs.clone().map(|program| Sheet::new(program, class)));
        for round in 1..=runs {
            places.say(&format!("programs, round {round} of {runs}"));
            for sheet in &mut sheets {
                sheet.round(&places)?;
            }
        }
        println!("seconds, medians\n{}", report::times(&sheets));
        println!("coherence, all nodes together\n{}", report::counts(&sheets, places.nodes));
        lines.extend(targets::programs(&sheets));
        wrong.extend(sheets.iter().flat_map(|sheet| sheet.wrong.iter().cloned()));
    }

    if !options.no_predictions {
        let predict = |program| prediction::predict(&places, program, class, options.quick);
        let found: Vec<Prediction> = programs.clone().map(predict).collect::<Result<_, _>>()?;
        println!("predicted, times as fast as one node with smart + prefetch ({})", prediction::about(class));
        println!("{}", report::predictions(&found, prediction::nodes(options.quick), &paper));
        for line in paper.lines() {
            println!("  the paper: {line}");
        }
        println!();
    }
    if let (false, Some(steps)) = (options.no_links, &micro) {
        let chosen: Vec<Program> = programs.collect();
        let links = links::measure(&places, steps, &chosen, class, runs.min(LINK_RUNS))?;
        println!(
            "over UCX between two nodes (us, GB/s, seconds; medians)\n{}",
            report::links(&links, &sheets)
        );
        for why in &links.skipped {
            println!("  skipped: {why}");
        }
        lines.extend(targets::links(&links));
        wrong.extend(links.wrong.iter().cloned());
    }

    // Large classes are not for a quick look.
    if options.only_fair || !options.no_fair && !options.quick {
        let found = fair::measure(&places, chosen, runs.min(LINK_RUNS))?;
        println!("a CPU for each node; medians\n{}", found.table());
        lines.extend(found.targets());
        lines.extend(found.skipped.iter().map(|why| format!("skipped: {why}")));
        wrong.extend(found.wrong.iter().cloned());
    }

    println!("targets");
    for line in &lines {
        println!("  {line}");
    }
    if let Some(path) = &options.csv {
        std::fs::write(path, report::csv(&sheets, micro.as_ref()))
            .map_err(|e| Error::at("write", path, e))?;
    }
    for what in &wrong {
        println!("wrong: {what}");
    }
    Ok(wrong.is_empty())
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
