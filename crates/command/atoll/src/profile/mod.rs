//! `atoll profile`: runs a program, samples its accesses, and writes the record.
//!
//! `choose` takes the samplers, `session` makes the record, and `harvest` is the thread that drives the samplers. `native`
//! starts a program as it is, and `managed` under atoll's runtime. `finish` ends the record and prints a summary.

mod choose;
mod finish;
mod harvest;
mod managed;
mod native;
mod session;
mod show;

use std::process::ExitCode;

pub(crate) use managed::children_seconds;
pub(crate) use show::show;

use crate::cli::ProfileArgs;
use crate::run::signals;
use crate::run::watch::Ending;

/// Profiles what the command line says.
pub(crate) fn profile(args: &ProfileArgs) -> ExitCode {
    let ended = if choose::managed(args) { managed::launch(args) } else { native::launch(args) };
    match ended {
        Ok(ended) => match ended.ending {
            Ending::Status(0) if ended.failed => ExitCode::from(atoll_memory::control::EXIT_SETUP as u8),
            Ending::Status(status) => ExitCode::from(status as u8),
            Ending::Signal(signal) => signals::die_by(signal),
        },
        Err(error) => {
            eprintln!("atoll: {error}");
            ExitCode::from(error.status())
        }
    }
}
