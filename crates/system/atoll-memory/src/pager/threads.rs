//! Executors of threads that are no workers: the program's own, a node's agent, handlers of faults.
//!
//! `executor` says what one is. A thread of the program borrows an executor for its life and gives it back for the next one on
//! the same page table, as a program may make any number of threads one after the other.
//!
//! Rules: no allocation, no arena access; callers block signals.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{FaultError, Pager};
use crate::control::{MAX_THREADS, MAX_WORKERS};
use crate::spin::Spin;

/// Which of the executors behind the workers' are made, and which of those nobody has.
pub(crate) struct Threads {
    /// How many were ever made.
    made: AtomicU32,
    spare: Spin<Spare>,
}

/// Executors that were given back.
struct Spare {
    count: usize,
    /// Number of the executor and of the page table it was made for; the first `count` entries.
    executors: [(u16, u16); MAX_THREADS],
}

impl Threads {
    pub(crate) const fn new() -> Threads {
        Threads {
            made: AtomicU32::new(0),
            spare: Spin::new(Spare { count: 0, executors: [(0, 0); MAX_THREADS] }),
        }
    }

    /// The numbers of all executors that were ever made.
    pub(super) fn numbers(&self) -> std::ops::Range<usize> {
        MAX_WORKERS..MAX_WORKERS + (self.made.load(Ordering::Acquire) as usize).min(MAX_THREADS)
    }

    fn take_spare(&self, table: usize) -> Option<usize> {
        let mut spare = self.spare.lock();
        let count = spare.count;
        let at = spare.executors[..count].iter().position(|(_, of)| usize::from(*of) == table)?;
        let number = usize::from(spare.executors[at].0);
        spare.executors[at] = spare.executors[count - 1];
        spare.count = count - 1;
        Some(number)
    }
}

impl Pager {
    /// An executor for the calling thread, which runs on page table `table`, until it is given back: one that another thread
    /// had, or a new one. `alone`: nothing else runs on that page table.
    ///
    /// # Errors
    /// [`FaultError::TooManyThreads`], or the far store's refusal.
    pub fn borrow_executor(&self, table: usize, alone: bool) -> Result<usize, FaultError> {
        if let Some(number) = self.executors.threads.take_spare(table) {
            // SAFETY: made before, and nobody else has it.
            let x = unsafe { self.executor(number) };
            x.lane.attach().map_err(FaultError::Far)?;
            return Ok(number);
        }
        let count = self.executors.threads.made.fetch_add(1, Ordering::AcqRel) as usize;
        if count >= MAX_THREADS {
            self.executors.threads.made.fetch_sub(1, Ordering::AcqRel);
            return Err(FaultError::TooManyThreads);
        }
        let number = MAX_WORKERS + count;
        // SAFETY: this number is given out once.
        unsafe { self.make_executor(number, table, alone, number) }.map_err(FaultError::Far)?;
        Ok(number)
    }

    /// Takes the executor back from a thread that has ended and ran on page table `table`, and its spare frames, so that other
    /// threads have them.
    pub fn give_back_executor(&self, number: usize, table: usize) {
        // SAFETY: the thread that had it is gone.
        let x = unsafe { self.executor(number) };
        if x.cached > 0 {
            let mut room = self.near.room.lock();
            self.shrink(x, &mut room, 0, 0);
        }
        x.lane.release();
        let mut spare = self.executors.threads.spare.lock();
        let count = spare.count;
        if let Some(place) = spare.executors.get_mut(count) {
            *place = (number as u16, table as u16);
            spare.count = count + 1;
        }
    }
}
