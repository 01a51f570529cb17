//! The beginning of every profile: its file, its header, and the harvester that waits for the program.
//!
//! `native` and `managed` start the program.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use atoll_memory::control::EXIT_SETUP;
use atoll_profile_wire::{Journal, Reader};
use atoll_record::profile::{FORMAT, Header, ProfileWriter};
use atoll_record::run::Settings;
use atoll_sampling::clock;
use atoll_sampling::recorder::Options;

use super::choose::{Chosen, NoSampler};
use super::harvest::{self, Gate, Harvester};
use crate::cli::{KeepArg, ProfileArgs};
use crate::machine;
use crate::run::check::path::PathError;
use crate::run::launch::{LaunchError, out_of_the_way};
use crate::run::nodes;
use crate::run::watch::{Ending, WatchError};

/// The reason why no program was started.
#[derive(thiserror::Error, Debug)]
pub(crate) enum ProfileError {
    /// The program's name leads to no program.
    #[error("{0}")]
    Path(#[from] PathError),
    /// No sampler works here.
    #[error("{0}")]
    Sampler(#[from] NoSampler),
    /// The record's file cannot be made.
    #[error("the profile {0} cannot be written: {1}")]
    Create(String, io::Error),
    /// There is no harvester.
    #[error("no thread or pipe for the harvester: {0}")]
    Harvester(io::Error),
    /// The kernel refused to execute the program.
    #[error("{0} cannot be executed: {1}")]
    Exec(String, io::Error),
    /// Signals or processes cannot be watched.
    #[error("{0}")]
    Watch(#[from] WatchError),
    /// The program does not start under atoll's runtime.
    #[error("{0}")]
    Launch(#[from] LaunchError),
}

impl ProfileError {
    /// Returns the exit status for this error.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Path(PathError::NotFound(..)) => 127,
            Self::Path(_) | Self::Exec(..) => 126,
            Self::Launch(error) => error.status(),
            _ => EXIT_SETUP as u8,
        }
    }
}

/// The end of a profiled program.
pub(super) struct Ended {
    pub(super) ending: Ending,
    /// Whether there is no whole profile.
    pub(super) failed: bool,
}

/// Returns the profile's file: the one asked for, or the program's name in the working directory.
fn output(args: &ProfileArgs) -> PathBuf {
    args.output.clone().unwrap_or_else(|| {
        let mut name = PathBuf::from(&args.run.program.words[0]).file_name().unwrap_or_default().to_owned();
        name.push(".atoll");
        name.into()
    })
}

/// Makes room for a profile whose name the user did not choose: one that is there already gets the next free number.
///
/// # Errors
/// The file cannot be renamed.
fn keep_the_last(output: &Path) -> io::Result<()> {
    if !output.is_file() {
        return Ok(());
    }
    let stem = output.file_stem().unwrap_or_default();
    for number in 1.. {
        let mut name = stem.to_owned();
        name.push(format!(".{number}.atoll"));
        let other = output.with_file_name(name);
        if !other.exists() {
            std::fs::rename(output, &other)?;
            eprintln!("atoll: the profile that was in {} is in {} now", output.display(), other.display());
            break;
        }
    }
    Ok(())
}

/// Returns the file of one of several nodes: of the origin the one asked for, of the other nodes a file beside it.
fn output_of(node: u32, output: PathBuf) -> PathBuf {
    if node == 0 {
        return output;
    }
    let mut name = output.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".node{node}"));
    if let Some(extension) = output.extension() {
        name.push(".");
        name.push(extension);
    }
    output.with_file_name(name)
}

