//! `atoll top`: shows running programs, live.

mod attach;
mod screen;

use std::io::IsTerminal;
use std::process::ExitCode;

use atoll_memory::control::EXIT_SETUP;
use atoll_record::Figures;

use crate::cli::TopArgs;
use crate::run::clock::Clock;
use crate::run::summary;

/// Shows the runs that the command line means.
pub(crate) fn top(args: &TopArgs) -> ExitCode {
    if !args.once && !args.json && std::io::stdout().is_terminal() {
        return match screen::show(args.pid) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("atoll: the terminal cannot be used ({error}): try atoll top --once");
                ExitCode::from(EXIT_SETUP as u8)
            }
        };
    }
    let clock = Clock::start();
    let attach::Found { running: found, ended } = attach::find(args.pid);
    let rate = clock.rate();
    let figures: Vec<Figures> = found.iter().map(|a| a.figures(rate)).collect();
    if args.json {
        match serde_json::to_string_pretty(&figures) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("atoll: the figures cannot be written as JSON: {error}"),
        }
    } else {
        for (attached, figures) in found.iter().zip(&figures) {
            if figures.managed {
                print!("{}", summary::text(figures));
            } else {
                println!("atoll: launcher {}: no program that is managed has started yet", attached.launcher);
            }
        }
    }
    if !found.is_empty() {
        return ExitCode::SUCCESS;
    }
    for attached in &ended {
        eprintln!(
            "atoll: launcher {}: its program, process {}, has ended; what the launcher started goes on",
            attached.launcher,
            attached.program()
        );
    }
    if !ended.is_empty() {
        return ExitCode::FAILURE;
    }
    match args.pid {
        Some(pid) => eprintln!("atoll: no program of `atoll run` has process {pid}"),
        None => eprintln!("atoll: no program of `atoll run` is running that you may look at"),
    }
    ExitCode::FAILURE
}
