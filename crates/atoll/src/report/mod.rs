//! `atoll report`: what a profile shows.

mod tally;
mod text;

use std::process::ExitCode;

use atoll_memory::control::EXIT_SETUP;
use atoll_record::profile::{Profile, ProfileError};

use crate::cli::ReportArgs;
pub(crate) use tally::Tally;

/// Reports on the profile that the command line names.
pub(crate) fn report(args: &ReportArgs) -> ExitCode {
    match shown(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("atoll: {}: {error}", args.file.display());
            ExitCode::from(EXIT_SETUP as u8)
        }
    }
}

fn shown(args: &ReportArgs) -> Result<(), ProfileError> {
    let profile = Profile::open(&args.file)?;
    let tally = Tally::of(&profile)?;
    print!("{}", text::text(&profile, &tally, args.least.0));
    Ok(())
}
