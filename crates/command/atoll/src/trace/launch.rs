//! Runs the program under its engine and makes a trace of the engine's words.
//!
//! `engine` says what to start; words go through `blocks` and `team` to `output`.

use std::io::{self, BufWriter, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Child;
use std::time::{SystemTime, UNIX_EPOCH};

use atoll_memory::control::EXIT_SETUP;
use atoll_record::trace::{Filter, Header, Writer};
use tempfile::NamedTempFile;

use super::blocks::{Blocks, Foreign};
use super::engine::{Engine, EngineError, Order};
use super::output::{COMPUTE_QUANTUM, Limits, Output};
use super::team::Teams;
use crate::cli::{EngineArg, TraceArgs};
use crate::machine;
use crate::run::check::path::PathError;
use crate::run::launch::{LaunchError, bind, out_of_the_way, workers};
use crate::run::process::Process;
use crate::run::signals::Signals;
use crate::run::watch::{self, Ending, WatchError};

/// The bytes that the pipe should hold, and that are read at once: the program then seldom waits.
const PIPE_BYTES: usize = 1 << 20;

/// The reason why no program was started.
#[derive(thiserror::Error, Debug)]
pub(crate) enum TraceError {
    /// There is no engine for it.
    #[error("{0}")]
    Engine(#[from] EngineError),
    /// OMP_NUM_THREADS is too large.
    #[error("{0}")]
    Workers(LaunchError),
    /// The trace's directory does not take the file.
    #[error("{0}")]
    Save(#[from] SaveError),
    /// There is no pipe.
    #[error("no pipe for the engine: {0}")]
    Pipe(io::Error),
    /// The kernel refused to execute the program.
    #[error("the engine cannot be executed: {0}")]
    Exec(io::Error),
    /// Signals or processes cannot be watched.
    #[error("{0}")]
    Watch(#[from] WatchError),
}

impl TraceError {
    /// Returns the exit status for this error.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Engine(EngineError::Path(PathError::NotFound(..))) => 127,
            Self::Engine(EngineError::Path(_) | EngineError::Program(..)) => 126,
            _ => EXIT_SETUP as u8,
        }
    }
}

/// The reason why the trace is not there.
#[derive(thiserror::Error, Debug)]
pub(crate) enum SaveError {
    /// The file cannot be written.
    #[error("the trace {0} cannot be written: {1}")]
    File(String, io::Error),
    /// The pipe carried other bytes than an engine's.
    #[error("{0}")]
    Foreign(#[from] Foreign),
}

/// A program that has ended.
pub(crate) struct Finished {
    /// How the program ended.
    pub(crate) ending: Ending,
    /// The reason why there is no trace, if there is none.
    pub(crate) failed: Option<SaveError>,
}

/// Makes a file that gets its name when it is whole.
pub(super) fn create(path: &Path) -> Result<NamedTempFile, SaveError> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The mode is that of any new file: the user's mask takes bits away from this.
    let permissions = std::fs::Permissions::from_mode(0o666);
    let builder = tempfile::Builder::new().prefix(".atoll-trace-").permissions(permissions).tempfile_in(dir);
    let refused = if path.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { builder };
    refused.map_err(|e| SaveError::File(path.display().to_string(), e))
}

/// Gives a whole file its name.
pub(super) fn save(file: BufWriter<NamedTempFile>, path: &Path) -> Result<(), SaveError> {
    let failed = |error| SaveError::File(path.display().to_string(), error);
    let file = file.into_inner().map_err(|e| failed(e.into_error()))?;
    file.persist(path).map(drop).map_err(|e| failed(e.error))
}

fn header(args: &TraceArgs, engine: &Engine, workers: u32) -> Header {
    let counts = args.engine == EngineArg::Qemu;
    let refresh_instructions = atoll_trace_wire::REFRESH_INSTRUCTIONS;
    Header {
        atoll_version: env!("CARGO_PKG_VERSION").to_owned(),
        program: engine.program.display().to_string(),
        arguments: args.words.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        workers,
        engine: args.engine.word().to_owned(),
        exact: args.exact,
        filter: (!args.exact).then_some(Filter { entries: args.filter, refresh_instructions }),
        compute_quantum: if counts { COMPUTE_QUANTUM } else { 0 },
        regions: args.regions.as_ref().map(ToString::to_string),
        iterations: args.iterations,
        started_unix_seconds: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0.0, |since| since.as_secs_f64()),
        ..Header::default()
    }
}

/// Runs the program to its end.
///
/// # Errors
/// See [`TraceError`]; an error after the start leaves nothing behind.
pub(crate) fn launch(args: &TraceArgs) -> Result<Finished, TraceError> {
    let engine = Engine::find(args.engine, &args.words[0])?;
    let asked = std::env::var_os("OMP_NUM_THREADS");
    let workers =
        workers(args.workers, asked.as_deref(), machine::usable_cpus()).map_err(TraceError::Workers)?;
    let failed = |error| SaveError::File(args.output.display().to_string(), error);
    let file = BufWriter::new(create(&args.output)?);
    let writer = Writer::new(file, &header(args, &engine, workers)).map_err(failed)?;
    let limits = Limits { regions: args.regions.clone(), iterations: args.iterations };
    let output = Output::new(writer, limits, args.engine == EngineArg::Qemu);

    let (pipe, to) = io::pipe().map_err(TraceError::Pipe)?;
    // The program inherits this descriptor, unlike those that `pipe` makes.
    let to = out_of_the_way(to.into_raw_fd());
    let signals = Signals::take().map_err(WatchError::Signals)?;
    let filter = if args.exact { 0 } else { args.filter };
    let order = Order { words: &args.words, pipe: to, filter };
    let child = start(&engine, &order, &signals, workers, args.workers.is_some());
    // SAFETY: ours, and used no more.
    unsafe { libc::close(to) };
    let mut child = child?;
    let process = Process::open(child.id() as i32);
    let process = process.ok_or_else(|| WatchError::Process(io::Error::last_os_error()))?;
    let collected = collect(pipe, &process, &signals, args.stop, output);
    let status = child.wait().map_err(WatchError::Signals)?;
    let stopped = args.stop && collected.as_ref().is_ok_and(Output::is_over);
    let written = collected.and_then(|output| output.finish().map_err(failed));
    let failed = written.and_then(|file| save(file, &args.output)).err();
    let ending = if stopped { Ending::Status(0) } else { watch::ending(status.into_raw()) };
    Ok(Finished { ending, failed })
}

fn start(
    engine: &Engine,
    order: &Order<'_>,
    signals: &Signals,
    workers: u32,
    named: bool,
) -> Result<Child, TraceError> {
    let mut command = engine.command(order);
    if named || std::env::var_os("OMP_NUM_THREADS").is_none() {
        command.env("OMP_NUM_THREADS", workers.to_string());
    }
    // Workers that wait must leave the CPU to those that work: there may be many for each CPU.
    if std::env::var_os("OMP_WAIT_POLICY").is_none() {
        command.env("OMP_WAIT_POLICY", "passive");
    }
    bind(&mut command, signals);
    command.spawn().map_err(TraceError::Exec)
}

/// Reads the engine's words until the program is over, and passes signals on meanwhile. With `stop` the program is ended when
/// no more of it is recorded.
fn collect<W: Write>(
    mut pipe: PipeReader,
    process: &Process,
    signals: &Signals,
    stop: bool,
    mut output: Output<W>,
) -> Result<Output<W>, SaveError> {
    let (mut blocks, mut teams) = (Blocks::default(), Teams::default());
    // SAFETY: no pointers. Refused where the user's pipes are many: it is then as large as it is. The reading end is
    // ours alone, so nobody else sees that it does not wait.
    unsafe {
        libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES as i32);
        libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
    }
    let mut bytes = vec![0; PIPE_BYTES];
    let (mut foreign, mut open) = (None, true);
    loop {
        let over = process.is_over();
        loop {
            match pipe.read(&mut bytes) {
                Ok(0) => open = false,
                Ok(_) if foreign.is_some() => continue,
                Ok(n) => {
                    let each = |thread, words: &[u64]| teams.block(thread, words, &mut output);
                    foreign = blocks.add(&bytes[..n], each).err();
                    if stop && output.is_over() {
                        process.send(libc::SIGKILL);
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => open = false,
            }
            break;
        }
        // Children of the program may hold the pipe open longer than it lives.
        if over {
            break;
        }
        wait(&[Some(process.fd()), Some(signals.fd()), open.then(|| pipe.as_fd())]);
        while let Some((signal, to_us_alone)) = signals.next() {
            if to_us_alone && signal != libc::SIGCHLD {
                process.send(signal);
            }
        }
    }
    if let Some(foreign) = foreign {
        return Err(foreign.into());
    }
    teams.end(&mut output);
    Ok(output)
}

/// Sleeps until one of the descriptors is readable.
fn wait(fds: &[Option<BorrowedFd<'_>>]) {
    let mut entries: Vec<libc::pollfd> = fds
        .iter()
        .flatten()
        .map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 })
        .collect();
    // SAFETY: the entries are valid for their count. A signal ends it early, and the caller looks again.
    unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as u64, -1) };
}
