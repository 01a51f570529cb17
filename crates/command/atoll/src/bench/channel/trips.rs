//! Measures round trips between two processes: of a message by placement of the rings, and of a bare cache line.
//!
//! `mod.rs` prints the results.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use atoll_channel::{Message, Settings};

use super::super::BenchError;
use super::super::mapping::Mapping;
use super::super::pair::{Cpus, Other};
use super::super::statistics::{middle, percentile};
use super::{failed, with_other};

const ROUNDS: usize = 100_000;
const WARM: usize = 10_000;
/// The most time that a call may take; after that the measurement has failed.
pub(super) const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));

/// The times of round trips, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trip {
    pub(super) least: f64,
    pub(super) median: f64,
    /// The 99th percentile.
    pub(super) late: f64,
}

impl Trip {
    /// Returns the median of several measurements, number by number.
    pub(super) fn of(turns: &[Trip]) -> Trip {
        let each = |get: fn(&Trip) -> f64| middle(turns.iter().map(get).collect());
        Trip { least: each(|t| t.least), median: each(|t| t.median), late: each(|t| t.late) }
    }
}

/// Measures the time of each of many `trip`s, which get their number.
fn measure(mut trip: impl FnMut(u64) -> Result<(), BenchError>) -> Result<Trip, BenchError> {
    for round in 0..WARM as u64 {
        trip(round)?;
    }
    let mut times = Vec::with_capacity(ROUNDS + 1);
    times.push(Instant::now());
    for round in 0..ROUNDS as u64 {
        trip(WARM as u64 + round)?;
        times.push(Instant::now());
    }
    let trips: Vec<f64> = times.windows(2).map(|two| (two[1] - two[0]).as_nanos() as f64).collect();
    let at = |percent| percentile(trips.clone(), percent);
    Ok(Trip { least: at(0), median: at(50), late: at(99) })
}

/// Measures what the hardware takes: a number stored in one line and polled, and another line back.
pub(super) fn bare_line(cpus: Cpus) -> Result<Trip, BenchError> {
    #[repr(align(128))]
    struct Line(AtomicU64);
    let mapping = Mapping::shared(4096)?;
    // SAFETY: two lines at a page's begin, which hold zeros; both processes only use them as atomics.
    let lines: &[Line; 2] = unsafe { &*(mapping.at() as *const [Line; 2]) };
    let other = Other::start(cpus.there, || {
        for round in 1..=(WARM + ROUNDS) as u64 {
            while lines[0].0.load(Ordering::Acquire) != round {
                std::hint::spin_loop();
            }
            lines[1].0.store(round, Ordering::Release);
        }
        Ok(())
    })?;
    let trip = measure(|round| {
        lines[0].0.store(round + 1, Ordering::Release);
        let mut turns = 0_u64;
        while lines[1].0.load(Ordering::Acquire) != round + 1 {
            turns += 1;
            if turns > 1 << 33 {
                return Err(BenchError::Other("it does not answer".into()));
            }
            std::hint::spin_loop();
        }
        Ok(())
    })?;
    other.wait()?;
    Ok(trip)
}

/// Measures a message of 8 bytes and its answer.
pub(super) fn channel(cpus: Cpus, settings: Settings) -> Result<Trip, BenchError> {
    let (other, mut channel) = with_other(cpus, settings, |mut channel| {
        let mut message = Message::default();
        while channel.recv(&mut message, PATIENCE).is_ok() {
            channel.send(message.kind, &message.bytes, PATIENCE).map_err(failed("sending"))?;
        }
        Ok(())
    })?;
    let mut message = Message::default();
    let trip = measure(|round| {
        channel.send(0, &round.to_le_bytes(), PATIENCE).map_err(failed("sending"))?;
        channel.recv(&mut message, PATIENCE).map_err(failed("receiving"))?;
        if message.bytes != round.to_le_bytes() {
            return Err(BenchError::Other("it answered something else".into()));
        }
        Ok(())
    })?;
    drop(channel);
    other.wait()?;
    Ok(trip)
}
