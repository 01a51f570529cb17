//! The witness: a process beside the launcher that finds out whether a signal was sent to the launcher alone or to its whole
//! group.
//!
//! The kernel does not say that. A signal for the group (`kill 0`, `kill -GROUP`, a batch system) reaches the program, too, and
//! must not be passed on. A signal for the launcher alone must be passed on (`watch`). The witness is in the group, takes the
//! same signals and writes down which came. It ends with the launcher.

use std::io::{PipeReader, Read};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// How long the witness may take to notice a signal.
const PATIENCE: Duration = Duration::from_millis(40);

/// The witness, which is ended when this value is dropped.
pub(crate) struct Witness {
    process: i32,
    seen: PipeReader,
}

impl Witness {
    /// Starts the witness. It takes the signals of `set`, which the calling thread blocks. Returns `None` where no process can
    /// be made; then every signal counts as the launcher's alone.
    pub(crate) fn start(set: &libc::sigset_t) -> Option<Witness> {
        let (seen, write) = std::io::pipe().ok()?;
        let launcher = std::process::id() as i32;
        // SAFETY: the child makes system calls only: other threads of this process may hold any lock.
        let process = unsafe { libc::fork() };
        if process == 0 {
            // SAFETY: as above.
            unsafe { watch(write.as_raw_fd(), set, launcher) }
        }
        (process > 0).then_some(Witness { process, seen })
    }

    /// Whether a signal that came to the launcher also came to the group.
    pub(crate) fn also_got(&self, signal: i32) -> bool {
        let begin = Instant::now();
        while wait(&self.seen, PATIENCE.saturating_sub(begin.elapsed())) {
            let mut seen = [0u8; 64];
            let count = (&self.seen).read(&mut seen).unwrap_or(0);
            if seen[..count].contains(&(signal as u8)) {
                return true;
            }
            if count == 0 {
                break;
            }
        }
        false
    }
}

/// Waits until there is something to read.
fn wait(from: &PipeReader, time: Duration) -> bool {
    let mut entry = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, valid for the call.
    unsafe { libc::poll(&raw mut entry, 1, time.as_millis() as i32) > 0 }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // SAFETY: a child of this process's that nobody has waited for.
        unsafe {
            libc::kill(self.process, libc::SIGKILL);
            libc::waitpid(self.process, std::ptr::null_mut(), 0);
        }
    }
}

/// Closes descriptors by the system call itself, as glibc has a function for it only since 2.34.
///
/// # Safety
/// No other code may use them.
unsafe fn close_range(first: u32, last: u32) {
    // SAFETY: by the caller.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

/// Runs the witness: it writes a byte for each signal that comes.
///
/// # Safety
/// It must run in a new process, which may make system calls only.
unsafe fn watch(to: i32, set: &libc::sigset_t, launcher: i32) -> ! {
    // SAFETY: by the caller; sets and buffers are this process's own.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NAME, c"atoll-witness".as_ptr());
        // The program's output ends when the program does, so no other process may hold it open.
        if to > 0 {
            close_range(0, to as u32 - 1);
        }
        close_range(to as u32 + 1, u32::MAX);
        while libc::getppid() == launcher {
            let signal = libc::sigwaitinfo(set, std::ptr::null_mut());
            if signal > 0 {
                let byte = signal as u8;
                libc::write(to, (&raw const byte).cast(), 1);
            }
        }
        libc::_exit(0)
    }
}
