//! `atoll trace`: runs a program under an engine that sees its accesses, and writes them.
//!
//! The engine (`engine`) writes words to a pipe. `blocks` takes them apart, `team` puts them in order, and `output` writes
//! those that are wanted in the format of `atoll_record::trace`. `import` and `export` need no program.

mod blocks;
mod engine;
#[cfg_attr(not(feature = "parquet"), path = "no_export.rs")]
mod export;
mod import;
mod launch;
mod output;
pub(crate) mod select;
mod show;
mod team;

use std::path::Path;
use std::process::ExitCode;

use atoll_memory::control::EXIT_SETUP;

use crate::cli::TraceArgs;
use crate::run::signals;
use crate::run::watch::Ending;
pub(crate) use show::{is_trace, show};

/// Does what the command line says.
pub(crate) fn trace(args: &TraceArgs) -> ExitCode {
    let failed = |error: &dyn std::fmt::Display| {
        eprintln!("atoll: {error}");
        ExitCode::from(EXIT_SETUP as u8)
    };
    let from = Path::new(&args.words[0]);
    if args.import.is_some() {
        return import::import(from, &args.output).map_or_else(|e| failed(&e), |()| ExitCode::SUCCESS);
    }
    if args.export.is_some() {
        return export::export(from, &args.output).map_or_else(|e| failed(&e), |()| ExitCode::SUCCESS);
    }
    match launch::launch(args) {
        Ok(launch::Finished { ending: Ending::Status(0), failed: Some(error) }) => failed(&error),
        Ok(finished) => {
            if let Some(error) = finished.failed {
                failed(&error);
            }
            match finished.ending {
                Ending::Status(status) => ExitCode::from(status as u8),
                Ending::Signal(signal) => signals::die_by(signal),
            }
        }
        Err(error) => {
            eprintln!("atoll: {error}");
            ExitCode::from(error.status())
        }
    }
}
