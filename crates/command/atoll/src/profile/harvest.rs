//! The thread that harvests. It waits for the program's process, sets samplers on it before it executes the program, and
//! records until it is told to stop.
//!
//! The program's process sends its number through one pipe and waits at another, between fork and exec.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use atoll_profile_wire::Reader;
use atoll_record::profile::ProfileWriter;
use atoll_sampling::recorder::{Options, Recorded, Recorder};
use atoll_sampling::threads::Threads;
use atoll_sampling::{Sampler, SamplerError};

/// The milliseconds between two harvests where buffers do not call for one.
const TICK_MS: i32 = 100;
/// The least milliseconds between two harvests of a thread that harvests at its own pace.
const LEAST_MS: i32 = 1;

/// The program's side: made before the program's process, and given to its command.
pub(super) struct Gate {
    number: PipeWriter,
    go: PipeReader,
}

/// The harvester's side.
struct Door {
    number: PipeReader,
    go: PipeWriter,
}

/// A harvester at work.
pub(super) struct Harvester<W: Write> {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Recorded<W>, SamplerError>>,
}

impl Gate {
    /// Makes the command's process stop here until the harvester lets it go.
    pub(super) fn put_in(&self, command: &mut Command) {
        let (number, go) = (self.number.as_raw_fd(), self.go.as_raw_fd());
        // SAFETY: only system calls, between fork and exec; both descriptors are open there.
        unsafe {
            command.pre_exec(move || {
                pass(number, go);
                Ok(())
            });
        }
    }
}

/// Sends this process's number and waits. Where the harvester is gone both calls end at once.
fn pass(number: RawFd, go: RawFd) {
    let mut byte = 0u8;
    // SAFETY: plain system calls on local data.
    unsafe {
        let pid = libc::getpid().to_le_bytes();
        libc::write(number, pid.as_ptr().cast(), pid.len());
        libc::read(go, (&raw mut byte).cast(), 1);
    }
}

/// Starts the harvesting thread.
///
/// # Errors
/// There are no pipes, or no thread.
pub(super) fn start<W: Write + Send + 'static>(
    writer: ProfileWriter<W>,
    options: Options,
    samplers: Vec<Box<dyn Sampler>>,
    journal: Option<Reader>,
    on_wakeups: bool,
) -> io::Result<(Gate, Harvester<W>)> {
    let (number, number_to) = io::pipe()?;
    let (go_from, go) = io::pipe()?;
    let stop = Arc::new(AtomicBool::new(false));
    let door = Door { number, go };
    let stopped = Arc::clone(&stop);
    let run = move || harvest(door, writer, options, samplers, journal, &stopped, on_wakeups);
    let thread = std::thread::Builder::new().name("atoll-harvest".into()).spawn(run)?;
    Ok((Gate { number: number_to, go: go_from }, Harvester { stop, thread }))
}

impl<W: Write> Harvester<W> {
    /// Ends the thread and returns what it recorded.
    ///
    /// # Errors
    /// A sampler could not be set on the program.
    pub(super) fn finish(self) -> Result<Recorded<W>, SamplerError> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap_or_else(|_| Err(SamplerError::Absent("the harvester ended early".into())))
    }
}

fn harvest<W: Write>(
    mut door: Door,
    writer: ProfileWriter<W>,
    options: Options,
    samplers: Vec<Box<dyn Sampler>>,
    journal: Option<Reader>,
    stop: &AtomicBool,
    on_wakeups: bool,
) -> Result<Recorded<W>, SamplerError> {
    let mut number = [0; 4];
    if door.number.read_exact(&mut number).is_err() {
        return Err(SamplerError::Absent("the program was not started".into()));
    }
    let tid = u32::from_le_bytes(number);
    // Without perf the program's inside reports what it can.
    let threads = match Threads::follow(tid) {
        Err(SamplerError::Forbidden(_)) if samplers.iter().all(|sampler| !sampler.needs_perf()) => {
            Ok(Threads::none())
        }
        followed => followed,
    };
    let recorder =
        threads.and_then(|threads| Recorder::new(writer, options, threads, samplers, journal, tid));
    // The program is let go in any case.
    let _ = door.go.write_all(&[1]);
    let mut recorder = recorder?;
    let mut pace = TICK_MS;
    while !stop.load(Ordering::Acquire) {
        // New threads are to be sampled at once, in either way.
        wait(if on_wakeups { recorder.descriptors() } else { recorder.side_descriptors() }, pace);
        recorder.tick(false);
        if !on_wakeups {
            pace = next_pace(pace, recorder.fullest());
        }
    }
    recorder.tick(true);
    Ok(recorder.finish())
}

/// Returns the next pause of a thread that harvests at its own pace, from the filling of the fullest buffer: short enough to be
/// in time, and no shorter.
fn next_pace(pace: i32, fullest: f64) -> i32 {
    match fullest {
        full if full > 0.5 => (pace / 2).max(LEAST_MS),
        full if full < 0.2 => (pace * 2).min(TICK_MS),
        _ => pace,
    }
}

/// Sleeps until a buffer is full, or for `ms` milliseconds.
fn wait(descriptors: Vec<RawFd>, ms: i32) {
    let mut entries: Vec<libc::pollfd> =
        descriptors.into_iter().map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: the entries are valid for their count.
    unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, ms) };
    // The descriptor of a thread that is over stays readable, and must not keep this loop busy.
    if entries.iter().any(|entry| entry.revents & libc::POLLHUP != 0) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
