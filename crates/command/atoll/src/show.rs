//! `atoll show`: prints what is in a record. `trace` prints traces, and `profile` profiles.

use std::process::ExitCode;

use atoll_memory::control::EXIT_SETUP;
use atoll_record::profile::is_profile;
use atoll_record::{Figures, Record, Run};
use serde::Serialize;

use crate::cli::ShowArgs;
use crate::run::summary;
use crate::{profile, report, trace};

#[derive(Serialize)]
struct Whole<'a> {
    run: &'a Run,
    figures: &'a Figures,
}

/// Prints the record or trace that the command line names.
pub(crate) fn show(args: &ShowArgs) -> ExitCode {
    if trace::is_trace(&args.file) {
        return match trace::show(&args.file, args.json) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("atoll: {}: {error}", args.file.display());
                ExitCode::from(EXIT_SETUP as u8)
            }
        };
    }
    if is_profile(&args.file) {
        return match profile::show(&args.file, args.json) {
            Ok(whole) => report::status(whole),
            Err(error) => {
                eprintln!("atoll: {}: {error}", args.file.display());
                ExitCode::from(EXIT_SETUP as u8)
            }
        };
    }
    let record = match Record::open(&args.file) {
        Ok(record) => record,
        Err(error) => {
            eprintln!("atoll: {}: {error}", args.file.display());
            return ExitCode::from(EXIT_SETUP as u8);
        }
    };
    let whole = Whole { run: &record.run, figures: &record.figures };
    if args.json {
        match serde_json::to_string_pretty(&whole) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("atoll: the record cannot be written as JSON: {error}"),
        }
        return ExitCode::SUCCESS;
    }
    let (run, machine) = (&record.run, &record.run.machine);
    println!("{}  (atoll {})", run.arguments.join(" "), run.atoll_version);
    println!(
        "  on {}: {}, {} of {} CPUs, {} of memory, Linux {}",
        machine.host,
        machine.cpu,
        machine.cpus_usable,
        machine.cpus_online,
        summary::bytes(machine.memory_bytes),
        machine.kernel
    );
    for (name, value) in &run.environment {
        println!("  {name}={value}");
    }
    print!("{}", summary::text(&record.figures));
    ExitCode::SUCCESS
}
