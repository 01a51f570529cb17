//! Clocks: one that is cheap enough for every send, and deadlines.
//!
//! Used by everything that waits: channels, sockets and what stands on them.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The longest wait of a system call without a deadline, which is then made again, as some calls cannot wait for ever.
pub const LONG: Duration = Duration::from_secs(3600);

/// The time since some start, to a few milliseconds; read without a system call.
#[inline]
pub fn coarse() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
}

/// The time by which a call must have ended. The clock is read only when there is something to wait for.
pub struct Deadline {
    timeout: Option<Duration>,
    end: Option<Instant>,
}

impl Deadline {
    /// A deadline `timeout` after the first call of `left`; `None` is for ever.
    pub fn new(timeout: Option<Duration>) -> Deadline {
        Deadline { timeout, end: None }
    }

    /// The timeout as it was given.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Whether the timeout is zero, so that nothing is waited for.
    pub fn none_left(&self) -> bool {
        self.timeout.is_some_and(|timeout| timeout.is_zero())
    }

    /// The time left, at most `longest`; `None` if the deadline is over.
    pub fn left(&mut self, longest: Duration) -> Option<Duration> {
        let Some(timeout) = self.timeout else { return Some(longest) };
        let now = Instant::now();
        if self.end.is_none() {
            self.end = now.checked_add(timeout);
            if self.end.is_none() {
                // The timeout is beyond what the clock can count.
                self.timeout = None;
                return Some(longest);
            }
        }
        let left = self.end.map_or(longest, |end| end.saturating_duration_since(now));
        (!left.is_zero()).then(|| left.min(longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_ends_and_none_does_not() {
        let second = Duration::from_secs(1);
        assert_eq!(Deadline::new(None).left(second), Some(second));
        assert_eq!(Deadline::new(Some(Duration::MAX)).left(second), Some(second));
        assert_eq!(Deadline::new(Some(Duration::ZERO)).left(second), None);
        let mut short = Deadline::new(Some(Duration::from_millis(20)));
        assert!(short.left(second).unwrap() <= Duration::from_millis(20));
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(short.left(second), None);
    }

    #[test]
    fn the_coarse_clock_goes_forward() {
        let before = coarse();
        std::thread::sleep(Duration::from_millis(30));
        assert!(coarse() - before >= Duration::from_millis(10));
    }
}
