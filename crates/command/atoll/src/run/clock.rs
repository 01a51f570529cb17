//! Measures how long a tick of the time stamp counter is, over the run itself.

use std::time::{Duration, Instant};

use atoll_memory::sys::ticks;

/// A clock that starts with the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    ticks: u64,
    at: Instant,
}

/// The least time of a measurement: a shorter run is measured a little longer, so that the rate has four digits.
const LEAST: Duration = Duration::from_millis(20);

impl Clock {
    /// Starts the clock.
    pub(crate) fn start() -> Clock {
        Clock { ticks: ticks(), at: Instant::now() }
    }

    /// Returns the time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.at.elapsed()
    }

    /// Returns the ticks in a second.
    pub(crate) fn rate(&self) -> f64 {
        if let Some(short) = LEAST.checked_sub(self.at.elapsed()) {
            std::thread::sleep(short);
        }
        ticks().wrapping_sub(self.ticks) as f64 / self.at.elapsed().as_secs_f64()
    }
}
