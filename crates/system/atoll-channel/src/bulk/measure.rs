//! Measures the times that engines take on this machine, in less than half a second for all.
//!
//! `manager.rs` asks for the costs that `cost_file.rs` does not know. An engine copies the same two buffers repeatedly, so up
//! to the size of a cache the times are those of cached data. This process's own memory stands for that of another process, and
//! a file in memory for other files: the time that a disk adds is the same for all engines.
//!
//! Source: the barrelfish paper, section 5.4.1 and appendix A.3 (one transfer at a time, medians).

use std::time::{Duration, Instant};

use crate::bulk::costs::Curve;
use crate::bulk::engine::Engine;
use crate::bulk::error::{CopyError, MemoryError};
use crate::bulk::mapping::Writers;
use crate::bulk::memory::{Access, Memory};
use crate::bulk::transfer::Transfer;
use atoll_transport::Peer;

/// The sizes in bytes at which engines are measured.
const SIZES: [u64; 9] = [64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
/// The longest time for all measurements. On a machine that is slow or busy, fewer points are measured.
const BUDGET: Duration = Duration::from_millis(400);
/// The longest time for one point, unless the least number of copies takes longer.
const POINT: Duration = Duration::from_millis(3);
/// The least and the greatest number of samples of which the median is taken.
const SAMPLES: (usize, usize) = (3, 15);
/// The time below which several copies are timed together.
const SAMPLE: Duration = Duration::from_micros(5);

/// Memory of every kind that can be made without another process or node.
struct Grounds {
    to: Vec<Memory>,
    from: Vec<Memory>,
}

impl Grounds {
    fn new() -> Result<Grounds, MemoryError> {
        let side = || -> Result<Vec<Memory>, MemoryError> {
            let bytes = SIZES[SIZES.len() - 1];
            let (mapping, file) = Memory::shared(bytes, Writers::Everyone)?;
            let file = Memory::of_file(file, 0, bytes, Access::READ_WRITE)?;
            let mut side = vec![mapping.clone(), file];
            let this = Peer::this().map_err(|e| MemoryError::Os("pidfd_open", e))?;
            if let Some(base) = mapping.mapped_at() {
                let address = base.as_ptr().addr() as u64;
                // SAFETY: the mapping is kept beside it, in the same list, and dropped with it.
                side.push(unsafe { Memory::of_any_process(&this, address, bytes, Access::READ_WRITE)? });
            }
            Ok(side)
        };
        Ok(Grounds { to: side()?, from: side()? })
    }
}

/// Measures the engines that `wanted` selects, between all kinds of memory that they reach on this machine. Failed measurements
/// are left out.
pub(crate) fn measure(engines: &mut [Box<dyn Engine>], wanted: impl Fn(&str) -> bool) -> Vec<Curve> {
    let end = Instant::now() + BUDGET;
    let Ok(grounds) = Grounds::new() else { return Vec::new() };
    let mut curves = Vec::new();
    for (index, engine) in engines.iter().enumerate() {
        for to in &grounds.to {
            for from in &grounds.from {
                if engine.reaches(to, from) && wanted(engine.name()) {
                    let (name, points) = (engine.name().to_owned(), Vec::new());
                    let curve = Curve { engine: name, to: to.kind(), from: from.kind(), points };
                    curves.push((index, to, from, curve));
                }
            }
        }
    }
    // All engines are measured at one size before the next, so that all have the same sizes when time runs out.
    for bytes in SIZES {
        for (index, to, from, curve) in &mut curves {
            if Instant::now() >= end {
                break;
            }
            let Some(engine) = engines.get_mut(*index) else { continue };
            let Ok(transfer) = Transfer::new(to, 0, from, 0, bytes) else { continue };
            if let Ok(time) = point(&mut **engine, &transfer) {
                curve.points.push((bytes, time));
            }
        }
    }
    curves.into_iter().map(|(.., curve)| curve).filter(|curve| !curve.points.is_empty()).collect()
}

/// Measures one engine between two memories, up to the size that both have.
pub(crate) fn between(engine: &mut dyn Engine, to: &Memory, from: &Memory) -> Result<Curve, CopyError> {
    let mut points = Vec::new();
    let most = to.bytes().min(from.bytes());
    for bytes in SIZES.into_iter().filter(|bytes| *bytes <= most) {
        points.push((bytes, point(engine, &Transfer::new(to, 0, from, 0, bytes)?)?));
    }
    Ok(Curve { engine: engine.name().into(), to: to.kind(), from: from.kind(), points })
}

/// The microseconds of one transfer, as the median of several.
fn point(engine: &mut dyn Engine, transfer: &Transfer<'_>) -> Result<f64, CopyError> {
    let begin = Instant::now();
    engine.copy(transfer)?;
    let mut copies = 1;
    let mut times: Vec<f64> = Vec::new();
    while times.len() < SAMPLES.0 || (begin.elapsed() < POINT && times.len() < SAMPLES.1) {
        let begin = Instant::now();
        for _ in 0..copies {
            engine.copy(transfer)?;
        }
        let elapsed = begin.elapsed();
        if elapsed < SAMPLE && copies < 1 << 16 {
            copies *= 2;
            continue;
        }
        times.push(elapsed.as_secs_f64() * 1e6 / f64::from(copies));
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok(times[times.len() / 2].max(1e-6))
}
