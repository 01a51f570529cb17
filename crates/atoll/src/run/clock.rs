//! How long a tick of the time stamp counter is, measured over the run itself.

use std::time::{Duration, Instant};

use atoll_memory::sys::ticks;

/// Started with the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    ticks: u64,
    at: Instant,
}

/// A run shorter than this is measured a little longer, so that the rate has four digits.
const LEAST: Duration = Duration::from_millis(20);

impl Clock {
    /// Starts.
    pub(crate) fn start() -> Clock {
        Clock { ticks: ticks(), at: Instant::now() }
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.at.elapsed()
    }

    /// Ticks a second.
    pub(crate) fn rate(&self) -> f64 {
        if let Some(short) = LEAST.checked_sub(self.at.elapsed()) {
            std::thread::sleep(short);
        }
        ticks().wrapping_sub(self.ticks) as f64 / self.at.elapsed().as_secs_f64()
    }
}
