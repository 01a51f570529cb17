//! The `atoll` commands.

mod cli;
mod defaults;
mod doctor;
mod figures;
mod machine;
mod manual;
mod repro;
mod run;
mod show;
mod sim;
mod sweep;
mod top;
mod trace;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Sweep(args) => sweep::sweep(&args),
        Command::Top(args) => top::top(&args),
        Command::Trace(args) => trace::trace(&args),
        Command::Show(args) => show::show(&args),
        Command::Repro(args) => repro::repro(&args),
        Command::Sim(args) => sim::sim(&args),
        Command::Doctor { json } => doctor::doctor(json),
        Command::Completions { shell } => manual::completions(shell),
        Command::Manual { dir } => manual::manual(dir.as_deref()),
    }
}