fn header(args: &ProfileArgs, program: &Path, settings: Option<Settings>, chosen: &Chosen) -> Header {
    let text = |text: &OsStr| text.to_string_lossy().into_owned();
    let is_openmp = |name: &str| ["OMP_", "GOMP_", "KMP_"].iter().any(|begin| name.starts_with(begin));
    let directory = std::env::current_dir().map(|d| d.display().to_string()).unwrap_or_default();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Header {
        format: FORMAT,
        atoll_version: env!("CARGO_PKG_VERSION").to_owned(),
        // The path is as the kernel names it in maps; the modules of variables are named so, too.
        program: program.canonicalize().as_deref().unwrap_or(program).display().to_string(),
        arguments: args.run.program.words.iter().map(|word| text(word)).collect(),
        directory,
        environment: std::env::vars_os()
            .map(|(name, value)| (text(&name), text(&value)))
            .filter(|(name, _)| is_openmp(name))
            .collect(),
        machine: machine::machine(),
        started_unix_seconds: since.as_secs_f64(),
        page_bytes: 4096,
        settings,
        samplers: chosen.infos.clone(),
        choice: chosen.reason.clone(),
        refused: chosen.refused.clone(),
    }
}

/// A profile that has begun.
pub(super) struct Session {
    pub(super) header: Header,
    pub(super) output: PathBuf,
    /// The gate that the program's process passes before it executes the program.
    pub(super) gate: Gate,
    pub(super) harvester: Harvester<BufWriter<File>>,
    /// The journal's descriptor, which the program inherits; `None`: there is no shared memory for it.
    pub(super) journal: Option<i32>,
}

/// Begins a profile of `program`, under atoll's runtime with `settings`.
///
/// # Errors
/// The file cannot be written, or there is no harvester.
pub(super) fn begin(
    args: &ProfileArgs,
    program: &Path,
    settings: Option<Settings>,
    chosen: Chosen,
) -> Result<Session, ProfileError> {
    let several = args.run.nodes.is_some_and(|n| n > 1) || !args.run.hosts.is_empty();
    let node = if several { nodes::own_number() } else { 0 };
    let output = output_of(node, output(args));
    let create = |e| ProfileError::Create(output.display().to_string(), e);
    if args.output.is_none() {
        keep_the_last(&output).map_err(create)?;
    }
    let managed = settings.is_some();
    let header = header(args, program, settings, &chosen);
    let file = BufWriter::new(File::create(&output).map_err(create)?);
    let writer = ProfileWriter::new(file, &header).map_err(create)?;
    let (journal, reader) = match Journal::create() {
        Ok((fd, journal)) => (Some(out_of_the_way(fd)), Some(Reader::new(journal))),
        Err(error) => {
            eprintln!(
                "atoll: no shared memory for the journal ({error}): blocks and regions will have no names"
            );
            (None, None)
        }
    };
    let options = Options {
        forks_share: managed,
        limit_bytes: args.limit.0,
        thin_out: args.keep == KeepArg::Random,
        overhead: args.reset.is_none().then_some(args.overhead.0),
        node,
        start_ns: clock::now_ns(),
    };
    let (gate, harvester) = harvest::start(writer, options, chosen.samplers, reader, !args.harvest_thread)
        .map_err(ProfileError::Harvester)?;
    Ok(Session { header, output, gate, harvester, journal })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two profiles of one program overwrote each other.
    #[test]
    fn a_second_profile_overwrote_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        keep_the_last(&file("app.atoll")).unwrap();
        for text in ["first", "second", "third"] {
            keep_the_last(&file("app.atoll")).unwrap();
            std::fs::write(file("app.atoll"), text).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(file(name)).unwrap();
        assert_eq!(
            [read("app.1.atoll"), read("app.2.atoll"), read("app.atoll")],
            ["first", "second", "third"]
        );
    }

    #[test]
    fn each_node_has_a_file_of_its_own() {
        let of = |node, name: &str| output_of(node, PathBuf::from(name)).display().to_string();
        assert_eq!(of(0, "a/b.atoll"), "a/b.atoll");
        assert_eq!(of(2, "a/b.atoll"), "a/b.node2.atoll");
        assert_eq!(of(1, "b"), "b.node1");
    }
}
