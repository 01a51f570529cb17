//! Looks after a running program: its end, its workers' ends, and the signals meant for it.
//!
//! The launcher sleeps in `poll` on one descriptor per process and one for its signals. Every 50 ms it looks whether workers
//! came. Workers are children of the program (private page tables), so their endings are read from /proc while they are
//! zombies. At an orderly end the runtime says so in the control block before it ends its workers.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use atoll_memory::control::{Control, EXIT_WORKER, MAX_WORKERS};

use super::automatic::Automatic;
use super::process::{Process, stat};
use super::signals::{QUIET, Signals, signal_text};
use super::stuck::Stuck;

/// The time between two looks for new workers.
const PERIOD: Duration = Duration::from_millis(50);
/// The time between two looks while a worker's death is in doubt.
const SHORT_PERIOD: Duration = Duration::from_millis(5);
/// How long a worker may be dead before its program is: at an orderly end they end together.
const GRACE: Duration = Duration::from_millis(150);
/// How long a program may live on after it gave up.
const GIVE_UP: Duration = Duration::from_secs(1);
/// How long killed processes may take to be gone.
const LAST_WAIT: Duration = Duration::from_millis(800);

/// The reason why the launcher cannot look after a program.
#[derive(thiserror::Error, Debug)]
pub(crate) enum WatchError {
    /// Signals cannot be blocked or received.
    #[error("cannot receive signals for the program: {0}")]
    Signals(#[from] std::io::Error),
    /// There are no descriptors of processes.
    #[error(
        "cannot look after the program: pidfd_open: {0} (Linux 5.3 has it; `atoll doctor` looks for filters)"
    )]
    Process(std::io::Error),
}

/// The ending of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The program ended with this exit status.
    Status(i32),
    /// This signal ended the program.
    Signal(i32),
}

/// Returns the ending that a `wait` status means.
pub(crate) fn ending(status: i32) -> Ending {
    if libc::WIFSIGNALED(status) {
        Ending::Signal(libc::WTERMSIG(status))
    } else {
        Ending::Status(libc::WEXITSTATUS(status))
    }
}

/// Makes orphans of the program children of the launcher, not of init.
pub(crate) fn become_subreaper() {
    // SAFETY: no pointers. Where it is refused, workers still die with the program (their parent-death signal).
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// The results once everything is over.
#[derive(Debug)]
pub(crate) struct Watched {
    /// The ending of atoll itself.
    pub(crate) ending: Ending,
    /// The file of the program that was managed.
    pub(crate) program: Option<PathBuf>,
    /// The endings of other nodes' launchers that have ended.
    pub(crate) launchers: BTreeMap<i32, Ending>,
}

/// A worker found dead while the program lived.
#[derive(Debug, Clone, Copy)]
struct Death {
    index: usize,
    since: Instant,
    /// The worker's ending, read while it was a zombie.
    how: Option<Ending>,
}

struct Watch<'a> {
    control: &'static Control,
    signals: &'a Signals,
    child: Process,
    /// The child's ending, once it has ended.
    ended: Option<Ending>,
    program: Option<Process>,
    file: Option<PathBuf>,
    /// The workers by index in the team.
    workers: BTreeMap<usize, Process>,
    death: Option<Death>,
    /// The time at which the runtime gave the program up.
    given_up: Option<Instant>,
    stuck: Stuck,
    near: Automatic,
    /// The endings of other nodes' launchers that have ended.
    launchers: BTreeMap<i32, Ending>,
    known_launchers: Vec<i32>,
}

/// Looks after `child` and what it starts until all of it is over; nothing of it is left then. `launchers` are children that
/// start other nodes, and `near` chooses near memory where the user did not. `begins` is called with the process that is managed, once there
/// is one, and returns more launchers.
///
/// # Errors
/// The kernel lacks descriptors of processes.
pub(super) fn watch(
    child: i32,
    control: &'static Control,
    signals: &Signals,
    near: Automatic,
    launchers: Vec<i32>,
    begins: impl FnOnce(i32) -> Vec<i32>,
) -> Result<Watched, WatchError> {
    let child = Process::open(child).ok_or_else(|| WatchError::Process(std::io::Error::last_os_error()))?;
    let mut watch = Watch {
        control,
        signals,
        child,
        ended: None,
        program: None,
        file: None,
        workers: BTreeMap::new(),
        death: None,
        given_up: None,
        stuck: Stuck::new(),
        near,
        launchers: BTreeMap::new(),
        known_launchers: launchers,
    };
    let blamed = watch.until_over(begins);
    watch.clean_up();
    Ok(Watched { ending: watch.verdict(blamed), program: watch.file, launchers: watch.launchers })
}

