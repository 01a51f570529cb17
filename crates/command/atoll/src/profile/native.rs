//! Runs a program as it is, with samplers on it.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use atoll_profile_wire as wire;

use super::choose;
use super::finish::{self, Over};
use super::session::{self, Ended, ProfileError};
use crate::cli::ProfileArgs;
use crate::run::check::path;
use crate::run::launch::{bind, preload};
use crate::run::library;
use crate::run::process::Process;
use crate::run::signals::Signals;
use crate::run::watch::{self, Ending, WatchError};

/// The library that is loaded into a program that runs as it is.
const LIBRARY: &str = "libatoll_profile.so";

/// Runs the program to its end.
///
/// # Errors
/// See [`ProfileError`].
pub(super) fn launch(args: &ProfileArgs) -> Result<Ended, ProfileError> {
    let words = &args.run.program.words;
    let path = path::find(&words[0], std::env::var_os("PATH").as_deref())?;
    let chosen = choose::choose(args)?;
    let signals = Signals::take().map_err(WatchError::Signals)?;
    let session = session::begin(args, &path, None, chosen)?;
    let mut command = Command::new(&path);
    command.arg0(&words[0]).args(&words[1..]);
    if let Some(fd) = session.journal {
        load_into(&mut command, fd);
        if session.header.samplers.iter().any(|sampler| sampler.name == "writes") {
            command.env(wire::ENVIRONMENT_USERFAULT, "1");
        }
    }
    if let Some(workers) = args.run.memory.workers {
        command.env("OMP_NUM_THREADS", workers.to_string());
    }
    bind(&mut command, &signals);
    session.gate.put_in(&mut command);
    let begin = std::time::Instant::now();
    let child = command.spawn();
    drop(session.gate);
    let child = match child {
        Ok(child) => child,
        Err(error) => {
            let _ = session.harvester.finish();
            return Err(ProfileError::Exec(path.display().to_string(), error));
        }
    };
    let process = Process::open(child.id() as i32);
    let process = process.ok_or_else(|| WatchError::Process(io::Error::last_os_error()))?;
    let (ending, cpu_seconds) = watch_over(&process, &signals);
    let over = Over { wall_seconds: begin.elapsed().as_secs_f64(), cpu_seconds, ending, under_runtime: None };
    let recorded = session.harvester.finish();
    Ok(Ended { ending, failed: !finish::finish(&session.header, &session.output, recorded, &over) })
}

/// Makes the command load that library into the program; it reports blocks and regions through the journal.
fn load_into(command: &mut Command, journal: i32) {
    let executable = std::env::current_exe().unwrap_or_default();
    let library = library::beside_or_installed(LIBRARY, &executable);
    let Some(library) = library.filter(|library| !library::cannot_be_preloaded(library)) else {
        eprintln!(
            "atoll: {LIBRARY} is not beside atoll, or its path has a space or colon: blocks and regions will have no names"
        );
        return;
    };
    command.env(wire::ENVIRONMENT, journal.to_string());
    let own = std::env::var_os("LD_PRELOAD");
    command.env("LD_PRELOAD", preload(&library, own.as_deref()));
    if let Some(own) = own {
        command.env(wire::ENVIRONMENT_PRELOAD, own);
    }
}

/// Passes signals on until the program is over; returns how it ended, and its processor time.
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
