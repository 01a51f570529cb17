//! `atoll run`: starts the program with the runtime in it, looks after its workers and says what happened.

mod launch;
mod library;
mod path;
mod watch;

use std::process::ExitCode;

use crate::cli::RunArgs;

/// Runs what the command line says.
pub(crate) fn run(args: &RunArgs) -> ExitCode {
    match launch::launch(args) {
        Ok(finished) => finished.leave(),
        Err(error) => {
            eprintln!("atoll: {error}");
            ExitCode::from(error.status())
        }
    }
}