impl Watch<'_> {
    /// Returns when child and program are over, with a worker's ending if that was the cause.
    fn until_over(&mut self, begins: impl FnOnce(i32) -> Vec<i32>) -> Option<Ending> {
        let mut begins = Some(begins);
        loop {
            self.look_for_workers();
            if let Some(program) = &self.program
                && let Some(begins) = begins.take()
            {
                self.known_launchers.extend(begins(program.pid));
            }
            let is_alone = self.program.as_ref().is_some_and(|program| program.pid == self.child.pid);
            self.near.look(self.control, is_alone);
            self.sleep();
            self.pass_signals_on();
            self.reap();
            let program_over = self.program.as_ref().is_none_or(Process::is_over);
            if self.ended.is_some() && program_over {
                return None;
            }
            if let Some(blamed) = self.look_for_deaths(program_over) {
                return Some(blamed);
            }
            if let Some(program) = self.program.as_ref().filter(|program| !program.is_over())
                && let Some(signal) = self.stuck.look(program.pid, self.control)
            {
                return Some(Ending::Signal(signal));
            }
        }
    }

    fn look_for_workers(&mut self) {
        let control = self.control;
        if self.program.is_none() {
            let pid = control.program.load(Ordering::Acquire);
            if pid > 0 {
                self.program = Process::open(pid);
                self.file = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
            }
        }
        let count = (control.workers.load(Ordering::Acquire) as usize).min(MAX_WORKERS);
        let program = control.program.load(Ordering::Relaxed);
        for index in 1..count {
            let pid = control.figures[index].pid.load(Ordering::Relaxed);
            let known = self.workers.get(&index).map(|p| p.pid);
            if known == Some(pid) || (known.is_none() && pid <= 0) {
                continue;
            }
            // The worker's slot was emptied or given to another: the runtime ended it.
            self.workers.remove(&index);
            // Threads of the program (shared page tables) are no processes, and die with it.
            if pid > 0
                && stat(pid).is_some_and(|s| s.parent == program)
                && let Some(process) = Process::open(pid)
            {
                self.workers.insert(index, process);
            }
        }
    }

    fn sleep(&self) {
        let entry =
            |fd: BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut fds = vec![entry(self.signals.fd())];
        if self.ended.is_none() {
            fds.push(entry(self.child.fd()));
        }
        // The descriptor of a process that is over would wake this loop for ever.
        let others = self.program.iter().chain(self.workers.values());
        fds.extend(others.filter(|p| !p.is_over()).map(|p| entry(p.fd())));
        let period = if self.death.is_some() { SHORT_PERIOD } else { PERIOD };
        // SAFETY: the entries are valid for writes.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, period.as_millis() as i32) };
    }

    fn pass_signals_on(&self) {
        while let Some((signal, for_us_alone)) = self.signals.next() {
            if !for_us_alone || signal == libc::SIGCHLD {
                continue;
            }
            match &self.program {
                Some(program) if self.ended.is_some() => program.send(signal),
                _ => self.child.send(signal),
            }
        }
    }

    /// Takes the endings of all children, adopted ones among them.
    fn reap(&mut self) {
        loop {
            let mut status = 0;
            // SAFETY: status is valid for writes.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::__WALL) };
            if pid <= 0 {
                return;
            }
            if pid == self.child.pid {
                self.ended = Some(ending(status));
            } else if self.known_launchers.contains(&pid) {
                self.launchers.insert(pid, ending(status));
            }
        }
    }

    /// Whether a worker has died under a program that goes on; if so this prints it and returns the ending.
    fn look_for_deaths(&mut self, program_over: bool) -> Option<Ending> {
        let ends = self.control.ending.load(Ordering::Acquire) != 0;
        if program_over || ends || self.has_given_up() {
            self.death = None;
            return None;
        }
        let Some(death) = self.death.filter(|d| self.workers.contains_key(&d.index)) else {
            self.death = self.first_death();
            return None;
        };
        if death.since.elapsed() < GRACE {
            return None;
        }
        report(&death, self.control);
        Some(death.how.unwrap_or(Ending::Status(EXIT_WORKER)))
    }

    fn first_death(&self) -> Option<Death> {
        let (&index, process) = self.workers.iter().find(|(_, p)| p.is_over())?;
        let how = stat(process.pid).filter(|s| s.is_zombie).map(|s| ending(s.exit_code));
        Some(Death { index, since: Instant::now(), how })
    }

    /// Whether the runtime has ended the program. It kills the program itself; this makes sure of that.
    fn has_given_up(&mut self) -> bool {
        let control = self.control;
        if control.exit_status.load(Ordering::Acquire) == 0 && control.failure.load(Ordering::Acquire) == 0 {
            return false;
        }
        let since = *self.given_up.get_or_insert_with(Instant::now);
        if since.elapsed() > GIVE_UP
            && let Some(program) = &self.program
        {
            program.send(libc::SIGKILL);
        }
        true
    }

    /// Kills what is left of the program and takes its ending. Other orphans go on to init, as they do without atoll.
    fn clean_up(&mut self) {
        // Workers that came since the last look are now children of the launcher, unless the program is still a zombie.
        let (us, program) = (std::process::id() as i32, self.control.program.load(Ordering::Relaxed));
        for (index, figures) in self.control.figures.iter().enumerate().take(MAX_WORKERS).skip(1) {
            let pid = figures.pid.load(Ordering::Relaxed);
            if pid > 0
                && pid != us
                && self.workers.get(&index).is_none_or(|p| p.pid != pid)
                && let Some(process) = Process::open(pid)
                && stat(pid).is_some_and(|s| s.parent == us || s.parent == program)
            {
                self.workers.insert(index, process);
            }
        }
        for process in self.program.iter().chain(self.workers.values()) {
            process.send(libc::SIGKILL);
        }
        let until = Instant::now() + LAST_WAIT;
        loop {
            self.reap();
            let left = self.workers.values().chain(&self.program).any(|p| !p.is_over());
            if !left && self.ended.is_some() {
                break;
            }
            if Instant::now() >= until {
                // The process that started the program (a shell, `timeout`) had time to notice.
                self.child.send(libc::SIGKILL);
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.reap();
    }

    /// Returns the ending of atoll itself.
    fn verdict(&self, blamed: Option<Ending>) -> Ending {
        let failure = self.control.failure.load(Ordering::Acquire);
        let exit = self.control.exit_status.load(Ordering::Acquire);
        match blamed {
            _ if failure != 0 => Ending::Status(failure),
            _ if exit != 0 => Ending::Status((exit - 1) & 0xff),
            Some(Ending::Signal(signal)) if signal != libc::SIGKILL => Ending::Signal(signal),
            Some(_) => Ending::Status(EXIT_WORKER),
            None => self.ended.unwrap_or(Ending::Status(EXIT_WORKER)),
        }
    }
}

fn report(death: &Death, control: &Control) {
    if matches!(death.how, Some(Ending::Signal(signal)) if QUIET.contains(&signal)) {
        return;
    }
    let worker = match &control.settings {
        settings if settings.several_nodes() => format!("worker {} of node {}", death.index, settings.node),
        _ => format!("worker {}", death.index),
    };
    let what = match death.how {
        Some(Ending::Signal(signal)) => format!("was killed by signal {signal} ({})", signal_text(signal)),
        Some(Ending::Status(status)) => format!("ended by itself with status {status}"),
        None => "is gone".to_owned(),
    };
    eprintln!("atoll: {worker} {what}, and the program cannot go on without it");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_statuses_are_told_apart() {
        assert_eq!(ending(11), Ending::Signal(11));
        assert_eq!(ending(0x8b), Ending::Signal(11));
        assert_eq!(ending(7 << 8), Ending::Status(7));
    }
}
