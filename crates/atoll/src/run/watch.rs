//! Looking after a running program: its end, its workers' ends, and the signals meant for it.
//!
//! The launcher sleeps in `poll` on one descriptor per process and one for its signals; every 50 ms it looks
//! whether workers came. Workers are children of the program (private page tables), so what they ended by is
//! read from /proc while they are zombies.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use atoll_memory::control::{Control, EXIT_WORKER, MAX_WORKERS};

/// Between two looks for new workers.
const PERIOD: Duration = Duration::from_millis(50);
/// How long a dead worker may be news before its program's end is: at an orderly end both come at once.
const GRACE: Duration = Duration::from_millis(100);
/// How long what was killed may take to be gone.
const LAST_WAIT: Duration = Duration::from_millis(800);

/// Why the launcher cannot look after a program.
#[derive(thiserror::Error, Debug)]
pub(crate) enum WatchError {
    /// A system call failed that never does.
    #[error("cannot look after the program: {0}: {1}")]
    System(&'static str, std::io::Error),
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By this exit status.
    Status(i32),
    /// By this signal.
    Signal(i32),
}

fn failed(what: &'static str) -> WatchError {
    WatchError::System(what, std::io::Error::last_os_error())
}

/// Orphans of the program come to the launcher, not to init.
pub(crate) fn become_subreaper() {
    // SAFETY: no pointers. Where it is refused, workers still die with the program (their parent-death signal).
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// The signals that reach the launcher, taken by descriptor instead of by handler. Stop signals are not among
/// them: Ctrl-Z stops launcher and program together, as a shell expects.
pub(crate) struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

const TAKEN: [i32; 12] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGWINCH,
    libc::SIGXCPU,
    libc::SIGURG,
    libc::SIGCONT,
    libc::SIGCHLD,
];

impl Signals {
    /// Blocks them and opens the descriptor.
    ///
    /// # Errors
    /// The kernel has no descriptors for signals.
    pub(crate) fn take() -> Result<Signals, WatchError> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both sets are valid for writes, and initialised by the calls before they are read.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in TAKEN {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) != 0 {
                return Err(failed("sigprocmask"));
            }
            let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(failed("signalfd"));
            }
            Ok(Signals { fd: OwnedFd::from_raw_fd(fd), before: before.assume_init() })
        }
    }

    /// The mask as it was, for the program.
    pub(crate) fn before(&self) -> libc::sigset_t {
        self.before
    }

    /// The next signal; and whether somebody sent it to the launcher alone, so that the program did not get it.
    fn next(&self) -> Option<(i32, bool)> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let bytes = size_of::<libc::signalfd_siginfo>();
        // SAFETY: info is valid for writes of its size.
        let n = unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), bytes) };
        if n != bytes as isize {
            return None;
        }
        // SAFETY: filled by the kernel.
        let info = unsafe { info.assume_init() };
        // The terminal's signals come from the kernel, to the whole foreground group.
        Some((info.ssi_signo as i32, info.ssi_code <= 0))
    }
}

/// A process that cannot be mistaken for a later one with the same number.
struct Process {
    pid: i32,
    fd: OwnedFd,
}

impl Process {
    fn open(pid: i32) -> Option<Process> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        // SAFETY: a fresh descriptor.
        (fd >= 0).then(|| Process { pid, fd: unsafe { OwnedFd::from_raw_fd(fd as i32) } })
    }

    fn send(&self, signal: i32) {
        // SAFETY: a null siginfo is allowed.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.fd.as_raw_fd(),
                signal,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
    }

    fn is_over(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
    }
}

/// What /proc says of a process.
struct Stat {
    state: u8,
    parent: i32,
    /// As `wait` would give it; real only of a zombie.
    exit_code: i32,
}

fn stat(pid: i32) -> Option<Stat> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&text)
}

fn parse_stat(text: &[u8]) -> Option<Stat> {
    // The name, in parentheses, may hold anything.
    let end = text.iter().rposition(|&b| b == b')')?;
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    // state is field 3, ppid 4, exit_code 52.
    let exit_code = fields.nth(52 - 5).and_then(|f| f.parse().ok()).unwrap_or(0);
    Some(Stat { state, parent, exit_code })
}

/// The ending that a `wait` status means.
fn ending(status: i32) -> Ending {
    if libc::WIFSIGNALED(status) {
        Ending::Signal(libc::WTERMSIG(status))
    } else {
        Ending::Status(libc::WEXITSTATUS(status))
    }
}

struct Watch<'a> {
    control: &'static Control,
    signals: &'a Signals,
    child: i32,
    child_fd: Process,
    /// How the child ended, once it has.
    ended: Option<Ending>,
    program: Option<Process>,
    /// By index in the team.
    workers: BTreeMap<usize, Process>,
    /// Workers found dead while the program lived.
    dead: Option<(usize, Instant, Option<Ending>)>,
}

/// Looks after `child` and what it starts until all of it is over; nothing of it is left then.
///
/// # Errors
/// The kernel lacks process descriptors.
pub(crate) fn watch(
    child: i32,
    control: &'static Control,
    signals: &Signals,
) -> Result<Ending, WatchError> {
    let child_fd = Process::open(child).ok_or_else(|| failed("pidfd_open"))?;
    let mut watch = Watch {
        control,
        signals,
        child,
        child_fd,
        ended: None,
        program: None,
        workers: BTreeMap::new(),
        dead: None,
    };
    let blamed = watch.until_over();
    watch.clean_up();
    Ok(watch.verdict(blamed))
}

