//! `atoll run`: starts the program with the runtime in it, looks after its workers and prints what happened.

mod advice;
pub(crate) mod applied;
mod automatic;
mod borrow;
pub(crate) mod check;
pub(crate) mod clock;
pub(crate) mod finish;
mod first;
mod footprints;
pub(crate) mod hosts;
mod interrupts;
mod job;
pub(crate) mod launch;
pub(crate) mod library;
mod memory_group;
pub(crate) mod mpi;
mod near;
pub(crate) mod network;
pub(crate) mod nodes;
pub(crate) mod process;
mod segment;
pub(crate) mod shown;
pub(crate) mod signals;
mod spare;
mod started;
mod stuck;
pub(crate) mod summary;
mod summary_nodes;
mod translation;
pub(crate) mod watch;
mod witness;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::cli::RunArgs;
use crate::lend;

/// Runs what the command line says.
pub(crate) fn run(args: &RunArgs) -> ExitCode {
    if let Some(ended) = lend::lend_to_job(args) {
        return ended;
    }
    let started = match translation::on_one_node(args) {
        Err(error) => Err(error.into()),
        Ok(()) => match hosts::hosts(args) {
            Some(hosts) => return hosts::run(args, hosts),
            None => launch::launch(args),
        },
    };
    match started {
        Ok(finished) => finish::finish(args, finished),
        Err(error) => {
            eprintln!("atoll: {error}");
            ExitCode::from(error.status())
        }
    }
}

/// Returns the file that the dynamic linker finds for a library's name.
pub(crate) fn system_library(name: &str) -> Option<PathBuf> {
    check::library(name)
}
