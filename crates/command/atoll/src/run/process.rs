//! Processes: handles that survive the reuse of numbers, and their states in /proc.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Debug)]
pub(crate) struct Process {
    /// The process's number.
    pub(crate) pid: i32,
    fd: OwnedFd,
}

impl Process {
    /// Opens the process that has this number now.
    pub(crate) fn open(pid: i32) -> Option<Process> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        // SAFETY: a fresh descriptor.
        (fd >= 0).then(|| Process { pid, fd: unsafe { OwnedFd::from_raw_fd(fd as i32) } })
    }

    /// Sends the process a signal.
    pub(crate) fn send(&self, signal: i32) {
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

    /// Returns a descriptor that is readable when the process is over.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether the process has ended (reaped or not).
    pub(crate) fn is_over(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
    }
}

/// The state of a process in /proc.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stat {
    /// Whether it has ended and its parent has not waited for it.
    pub(crate) is_zombie: bool,
    /// The parent's number.
    pub(crate) parent: i32,
    /// The exit code in the form that `wait` returns; valid only for a zombie.
    pub(crate) exit_code: i32,
}

/// Returns the state of the process with this number; `None` when it is gone.
pub(crate) fn stat(pid: i32) -> Option<Stat> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&text)
}

fn parse_stat(text: &[u8]) -> Option<Stat> {
    // The name, in parentheses, may hold any characters.
    let end = text.iter().rposition(|&b| b == b')')?;
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    // The field state is number 3, ppid 4, exit_code 52.
    let exit_code = fields.nth(52 - 5).and_then(|f| f.parse().ok()).unwrap_or(0);
    Some(Stat { is_zombie: state == b'Z', parent, exit_code })
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
        assert_eq!((stat.is_zombie, stat.parent, stat.exit_code), (true, 7, 11));
        assert!(parse_stat(b"12 (x").is_none());
    }

    #[test]
    fn this_process_lives() {
        let me = Process::open(std::process::id() as i32).unwrap();
        assert!(!me.is_over());
        assert!(!stat(me.pid).unwrap().is_zombie);
    }
}
