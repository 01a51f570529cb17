//! Page tables of workers that wait, in runs on several nodes: what is taken from a node is unmapped there when they go on, many
//! pages at once, instead of being freed so that the kernel unmaps it everywhere.
//!
//! A worker parks its table around a wait in which it touches no paged memory (`duty` in the runtime); who takes pages
//! (`node_copies`) leaves them here. A page counts as unmapped from then on: nothing runs on that table before it is so.
//!
//! Rules: no allocation, no locks the program could hold, no arena access.

use super::unmap::unmap_here;
use super::{FaultError, Pager};
use crate::control::MAX_WORKERS;
use crate::spin::Spin;

/// Runs of pages that a table has room for; what finds none is freed.
const RUNS: usize = 1024;

/// A run of pages: the first, and how many.
type Run = (u32, u32);

struct Parked {
    is: bool,
    runs: [Run; RUNS],
    used: usize,
}

static TABLES: [Spin<Parked>; MAX_WORKERS] =
    [const { Spin::new(Parked { is: false, runs: [(0, 0); RUNS], used: 0 }) }; MAX_WORKERS];

impl Parked {
    /// `false` if there is no room.
    fn push(&mut self, page: u32) -> bool {
        if let Some((first, count)) = self.runs[..self.used].last_mut()
            && *first + *count == page
        {
            *count += 1;
            return true;
        }
        let Some(place) = self.runs.get_mut(self.used) else { return false };
        *place = (page, 1);
        self.used += 1;
        true
    }
}

impl Pager {
    /// The only thread on page table `table`, the caller, touches no paged memory from now on until [`unpark`](Self::unpark). Nothing
    /// happens where it is not the only one, or where near memory is limited.
    pub fn park(&self, table: usize) {
        let mut parked = TABLES[table].lock();
        parked.is = !self.limited() && !self.tables.are_shared();
    }

    /// A thread of this process will run the program's code though its worker may wait: nothing is parked here any more. By a thread
    /// of the process with page table `table`.
    ///
    /// # Errors
    /// As [`unpark`](Self::unpark).
    pub fn end_parking(&self, table: usize) -> Result<(), FaultError> {
        // Before the lock is taken, under which `park` looks.
        self.set_threads_share_tables();
        self.unpark(table)
    }

    /// The thread on page table `table` touches paged memory again: what was taken meanwhile is unmapped. Called by a thread of the
    /// table's process.
    ///
    /// # Errors
    /// See [`FaultError`]; the thread must not go on.
    pub fn unpark(&self, table: usize) -> Result<(), FaultError> {
        let used = {
            let mut parked = TABLES[table].lock();
            parked.is = false;
            std::mem::take(&mut parked.used)
        };
        // Nobody adds to what is not parked: each run is still there.
        (0..used).try_for_each(|i| {
            let run = TABLES[table].lock().runs[i];
            self.unmap_run(run)
        })
    }

    /// The locked page is unmapped in `table` before anything runs there; `false` if that cannot be promised.
    pub(super) fn unmap_later(&self, page: u32, table: usize) -> bool {
        let mut parked = TABLES[table].lock();
        parked.is && parked.push(page)
    }

    fn unmap_run(&self, (first, count): Run) -> Result<(), FaultError> {
        let (mut page, last) = (first, first + count);
        while page < last {
            let (at, end) = self.places.address_of(page);
            let len = (((last - page) as usize) << self.places.shift).min(end - at);
            unmap_here(at, len)?;
            page += (len >> self.places.shift) as u32;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_run_and_a_full_list_takes_no_more() {
        let mut parked = Parked { is: true, runs: [(0, 0); RUNS], used: 0 };
        assert!((5..9).all(|page| parked.push(page)));
        assert_eq!(parked.runs[..parked.used], [(5, 4)]);
        assert!((1..RUNS as u32).all(|i| parked.push(100 * i)));
        assert!(!parked.push(7));
        assert!(parked.push(100 * (RUNS as u32 - 1) + 1));
    }
}
