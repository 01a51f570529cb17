//! `atoll report`: prints or writes what a profile shows.

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
use crate::run::summary::many;
pub(crate) use diff::diff;
pub(crate) use tally::Tally;
pub(crate) use text::plain;

/// The exit status where half a profile was read, and the output is of that half.
pub(crate) const EXIT_HALF: u8 = 3;

/// Reports on the profile that the command line names.
pub(crate) fn report(args: &ReportArgs) -> ExitCode {
    let done = match &args.against {
        Some(trace) => against::against(&args.file, trace).map_err(|error| error.to_string()),
        None => shown(args).map_err(|error| format!("{}: {error}", args.file.display())),
    };
    match done {
        Ok(whole) => status(whole),
        Err(error) => {
            eprintln!("atoll: {error}");
            ExitCode::from(EXIT_SETUP as u8)
        }
    }
}

/// Returns the exit status of a command that has done what it was asked for, by whether all profiles are whole.
pub(crate) fn status(whole: bool) -> ExitCode {
    if whole { ExitCode::SUCCESS } else { ExitCode::from(EXIT_HALF) }
}

/// Whether the profile is whole. If it is not, this prints a line.
pub(crate) fn is_whole(path: &Path, profile: &Profile) -> bool {
    let Some(lacks) = profile.lacks() else { return true };
    eprintln!(
        "atoll: {} is half a profile: {lacks}. What follows covers the {:.2} s and {} that could be read",
        path.display(),
        profile.seconds(),
        many(profile.samples, "sample")
    );
    false
}

/// Opens a profile. One that was cut off before its names gets them from the program's files as they are now.
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

fn shown(args: &ReportArgs) -> Result<bool, ReportError> {
    let profile = open(&args.file)?;
    let whole = is_whole(&args.file, &profile);
    if args.text {
        let tally = Tally::of(&profile)?;
        print!("{}", text::text(&profile, &tally, args.least.0));
    } else {
        html::html(args, &profile)?;
    }
    Ok(whole)
}
