//! `atoll report`: what a profile shows.

mod against;
pub(crate) mod agreement;
mod diff;
mod html;
mod tally;
mod text;
pub(crate) mod truth;

use std::path::Path;
use std::process::ExitCode;

use atoll_memory::control::EXIT_SETUP;
use atoll_record::profile::{Profile, ProfileError};

use atoll_report::ReportError;
use atoll_sampling::symbols;

use crate::cli::ReportArgs;
pub(crate) use diff::diff;
pub(crate) use tally::Tally;
pub(crate) use text::plain;

/// Reports on the profile that the command line names.
pub(crate) fn report(args: &ReportArgs) -> ExitCode {
    let done = match &args.against {
        Some(trace) => against::against(&args.file, trace).map_err(|error| error.to_string()),
        None => shown(args).map_err(|error| format!("{}: {error}", args.file.display())),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("atoll: {error}");
            ExitCode::from(EXIT_SETUP as u8)
        }
    }
}

/// Opens a profile; one that was cut off before its names gets them from the program's files as they are now.
///
/// # Errors
/// See [`ProfileError`].
pub(crate) fn open(path: &Path) -> Result<Profile, ProfileError> {
    let mut profile = Profile::open(path)?;
    if profile.names.modules.is_empty() {
        let names = symbols::names_of(&profile)?;
        profile.set_names(names);
    }
    Ok(profile)
}

fn shown(args: &ReportArgs) -> Result<(), ReportError> {
    let profile = open(&args.file)?;
    if !args.text {
        return html::html(args, &profile);
    }
    let tally = Tally::of(&profile)?;
    print!("{}", text::text(&profile, &tally, args.least.0));
    Ok(())
}
