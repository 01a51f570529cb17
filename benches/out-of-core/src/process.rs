//! Makes one run of one program, bounded in time and measured from outside.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use atoll_record::figures::Figures;

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

/// The outcome of a run.
pub(crate) struct Outcome {
    /// The seconds from before the start to after the end.
    pub(crate) seconds: f64,
    pub(crate) timed_out: bool,
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The most memory at any time, in bytes: charged to the cgroup, with huge pages in use.
    pub(crate) peak: Option<u64>,
    /// The most that one of its processes had resident, as far as their parents waited for them.
    pub(crate) resident: u64,
    /// The number of earlier runs that the kernel killed for lack of memory though swap space was free.
    pub(crate) killed: u32,
}

impl Outcome {
    /// Returns the rest of the output's line that begins with `head`.
    pub(crate) fn line(&self, head: &str) -> Option<&str> {
        self.stdout.lines().find_map(|line| Some(line.strip_prefix(head)?.trim()))
    }

    pub(crate) fn checksum(&self) -> Option<&str> {
        self.line("Checksum:")
    }

    /// Returns atoll's figures, where the program ran with `--summary json`.
    pub(crate) fn figures(&self) -> Option<Figures> {
        let json = self.stderr.lines().rev().find(|line| line.starts_with('{'))?;
        serde_json::from_str(json).ok()
    }

    /// Whether SIGKILL ended it, not sent by this process.
    pub(crate) fn was_killed(&self) -> bool {
        !self.timed_out && self.status.signal() == Some(libc::SIGKILL)
    }

    /// Returns in one line why the run counts for nothing, if it does.
    pub(crate) fn failure(&self) -> Option<String> {
        if self.timed_out || self.status.success() {
            return None;
        }
        let how = match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "no status".to_owned(),
        };
        let said =
            self.line("Verification:").or_else(|| self.stderr.lines().find(|line| !line.starts_with('{')));
        Some(said.map_or(how.clone(), |said| format!("{how}: {said}")))
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
    let mut command = Command::new(&run.command[0]);
    command.args(&run.command[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("OMP_") || name.starts_with("GOMP_")) {
            command.env_remove(name);
        }
    }
    command.envs(run.environment.iter().map(|(name, value)| (name, value)));
    command.process_group(0);
    let processes = run.group.map(|group| {
        let path = group.processes();
        OpenOptions::new().write(true).open(&path).map_err(|e| Error::at("open", &path, e))
    });
    let mut processes = processes.transpose()?;
    let cpus = cpus();
    let parent = std::process::id() as i32;
    // SAFETY: between fork and exec only system calls are made; what they point to is owned by the closure.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() != parent {
                libc::_exit(1);
            }
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const cpus);
            match &mut processes {
                Some(file) => file.write_all(b"0"),
                None => Ok(()),
            }
        });
    }
    command.spawn().map_err(|e| Error::at("run", run.command[0].as_ref(), e))
}

fn reader(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // Bytes that were read before an error are kept.
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
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
    let (stdout, stderr) = (child.stdout.take().map(reader), child.stderr.take().map(reader));
    let ended = wait(&child, run, start, &mut huge);
    let seconds = start.elapsed().as_secs_f64();
    if !matches!(ended, Ok(true)) {
        kill(&child, run.group);
    }
    let (status, resident) = reap(&child)?;
    let text = |reader: Option<JoinHandle<String>>| reader.and_then(|r| r.join().ok()).unwrap_or_default();
    let (stdout, stderr) = (text(stdout), text(stderr));
    let timed_out = !ended?;
    let peak = run.group.and_then(Group::peak).map(|bytes| bytes + huge.saturating_sub(before));
    Ok(Outcome { seconds, timed_out, status, stdout, stderr, peak, resident, killed: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(text: &str, seconds: u64) -> Outcome {
        let command = ["/bin/sh", "-c", text].map(OsString::from);
        let timeout = Duration::from_secs(seconds);
        run(&Run { command: &command, environment: Vec::new(), group: None, timeout, huge: false }).unwrap()
    }

    #[test]
    fn what_a_program_says_is_found() {
        let outcome = shell("echo 'Checksum: 00ff'; echo '{\"wall_seconds\":2.5}' >&2", 60);
        assert_eq!(outcome.checksum(), Some("00ff"));
        assert_eq!(outcome.figures().map(|f| f.wall_seconds), Some(2.5));
        assert_eq!(outcome.failure(), None);
        assert!(!outcome.timed_out);
    }

    #[test]
    fn a_failure_is_one_line() {
        let outcome = shell("echo no luck >&2; exit 3", 60);
        assert_eq!(outcome.failure().as_deref(), Some("exit status 3: no luck"));
    }

    #[test]
    fn time_is_bounded_also_for_children() {
        let outcome = shell("sleep 50 & sleep 50", 1);
        assert!(outcome.timed_out);
        assert!(outcome.seconds < 20.0);
    }
}
