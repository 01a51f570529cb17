//! The `atoll` commands.

mod bench;
mod cli;
mod csv;
mod defaults;
mod doctor;
mod export;
mod figures;
mod machine;
mod manual;
mod plot;
mod profile;
mod report;
mod repro;
mod run;
mod segment;
mod show;
mod sim;
mod sweep;
mod top;
mod trace;
mod translations;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

/// Ends as other filters do when the pipe on standard output closes (`atoll sim … | head`), rather than with a panic.
fn end_with_the_reader() {
    // SAFETY: sets a disposition, and nothing else of this process has one for it.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    // Those that run a program are to outlive their readers, as the program may.
    if !matches!(
        command,
        Command::Run(_) | Command::Agent | Command::Sweep(_) | Command::Trace(_) | Command::Profile(_)
    ) {
        end_with_the_reader();
    }
    match command {
        Command::Run(args) => run::run(&args),
        Command::Sweep(args) => sweep::sweep(&args),
        Command::Segment(what) => segment::segment(&what),
        Command::Top(args) => top::top(&args),
        Command::Trace(args) => trace::trace(&args),
        Command::Profile(args) => profile::profile(&args),
        Command::Report(args) => report::report(&args),
        Command::Diff(args) => report::diff(&args),
        Command::Export(args) => export::export(&args),
        Command::Show(args) => show::show(&args),
        Command::Repro(args) => repro::repro(&args),
        Command::Sim(args) => sim::sim(&args),
        Command::Bench(what) => bench::bench(&what),
        Command::Agent => run::hosts::agent(),
        Command::Doctor { json } => doctor::doctor(json),
        Command::Completions { shell } => manual::completions(shell),
        Command::Manual { dir } => manual::manual(dir.as_deref()),
    }
}
