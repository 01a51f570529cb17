//! Finds a program that does not end though a signal came that ends it: all its threads are in the middle of an operation of
//! atoll's that never completes, for example because another node of the run hangs.
//!
//! `watch` asks now and then. The state of the program in /proc decides: the signal is pending, nothing handles it, and the
//! program itself does not block it, for longer than atoll ever needs.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use atoll_memory::control::Control;

/// The time between two looks.
const PERIOD: Duration = Duration::from_millis(500);
/// How long a signal may be pending.
const GRACE: Duration = Duration::from_millis(2500);

/// Signals by which users end programs.
const ENDING: [i32; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

/// The signal that is pending.
#[derive(Debug)]
pub(crate) struct Stuck {
    looked: Instant,
    /// A signal that was pending at the last look, and the time since when.
    pending: Option<(i32, Instant)>,
}

impl Stuck {
    pub(crate) fn new() -> Stuck {
        Stuck { looked: Instant::now(), pending: None }
    }

    /// Returns the signal that should have ended process `pid`, if one has been pending for too long.
    pub(crate) fn look(&mut self, pid: i32, control: &Control) -> Option<i32> {
        if self.looked.elapsed() < PERIOD {
            return None;
        }
        self.looked = Instant::now();
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let ignored = control.blocked.load(Ordering::Relaxed);
        let Some(signal) = pending(&text, ignored) else {
            self.pending = None;
            return None;
        };
        let (_, since) = *self.pending.get_or_insert_with(|| (signal, Instant::now()));
        (since.elapsed() > GRACE).then_some(signal)
    }
}

/// Returns a signal that is pending according to /proc/PID/status, that ends the process, and that the program does not block.
fn pending(status: &str, blocked: u64) -> Option<i32> {
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
    let mask = |name: &str| line(name).and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    // A process that was stopped ends when it goes on.
    if line("State").is_none_or(|state| state.starts_with(['T', 't'])) {
        return None;
    }
    let handled = mask("SigCgt")? | mask("SigIgn")? | blocked;
    let pending = mask("ShdPnd")? & !handled;
    ENDING.into_iter().find(|signal| pending >> (signal - 1) & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pending: u64, ignored: u64, caught: u64) -> String {
        format!(
            "Name:\tx\nState:\tS (sleeping)\nSigPnd:\t0\nShdPnd:\t{pending:016x}\nSigBlk:\tffffffff\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n"
        )
    }

    #[test]
    fn only_what_would_end_the_program_counts() {
        let term = 1 << (libc::SIGTERM - 1);
        assert_eq!(pending(&status(term, 0, 0), 0), Some(libc::SIGTERM));
        assert_eq!(pending(&status(term, term, 0), 0), None);
        assert_eq!(pending(&status(term, 0, term), 0), None);
        assert_eq!(pending(&status(term, 0, 0), term), None);
        assert_eq!(pending(&status(1 << (libc::SIGCHLD - 1), 0, 0), 0), None);
        let stopped = status(term, 0, 0).replace("S (sleeping)", "T (stopped)");
        assert_eq!(pending(&stopped, 0), None);
        assert_eq!(pending("", 0), None);
    }
}
