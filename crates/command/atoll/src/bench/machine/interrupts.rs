//! Measures what it costs to invalidate another CPU's TLB entries, for the sender and for the interrupted CPU.
//!
//! A page of memory is write-protected again and again while another thread of the same page table computes on another CPU. The
//! same is measured once more without that thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::super::pin::pin;
use super::super::{BenchError, kernel};
use super::faults::Ground;

/// The number of invalidations of one measurement.
const COUNT: u32 = 2000;

/// The nanoseconds of one invalidation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    /// The sender's nanoseconds, for one target.
    pub(super) sender: f64,
    /// The target's nanoseconds.
    pub(super) target: f64,
}

/// Measures on two CPUs. The ground's pages must be mapped.
pub(super) fn cost(ground: &Ground, here: usize, there: usize) -> Result<Cost, BenchError> {
    pin(here);
    let alone = storm(ground)?;
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(there);
            // Relaxed: only how fast the number grows is of interest.
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..100 {
                    std::hint::black_box(0);
                }
                count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
        });
        while count.load(Ordering::Relaxed) == 0 {
            std::hint::spin_loop();
        }
        let rate = |time: f64, before: u64| (count.load(Ordering::Relaxed) - before) as f64 / time;
        let (before, begin) = (count.load(Ordering::Relaxed), Instant::now());
        while begin.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        let quiet = rate(begin.elapsed().as_secs_f64(), before);
        let (before, begin) = (count.load(Ordering::Relaxed), Instant::now());
        let together = storm(ground);
        let took = begin.elapsed().as_secs_f64();
        let disturbed = rate(took, before);
        stop.store(true, Ordering::Relaxed);
        let lost = took * (1.0 - disturbed / quiet).max(0.0);
        Ok(Cost { sender: (together? - alone).max(0.0), target: lost * 1e9 / f64::from(COUNT) })
    })
}

/// Returns the nanoseconds of write-protecting a page that was written.
fn storm(ground: &Ground) -> Result<f64, BenchError> {
    let (page, uffd) = (ground.page(0), ground.uffd());
    let mut spent = Duration::ZERO;
    for _ in 0..COUNT {
        uffd.write_protect(page, 4096, false).map_err(kernel("UFFDIO_WRITEPROTECT"))?;
        // SAFETY: our own page, mapped and writable now.
        unsafe { (page as *mut u8).write_volatile(1) };
        let begin = Instant::now();
        uffd.write_protect(page, 4096, true).map_err(kernel("UFFDIO_WRITEPROTECT"))?;
        spent += begin.elapsed();
    }
    uffd.write_protect(page, 4096, false).map_err(kernel("UFFDIO_WRITEPROTECT"))?;
    Ok(spent.as_secs_f64() * 1e9 / f64::from(COUNT))
}
