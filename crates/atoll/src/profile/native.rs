//! Runs a program as it is, with samplers on it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use atoll_memory::control::EXIT_SETUP;
use atoll_profile_wire::{self as wire, Journal, Reader};
use atoll_record::profile::{FORMAT, Header, ProfileWriter};
use atoll_sampling::clock;
use atoll_sampling::recorder::Options;

use super::choose::{self, Chosen, NoSampler};
use super::finish::{self, Over};
use super::harvest;
use crate::cli::ProfileArgs;
use crate::machine;
use crate::run::check::path::{self, PathError};
use crate::run::launch::{bind, out_of_the_way, preload};
use crate::run::library;
use crate::run::process::Process;
use crate::run::signals::Signals;
use crate::run::watch::{self, Ending, WatchError};

/// What is loaded into a program that runs as it is.
const LIBRARY: &str = "libatoll_profile.so";

/// Why no program was started.
#[derive(thiserror::Error, Debug)]
pub(crate) enum ProfileError {
    /// The program's name means no program.
    #[error("{0}")]
    Path(#[from] PathError),
    /// Nothing can sample here.
    #[error("{0}")]
    Sampler(#[from] NoSampler),
    /// The record's file.
    #[error("the profile {0} cannot be written: {1}")]
    Create(String, io::Error),
    /// No harvester.
    #[error("no thread or pipe for the harvester: {0}")]
    Harvester(io::Error),
    /// The kernel would not execute it.
    #[error("{0} cannot be executed: {1}")]
    Exec(String, io::Error),
    /// Signals or processes.
    #[error("{0}")]
    Watch(#[from] WatchError),
}

impl ProfileError {
    /// The exit status this ends with.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Path(PathError::NotFound(..)) => 127,
            Self::Path(_) | Self::Exec(..) => 126,
            _ => EXIT_SETUP as u8,
        }
    }
}

/// How it went.
pub(super) struct Ended {
    pub(super) ending: Ending,
    /// Is there no whole profile?
    pub(super) failed: bool,
}

/// Where the profile goes: what was asked for, or the program's name in the working directory.
pub(super) fn output(args: &ProfileArgs) -> PathBuf {
    args.output.clone().unwrap_or_else(|| {
        let mut name = PathBuf::from(&args.program.words[0]).file_name().unwrap_or_default().to_owned();
        name.push(".atoll");
        name.into()
    })
}

fn header(args: &ProfileArgs, program: &std::path::Path, chosen: &Chosen) -> Header {
    let text = |text: &OsStr| text.to_string_lossy().into_owned();
    let is_openmp = |name: &str| name.starts_with("OMP_") || name.starts_with("GOMP_");
    let directory = std::env::current_dir().map(|d| d.display().to_string()).unwrap_or_default();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Header {
        format: FORMAT,
        atoll_version: env!("CARGO_PKG_VERSION").to_owned(),
        program: program.display().to_string(),
        arguments: args.program.words.iter().map(|word| text(word)).collect(),
        directory,
        environment: std::env::vars_os()
            .map(|(name, value)| (text(&name), text(&value)))
            .filter(|(name, _)| is_openmp(name))
            .collect(),
        machine: machine::machine(),
        started_unix_seconds: since.as_secs_f64(),
        page_bytes: 4096,
        settings: None,
        samplers: chosen.infos.clone(),
        choice: chosen.reason.clone(),
        refused: chosen.refused.clone(),
    }
}

/// Runs the program to its end.
///
/// # Errors
/// See [`ProfileError`].
pub(super) fn launch(args: &ProfileArgs) -> Result<Ended, ProfileError> {
    let name = &args.program.words[0];
    let path = path::find(name, std::env::var_os("PATH").as_deref())?;
    let chosen = choose::choose(args)?;
    let output = output(args);
    let create = |e| ProfileError::Create(output.display().to_string(), e);
    let file = BufWriter::new(File::create(&output).map_err(create)?);
    let header = header(args, &path, &chosen);
    let writer = ProfileWriter::new(file, &header).map_err(create)?;
    let options = Options { forks_share: false, limit_bytes: args.limit.0, start_ns: clock::now_ns() };
    let signals = Signals::take().map_err(WatchError::Signals)?;
    let mut command = Command::new(&path);
    command.arg0(name).args(&args.program.words[1..]);
    let journal = inside(&mut command);
    let (gate, harvester) = harvest::start(writer, options, chosen.samplers, journal, !args.harvest_thread)
        .map_err(ProfileError::Harvester)?;
    if let Some(workers) = args.memory.workers {
        command.env("OMP_NUM_THREADS", workers.to_string());
    }
    bind(&mut command, &signals);
    gate.put_in(&mut command);
    let begin = std::time::Instant::now();
    let child = command.spawn();
    drop(gate);
    let child = match child {
        Ok(child) => child,
        Err(error) => {
            let _ = harvester.finish();
            return Err(ProfileError::Exec(path.display().to_string(), error));
        }
    };
    let process = Process::open(child.id() as i32);
    let process = process.ok_or_else(|| WatchError::Process(io::Error::last_os_error()))?;
    let (ending, cpu_seconds) = watch_over(&process, &signals);
    let over = Over { wall_seconds: begin.elapsed().as_secs_f64(), cpu_seconds, ending };
    let recorded = harvester.finish();
    Ok(Ended { ending, failed: !finish::finish(&header, &output, recorded, &over) })
}

/// Has our library loaded into the program, which tells of blocks and regions; none where that is not possible.
fn inside(command: &mut Command) -> Option<Reader> {
    let executable = std::env::current_exe().unwrap_or_default();
    let library = library::beside_or_installed(LIBRARY, &executable);
    let Some(library) = library.filter(|library| !library::cannot_be_preloaded(library)) else {
        eprintln!(
            "atoll: {LIBRARY} is not beside atoll, or its path has a space or colon: blocks and regions will have no names"
        );
        return None;
    };
    let (fd, journal) = match Journal::create() {
        Ok(made) => made,
        Err(error) => {
            eprintln!(
                "atoll: no shared memory for the journal ({error}): blocks and regions will have no names"
            );
            return None;
        }
    };
    command.env(wire::ENVIRONMENT, out_of_the_way(fd).to_string());
    let own = std::env::var_os("LD_PRELOAD");
    command.env("LD_PRELOAD", preload(&library, own.as_deref()));
    if let Some(own) = own {
        command.env(wire::ENVIRONMENT_PRELOAD, own);
    }
    Some(Reader::new(journal))
}

/// Passes signals on until the program is over: how it ended, and its processor time.
fn watch_over(process: &Process, signals: &Signals) -> (Ending, f64) {
    while !process.is_over() {
        let mut entries = [process.fd().as_raw_fd(), signals.fd().as_raw_fd()].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        // SAFETY: two valid entries.
        unsafe { libc::poll(entries.as_mut_ptr(), 2, -1) };
        while let Some((signal, to_us_alone)) = signals.next() {
            if to_us_alone && signal != libc::SIGCHLD {
                process.send(signal);
            }
        }
    }
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both are valid for writes; a zeroed usage is one.
    let usage = unsafe {
        libc::wait4(process.pid, &raw mut status, 0, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
    (watch::ending(status), seconds(usage.ru_utime) + seconds(usage.ru_stime))
}
