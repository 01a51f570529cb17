//! `atoll profile`: runs a program, samples what it touches, and writes the record.
//!
//! `choose` takes the samplers, `harvest` is the thread that drives them, `native` starts a program as it is, `finish`
//! ends the record and says what was found.

mod choose;
mod finish;
mod harvest;
mod native;

use std::process::ExitCode;

use crate::cli::ProfileArgs;
use crate::run::signals;
use crate::run::watch::Ending;

/// Profiles what the command line says.
pub(crate) fn profile(args: &ProfileArgs) -> ExitCode {
    match native::launch(args) {
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
