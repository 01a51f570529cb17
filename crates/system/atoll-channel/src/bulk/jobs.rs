//! Transfers under way: the rest of each, cut into pieces that an engine takes when it has room.
//!
//! `manager.rs`, which owns the engines, drives them.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::bulk::engine::{Engine, Finished, Started};
use crate::bulk::error::CopyError;
use crate::bulk::memory::Memory;
use crate::bulk::transfer::Transfer;

/// The bytes of a piece for engines that are done when `start` returns: few enough that other transfers get their turn.
const TURN: u64 = 1 << 20;
/// The bytes of the smallest and the largest piece for engines that have many under way.
const PIECES: (u64, u64) = (128 << 10, 4 << 20);
/// The longest wait for one engine while another has transfers under way, too.
const ALTERNATE: Duration = Duration::from_micros(200);

/// A transfer that was started. Dropping it stops nothing: the transfer goes on, and its memory is kept until it is finished.
#[derive(Clone, Debug)]
#[must_use = "how it ends is known by it alone"]
pub struct Copying {
    /// The result; `None` if the transfer was finished when it was started.
    outcome: Option<Arc<OnceLock<Result<(), CopyError>>>>,
}

impl Copying {
    /// A transfer that is finished.
    pub(crate) fn done() -> Copying {
        Copying { outcome: None }
    }

    /// The result, if the transfer has ended. Asking moves nothing on; `Manager::progress` and `Manager::wait` do that.
    pub fn outcome(&self) -> Option<Result<(), CopyError>> {
        self.outcome.as_ref().map_or(Some(Ok(())), |outcome| outcome.get().copied())
    }
}

/// The bytes of a transfer's pieces for an engine of this depth.
pub(crate) fn piece(depth: usize, bytes: u64) -> u64 {
    if depth <= 1 {
        return TURN;
    }
    (bytes / depth as u64).clamp(PIECES.0, PIECES.1).next_multiple_of(4096)
}

struct Job {
    to: Memory,
    to_offset: u64,
    from: Memory,
    from_offset: u64,
    bytes: u64,
    piece: u64,
    engine: usize,
    /// The bytes that were given to the engine.
    started: u64,
    /// The number of pieces that the engine has not finished.
    under_way: usize,
    outcome: Result<(), CopyError>,
    shared: Arc<OnceLock<Result<(), CopyError>>>,
}

impl Job {
    /// Whether a part of it has still to be given to the engine.
    fn is_waiting(&self) -> bool {
        self.outcome.is_ok() && self.started < self.bytes
    }
}

/// All transfers under way, in the order in which they were started.
#[derive(Default)]
pub(crate) struct Jobs {
    jobs: BTreeMap<u64, Job>,
    next: u64,
    finished: Vec<Finished>,
}

impl Jobs {
    /// The number of transfers.
    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Adds a transfer for the engine with an index.
    pub(crate) fn add(&mut self, transfer: &Transfer<'_>, engine: usize, depth: usize) -> Copying {
        let shared = Arc::new(OnceLock::new());
        let job = Job {
            to: transfer.to().clone(),
            to_offset: transfer.to_offset(),
            from: transfer.from().clone(),
            from_offset: transfer.from_offset(),
            bytes: transfer.bytes(),
            piece: piece(depth, transfer.bytes()),
            engine,
            started: 0,
            under_way: 0,
            outcome: Ok(()),
            shared: shared.clone(),
        };
        self.jobs.insert(self.next, job);
        self.next += 1;
        Copying { outcome: Some(shared) }
    }

    /// Gives engines the pieces they have room for, and takes finished ones; waits for at most `wait` if there is nothing else
    /// to do.
    pub(crate) fn progress(&mut self, engines: &mut [Box<dyn Engine>], wait: Duration) {
        let copied = self.feed(engines);
        let mut under_way = vec![false; engines.len()];
        for job in self.jobs.values().filter(|job| job.under_way > 0) {
            under_way[job.engine] = true;
        }
        let several = under_way.iter().filter(|some| **some).count() > 1;
        for (engine, _) in engines.iter_mut().zip(under_way).filter(|(_, some)| *some) {
            let wait = match () {
                () if copied || !self.finished.is_empty() => Duration::ZERO,
                () if several => wait.min(ALTERNATE),
                () => wait,
            };
            engine.progress(&mut self.finished, wait);
        }
        for (number, outcome) in self.finished.drain(..) {
            let Some(job) = self.jobs.get_mut(&number) else { continue };
            job.under_way = job.under_way.saturating_sub(1);
            job.outcome = job.outcome.and(outcome);
        }
        self.jobs.retain(|_, job| {
            let over = job.under_way == 0 && !job.is_waiting();
            if over {
                let _ = job.shared.set(job.outcome);
            }
            !over
        });
    }

    /// Gives engines pieces, the oldest transfer's first; returns true if a piece was copied on the spot. A call copies at most
    /// one such piece, so that it delays the caller no longer.
    fn feed(&mut self, engines: &mut [Box<dyn Engine>]) -> bool {
        let mut full = vec![false; engines.len()];
        for (number, job) in &mut self.jobs {
            while job.is_waiting() && !full[job.engine] {
                let (to, from) = (&job.to, &job.from);
                let transfer = Transfer::new(to, job.to_offset, from, job.from_offset, job.bytes);
                let started = transfer.and_then(|whole| {
                    let piece = whole.piece(job.started, job.piece);
                    Ok((engines[job.engine].start(&piece, *number)?, piece.bytes()))
                });
                match started {
                    Ok((Started::Done, bytes)) => {
                        job.started += bytes;
                        return true;
                    }
                    Ok((Started::Pending, bytes)) => {
                        job.started += bytes;
                        job.under_way += 1;
                    }
                    Err(CopyError::Full) => full[job.engine] = true,
                    Err(e) => job.outcome = Err(e),
                }
            }
            if full.iter().all(|full| *full) {
                break;
            }
        }
        false
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        for job in self.jobs.values() {
            let _ = job.shared.set(Err(CopyError::Abandoned));
        }
    }
}
