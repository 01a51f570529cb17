//! Makes one run of one program, bounded in time and measured from outside.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use atoll_bench_common::{Output, Pipes, command};

use crate::error::Error;
use crate::group::Group;
use crate::{setting, signals};

/// The number of CPUs that measured programs run on; they are the same for all programs.
pub(crate) const CPUS: usize = 2;

/// The program of a run, and its parameters.
pub(crate) struct Run<'a> {
    pub(crate) command: &'a [OsString],
    /// The variables set for the program; all other OMP_ variables are taken away.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// The memory cgroup in which it runs alone.
    pub(crate) group: Option<&'a Group>,
    pub(crate) timeout: Duration,
    /// Whether huge pages are counted while it runs.
    pub(crate) huge: bool,
}

/// The outcome of a run, and what was measured from outside.
pub(crate) struct Outcome {
    pub(crate) output: Output,
    /// The most memory at any time, in bytes: charged to the cgroup, with huge pages in use.
    pub(crate) peak: Option<u64>,
    /// The most that one of its processes had resident, as far as their parents waited for them.
    pub(crate) resident: u64,
    /// The number of earlier runs that the kernel killed for lack of memory though swap space was free.
    pub(crate) killed: u32,
}

impl Outcome {
    pub(crate) fn checksum(&self) -> Option<&str> {
        self.output.line("Checksum:")
    }

    /// Whether SIGKILL ended it, not sent by this process.
    pub(crate) fn was_killed(&self) -> bool {
        !self.output.timed_out && self.output.status.signal() == Some(libc::SIGKILL)
    }
}

/// Returns the first [`CPUS`] CPUs that this process may use.
fn cpus() -> libc::cpu_set_t {
    // SAFETY: sets of CPUs are plain bits; both calls get ones of their size.
    unsafe {
        let mut usable: libc::cpu_set_t = std::mem::zeroed();
        let mut chosen: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut usable);
        let all = (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &usable));
        all.take(CPUS).for_each(|cpu| libc::CPU_SET(cpu, &mut chosen));
        chosen
    }
}

fn spawn(run: &Run) -> Result<Child, Error> {
    let mut command = command(run.command, &run.environment);
    let processes = run.group.map(|group| {
        let path = group.processes();
        OpenOptions::new().write(true).open(&path).map_err(|e| Error::at("open", &path, e))
    });
    let mut processes = processes.transpose()?;
    let cpus = cpus();
    // SAFETY: between fork and exec only system calls are made; what they point to is owned by the closure.
    unsafe {
        command.pre_exec(move || {
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const cpus);
            match &mut processes {
                Some(file) => file.write_all(b"0"),
                None => Ok(()),
            }
        });
    }
    command.spawn().map_err(|e| Error::at("run", run.command[0].as_ref(), e))
}

/// Returns a descriptor that becomes readable when the process ends.
fn end_of(child: &Child) -> Result<OwnedFd, Error> {
    // SAFETY: no pointers; the descriptor is fresh and owned by nobody else.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(child.id()), 0);
        if fd < 0 {
            return Err(Error::said(format!(
                "cannot watch the program: {}",
                std::io::Error::last_os_error()
            )));
        }
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Waits until the process ends (`true`), the time is over (`false`) or the user interrupts.
fn wait(child: &Child, run: &Run, start: Instant, huge: &mut u64) -> Result<bool, Error> {
    let end = end_of(child)?;
    let step = if run.huge { 10 } else { 200 };
    loop {
        signals::check()?;
        if run.huge {
            *huge = setting::huge_bytes().max(*huge);
        }
        let left = run.timeout.saturating_sub(start.elapsed()).as_millis() as i32;
        if left == 0 {
            return Ok(false);
        }
        let mut poll = libc::pollfd { fd: end.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, ours.
        if unsafe { libc::poll(&raw mut poll, 1, left.min(step)) } > 0 {
            return Ok(true);
        }
    }
}

/// Returns the process's status and the most it had resident.
fn reap(child: &Child) -> Result<(ExitStatus, u64), Error> {
    let mut status = 0;
    // SAFETY: both results are plain data and ours; the child is waited for only here.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        while libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut usage) < 0 {
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(Error::said(format!("the program's end is not known: {error}")));
            }
        }
        Ok((ExitStatus::from_raw(status), usage.ru_maxrss as u64 * 1024))
    }
}

/// Kills everything that a run started.
fn kill(child: &Child, group: Option<&Group>) {
    // SAFETY: no pointers; the process group is the child's own.
    unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
    if let Some(group) = group {
        group.empty();
    }
}

/// Runs a program to its end or to the end of its time.
pub(crate) fn run(run: &Run) -> Result<Outcome, Error> {
    signals::check()?;
    let before = if run.huge { setting::huge_bytes() } else { 0 };
    let mut huge = before;
    let start = Instant::now();
    let mut child = spawn(run)?;
    let pipes = Pipes::of(&mut child);
    let ended = wait(&child, run, start, &mut huge);
    let seconds = start.elapsed().as_secs_f64();
    if !matches!(ended, Ok(true)) {
        kill(&child, run.group);
    }
    let (status, resident) = reap(&child)?;
    let (stdout, stderr) = pipes.texts();
    let timed_out = !ended?;
    let peak = run.group.and_then(Group::peak).map(|bytes| bytes + huge.saturating_sub(before));
    let output = Output { seconds, timed_out, status, stdout, stderr };
    Ok(Outcome { output, peak, resident, killed: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_bounded_also_for_children() {
        let command = ["/bin/sh", "-c", "sleep 50 & sleep 50"].map(OsString::from);
        let timeout = Duration::from_secs(1);
        let bounded = Run { command: &command, environment: Vec::new(), group: None, timeout, huge: false };
        let output = run(&bounded).unwrap().output;
        assert!(output.timed_out);
        assert!(output.seconds < 20.0);
    }
}
