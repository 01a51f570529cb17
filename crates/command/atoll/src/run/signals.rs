//! Signals: those that reach the launcher, on their way to the program, and the one that it ends by.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::process::ExitCode;

use super::witness::Witness;

/// The signals that reach the launcher, taken by descriptor instead of by handler. Stop signals are not among them: Ctrl-Z
/// stops launcher and program together, as a shell expects.
pub(crate) struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
    witness: Option<Witness>,
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
    /// Blocks these signals and opens the descriptor.
    ///
    /// # Errors
    /// The kernel has no descriptors for signals.
    pub(crate) fn take() -> std::io::Result<Signals> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both sets are valid for writes, and initialised by the calls before they are read.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in TAKEN {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(std::io::Error::last_os_error());
            }
            let fd = OwnedFd::from_raw_fd(fd);
            Ok(Signals { fd, before: before.assume_init(), witness: Witness::start(&set.assume_init()) })
        }
    }

    /// Returns the mask as it was before, for the program.
    pub(crate) fn before(&self) -> libc::sigset_t {
        self.before
    }

    /// Returns a descriptor that is readable when a signal has come.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the next signal, and whether it was sent to the launcher alone, so that the program did not get it.
    pub(crate) fn next(&self) -> Option<(i32, bool)> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let bytes = size_of::<libc::signalfd_siginfo>();
        // SAFETY: info is valid for writes of its size.
        let n = unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), bytes) };
        if n != bytes as isize {
            return None;
        }
        // SAFETY: filled by the kernel.
        let info = unsafe { info.assume_init() };
        let signal = info.ssi_signo as i32;
        // The terminal's signals come from the kernel, to the whole foreground group.
        let by_somebody = info.ssi_code <= 0 && signal != libc::SIGCHLD;
        let to_group = || self.witness.as_ref().is_some_and(|witness| witness.also_got(signal));
        Some((signal, by_somebody && !to_group()))
    }
}

/// Signals by which users end programs; they need no message.
pub(crate) const QUIET: [i32; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE, libc::SIGALRM];

/// Returns the signal's name in words.
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
    // This is reached only where the signal does not end a process.
    ExitCode::from((128 + signal) as u8)
}
