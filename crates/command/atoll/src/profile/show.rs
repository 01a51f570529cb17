//! `atoll show` of a profile: prints the program, how the profile was made, and whether it was finished.
//!
//! `atoll report` says what is in its samples.

use std::path::Path;

use atoll_record::profile::{Header, Profile, ProfileError, Trailer};
use serde::Serialize;

use crate::report::{is_whole, plain};
use crate::run::summary::{bytes, count, ending_text, many};

#[derive(Serialize)]
struct Whole<'a> {
    profile: &'a Header,
    /// Whether the profile was finished.
    whole: bool,
    seconds: f64,
    samples: u64,
    trailer: Option<&'a Trailer>,
}

/// Prints a profile's head; returns `false` if the profile is not whole.
///
/// # Errors
/// The profile cannot be read.
pub(crate) fn show(path: &Path, json: bool) -> Result<bool, ProfileError> {
    let profile = Profile::open(path)?;
    let whole = is_whole(path, &profile);
    let (header, trailer) = (&profile.header, profile.trailer.as_ref());
    if json {
        let all =
            Whole { profile: header, whole, seconds: profile.seconds(), samples: profile.samples, trailer };
        match serde_json::to_string_pretty(&all) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("atoll: the profile cannot be written as JSON: {error}"),
        }
        return Ok(whole);
    }
    let machine = &header.machine;
    println!("profile of {}  (atoll {})", plain(&header.arguments.join(" ")), plain(&header.atoll_version));
    println!(
        "  on {}: {}, {} of {} CPUs, {} of memory, Linux {}",
        plain(&machine.host),
        plain(&machine.cpu),
        machine.cpus_usable,
        machine.cpus_online,
        bytes(machine.memory_bytes),
        plain(&machine.kernel)
    );
    for (name, value) in &header.environment {
        println!("  {}={}", plain(name), plain(value));
    }
    let end = match trailer {
        Some(trailer) => ending_text(trailer.ending),
        None => "this profile was not finished".to_owned(),
    };
    println!("  {:.3} s, {end}", profile.seconds());
    for info in &header.samplers {
        println!(
            "  sampler {}: every {} {}",
            plain(&info.name),
            count(info.period),
            plain(&info.period_unit)
        );
    }
    println!(
        "  {} of {}, {} of memory, {}",
        many(profile.samples, "sample"),
        many(profile.workers.len() as u64, "thread"),
        many(profile.variables.len() as u64, "variable"),
        many(profile.regions.len() as u64, "region")
    );
    println!("  `atoll report {}` shows what they say", path.display());
    Ok(whole)
}
