//! Measures how fast the clock ticks, and how long a cache line takes from one core to another.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::super::pin::pin;
use crate::arch;

/// The number of steps in a turn of the chain.
const CHAIN: u64 = 8;

/// Returns the core's clock in MHz, measured by a chain of instructions that wait for each other.
pub(in crate::bench) fn mhz() -> f64 {
    let loops = 2_000_000_u64;
    let begin = Instant::now();
    arch::chain(loops);
    (loops * CHAIN * arch::STEP_CYCLES) as f64 / begin.elapsed().as_secs_f64() / 1e6
}

/// Returns the nanoseconds that a cache line takes from one of the CPUs to the other.
pub(in crate::bench) fn handover_ns(here: usize, there: usize) -> f64 {
    const TRIPS: u64 = 20_000;
    let ball = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(there);
            for trip in 0..TRIPS {
                // Acquire and Release: the ball itself is all that is handed over.
                while ball.load(Ordering::Acquire) != 2 * trip + 1 {
                    std::hint::spin_loop();
                }
                ball.store(2 * trip + 2, Ordering::Release);
            }
        });
        pin(here);
        let mut begin = Instant::now();
        for trip in 0..TRIPS {
            ball.store(2 * trip + 1, Ordering::Release);
            while ball.load(Ordering::Acquire) != 2 * trip + 2 {
                std::hint::spin_loop();
            }
            if trip == 0 {
                // The other thread had to start first.
                begin = Instant::now();
            }
        }
        begin.elapsed().as_secs_f64() * 1e9 / (2 * (TRIPS - 1)) as f64
    })
}