impl Watch<'_> {
    /// Returns when child and program are over; with what a worker did if that was why.
    fn until_over(&mut self) -> Option<Ending> {
        loop {
            self.look_for_workers();
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
        }
    }

    fn look_for_workers(&mut self) {
        let control = self.control;
        if self.program.is_none() {
            let pid = control.program.load(Ordering::Acquire);
            if pid > 0 {
                self.program = Process::open(pid);
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
            // Its slot was emptied or given to another: the runtime ended it.
            self.workers.remove(&index);
            // Threads of the program (shared page tables) have its number as their group's, and die with it.
            if pid > 0
                && stat(pid).is_some_and(|s| s.parent == program)
                && let Some(process) = Process::open(pid)
            {
                self.workers.insert(index, process);
            }
        }
    }

    fn sleep(&self) {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = vec![entry(self.signals.fd.as_raw_fd())];
        if self.ended.is_none() {
            fds.push(entry(self.child_fd.fd.as_raw_fd()));
        }
        // A process known to be over would wake us for ever; a dead worker waits for its grace.
        if self.dead.is_none() {
            fds.extend(self.program.iter().filter(|p| !p.is_over()).map(|p| entry(p.fd.as_raw_fd())));
            fds.extend(self.workers.values().map(|p| entry(p.fd.as_raw_fd())));
        }
        let period = if self.dead.is_some() { Duration::from_millis(5) } else { PERIOD };
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
                _ => self.child_fd.send(signal),
            }
        }
    }

    /// Takes the ends of all children, adopted ones among them.
    fn reap(&mut self) {
        loop {
            let mut status = 0;
            // SAFETY: status is valid for writes.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::__WALL) };
            if pid <= 0 {
                return;
            }
            if pid == self.child {
                self.ended = Some(ending(status));
            }
        }
    }

    /// Has a worker died under a program that goes on? If so ends the program.
    fn look_for_deaths(&mut self, program_over: bool) -> Option<Ending> {
        let control = self.control;
        let orderly = control.exit_status.load(Ordering::Acquire) != 0
            || control.failure.load(Ordering::Acquire) != 0;
        if program_over || orderly {
            self.dead = None;
            return None;
        }
        match self.dead {
            None => {
                let (&index, process) = self.workers.iter().find(|(_, p)| p.is_over())?;
                let how = stat(process.pid).filter(|s| s.state == b'Z').map(|s| ending(s.exit_code));
                self.dead = Some((index, Instant::now(), how));
                None
            }
            Some((index, since, _)) if since.elapsed() < GRACE => {
                // Still the same worker in its place?
                if !self.workers.contains_key(&index) {
                    self.dead = None;
                }
                None
            }
            Some((index, _, how)) => {
                self.report(index, how);
                Some(how.unwrap_or(Ending::Status(EXIT_WORKER)))
            }
        }
    }

    fn report(&self, index: usize, how: Option<Ending>) {
        match how {
            Some(Ending::Signal(signal)) => eprintln!(
                "atoll: worker {index} was killed by signal {signal} ({}): the program cannot go on without it",
                signal_text(signal)
            ),
            Some(Ending::Status(status)) => eprintln!(
                "atoll: worker {index} ended by itself with status {status}: the program cannot go on without it"
            ),
            None => eprintln!("atoll: worker {index} is gone: the program cannot go on without it"),
        }
    }

    /// Kills what is left of the program and takes its end. Other orphans go on to init, as without us.
    fn clean_up(&mut self) {
        if let Some(program) = &self.program {
            program.send(libc::SIGKILL);
        }
        self.child_fd.send(libc::SIGKILL);
        // Workers that came since the last look: now children of the launcher, unless the program is a zombie yet.
        let (us, program) = (std::process::id() as i32, self.control.program.load(Ordering::Relaxed));
        for (index, figures) in self.control.figures.iter().enumerate().take(MAX_WORKERS).skip(1) {
            let pid = figures.pid.load(Ordering::Relaxed);
            if pid > 0
                && pid != us
                && !self.workers.get(&index).is_some_and(|p| p.pid == pid)
                && let Some(process) = Process::open(pid)
                && stat(pid).is_some_and(|s| s.parent == us || s.parent == program)
            {
                self.workers.insert(index, process);
            }
        }
        for worker in self.workers.values() {
            worker.send(libc::SIGKILL);
        }
        let until = Instant::now() + LAST_WAIT;
        loop {
            self.reap();
            let left = self.workers.values().chain(&self.program).any(|p| !p.is_over());
            if (!left && self.ended.is_some()) || Instant::now() >= until {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.reap();
    }

    /// What atoll itself ends by.
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

/// The signal's name in words.
pub(crate) fn signal_text(signal: i32) -> String {
    // SAFETY: strsignal returns a C string or null; nobody else calls it here.
    let text = unsafe {
        let text = libc::strsignal(signal);
        if text.is_null() {
            return "unknown signal".to_owned();
        }
        std::ffi::CStr::from_ptr(text)
    };
    text.to_string_lossy().into_owned()
}

/// Ends this process by `signal`, without a core file of its own.
pub(crate) fn die_by(signal: i32) -> ExitCode {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls on valid local data; the default action ends the process.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::signal(signal, libc::SIG_DFL);
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::raise(signal);
    }
    // Only where the signal does not end a process.
    ExitCode::from((128 + signal) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_may_hold_anything() {
        let mut text = b"12 (a) b (c) Z 7".to_vec();
        for field in 5..=51 {
            text.extend_from_slice(format!(" {field}").as_bytes());
        }
        text.extend_from_slice(b" 11\n");
        let stat = parse_stat(&text).unwrap();
        assert_eq!((stat.state, stat.parent, stat.exit_code), (b'Z', 7, 11));
        assert_eq!(ending(stat.exit_code), Ending::Signal(11));
        assert!(parse_stat(b"12 (x").is_none());
    }
}
