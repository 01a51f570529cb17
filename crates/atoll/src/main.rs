//! The `atoll` commands.

mod cli;
mod defaults;
mod figures;
mod machine;
mod run;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(args) => run::run(&args),
    }
}
