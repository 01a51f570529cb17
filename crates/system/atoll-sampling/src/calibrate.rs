//! Measures, before the start, what one sample of the timer costs on this machine.
//!
//! The calling thread computes for some milliseconds, in turns with and without samples of its own, and compares.

use crate::clock;
use crate::instruction::CodeBytes;
use crate::sampler::{Knobs, Sampler, SamplerError};
use crate::timer::Timer;

/// Nanoseconds between two samples while measuring.
const PERIOD_NS: u64 = 50_000;
/// Iterations of one piece of computing, which takes about two milliseconds.
const PIECE: u64 = 2_000_000;
/// The number of pieces with samples, and of pieces without.
const PIECES: usize = 6;
/// The cost that is assumed where measuring gives nothing sensible, as on a busy machine.
const USUAL_SECONDS: f64 = 5e-6;

struct NoCode;

impl CodeBytes for NoCode {
    fn read(&mut self, _: u32, _: u64, _: &mut [u8]) -> usize {
        0
    }
}

/// Returns the seconds that one sample of the timer costs the thread that it interrupts.
///
/// # Errors
/// The timer is not available.
pub fn timer_sample_seconds() -> Result<f64, SamplerError> {
    let mut timer =
        Timer::new(Knobs { period: PERIOD_NS, buffer_bytes: 64 << 10, harvest_thread: false }, 0.0)?;
    // SAFETY: no pointers.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    compute();
    let (mut plain, mut sampled, mut samples) = (Vec::new(), Vec::new(), 0);
    for _ in 0..PIECES {
        plain.push(compute());
        timer.attach(tid, tid, false)?;
        sampled.push(compute());
        samples += timer.harvest(&mut NoCode, &mut Vec::new()).records;
        timer.detach(tid);
    }
    // The quickest piece of each kind was disturbed least.
    let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    let each = samples as f64 / PIECES as f64;
    let cost = (least(&sampled) - least(&plain)) / each;
    Ok(if each >= 4.0 && (1e-7..1e-4).contains(&cost) { cost } else { USUAL_SECONDS })
}

fn compute() -> f64 {
    // This is the thread's own processor time, as other programs may use the processor, too.
    let begin = clock::thread_ns();
    let mut x = 1u64;
    for _ in 0..PIECE {
        x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
    (clock::thread_ns() - begin) as f64 * 1e-9
}
