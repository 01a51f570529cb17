//! `atoll sim --nodes`: prints what coherence between nodes costs, as a table.
//!
//! The simulation is `job` of `atoll-machine`. There is a line for each number of nodes, protocol and prefetch.

use atoll_machine::Machine;
use atoll_machine::job::{JobOutcome, JobSetup};

use super::replay::{SimError, Trace};
use crate::cli::{ConsistencyArg, OnOff, SimArgs};
use crate::run::summary::{count, write_aligned};

/// A line of the table.
struct Line {
    nodes: u8,
    consistency: &'static str,
    prefetch: bool,
    outcome: JobOutcome,
}

/// Simulates the grid and prints it.
pub(super) fn job(args: &SimArgs, machine: &Machine, trace: &Trace) -> Result<(), SimError> {
    let mut lines = Vec::new();
    for &nodes in &args.nodes {
        for &consistency in &args.consistency {
            for &prefetch in &args.prefetch {
                let setup = JobSetup {
                    workers: trace.workers,
                    nodes,
                    consistency: consistency.into(),
                    prefetch: prefetch == OnOff::On,
                    stretch: 0,
                };
                let outcome = trace.job(machine, setup, args.warm)?;
                lines.push(Line { nodes, consistency: name(consistency), prefetch: setup.prefetch, outcome });
            }
        }
    }
    println!(
        "{}: {} on {}; {} workers, {} events\n",
        trace.name(),
        trace.header.arguments.join(" "),
        machine.name,
        trace.workers,
        count(trace.survey.events)
    );
    print!("{}", text(&lines));
    match &args.csv {
        Some(path) => super::write(path, &csv(&machine.name, &lines)),
        None => Ok(()),
    }
}

fn name(consistency: ConsistencyArg) -> &'static str {
    match consistency {
        ConsistencyArg::Sc => "sc",
        ConsistencyArg::Mw => "mw",
        ConsistencyArg::Smart => "smart",
    }
}

const COLUMNS: [&str; 16] = [
    "nodes",
    "protocol",
    "prefetch",
    "seconds",
    "read_faults",
    "write_faults",
    "upgrades",
    "invalidations",
    "batched",
    "pages",
    "twins",
    "diffs",
    "fetched",
    "fetched_used",
    "messages",
    "megabytes",
];

fn values(line: &Line) -> [String; 16] {
    let Line { nodes, consistency, prefetch, outcome } = line;
    let all = &outcome.all;
    [
        nodes.to_string(),
        (*consistency).to_owned(),
        if *prefetch { "on" } else { "off" }.to_owned(),
        format!("{:.4}", outcome.elapsed as f64 / 1e12),
        all.read_faults.to_string(),
        all.write_faults.to_string(),
        all.upgrades.to_string(),
        all.invalidations.to_string(),
        all.batched.to_string(),
        all.pages.to_string(),
        all.twins.to_string(),
        all.diffs.to_string(),
        all.fetched.to_string(),
        all.fetched_used.to_string(),
        outcome.messages.to_string(),
        format!("{:.1}", outcome.bytes as f64 / 1e6),
    ]
}

fn text(lines: &[Line]) -> String {
    let mut rows = vec![COLUMNS.map(str::to_owned).to_vec()];
    rows.extend(lines.iter().map(|line| values(line).to_vec()));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_aligned(&mut text, &rows);
    text
}

fn csv(machine: &str, lines: &[Line]) -> String {
    let mut text = format!("machine,{}\n", COLUMNS.join(","));
    for line in lines {
        text += &format!("{machine},{}\n", values(line).join(","));
    }
    text
}
