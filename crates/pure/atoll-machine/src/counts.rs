//! The counts of each worker, and the parts of its time: the columns of the CMCP paper's table 1 and more.
//!
//! [`engine`](crate::engine) fills them, and the commands print them. `atoll repro` keeps them in files.

use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

macro_rules! counts {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: u64,)*
        }

        impl $name {
            /// Returns names and values, in order.
            pub fn fields(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field),)*]
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }

        impl Add for $name {
            type Output = Self;

            fn add(mut self, other: Self) -> Self {
                self += other;
                self
            }
        }

        impl Sub for $name {
            type Output = Self;

            /// Returns the increase since `earlier`, a smaller count of the same worker.
            fn sub(self, earlier: Self) -> Self {
                Self { $($field: self.$field - earlier.$field,)* }
            }
        }
    };
}

counts! {
    /// The counts of one worker.
    Counts {
        /// Events of the trace that touch a page.
        accesses,
        /// Of these events, those translated by a page walk: data TLB misses.
        tlb_misses,
        /// Faults on pages that are near but not mapped by this worker.
        minor_faults,
        /// Faults on pages that are far.
        major_faults,
        /// Faults on pages that no worker had touched.
        first_faults,
        /// Faults on writes to pages mapped read-only, which only atoll's pager has.
        write_faults,
        /// Pages that came with another page's fault, which only atoll's pager has.
        prefetched,
        /// Pages this worker evicted.
        evictions,
        /// Of these evictions, those written back.
        written_back,
        /// TLB invalidations that other workers, or the policy's scan, asked of this worker.
        remote_invalidations,
        /// Interrupts in which these came.
        interrupts,
    }
}

counts! {
    /// The parts of a worker's time, in picoseconds.
    Times {
        /// Executing instructions.
        compute,
        /// Later TLBs and page walks.
        walk,
        /// Work of the worker's faults.
        fault,
        /// Waiting for locks during faults.
        lock,
        /// Sending invalidations and waiting for the answers.
        invalidation,
        /// Being interrupted by invalidations of other workers.
        interrupted,
        /// Waiting for pages to come and go.
        transfer,
        /// Waiting for other workers at barriers and ends of regions.
        idle,
    }
}

impl Counts {
    /// Faults of all kinds.
    pub fn faults(&self) -> u64 {
        self.minor_faults + self.page_ins()
    }

    /// Returns the faults that brought a page near, which the paper's table 1 calls page faults. An entry copied from another
    /// worker's page table is not counted there. FIFO has up to 8.6 invalidations for each of its faults in the table, while
    /// there would be about as many entries as invalidations; and its faults summed over the cores do not grow with the cores.
    pub fn page_ins(&self) -> u64 {
        self.major_faults + self.first_faults
    }
}

impl Times {
    /// Returns the sum of all parts.
    pub fn total(&self) -> u64 {
        self.fields().iter().map(|(_, value)| value).sum()
    }
}

/// The counts and times of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Worker {
    /// What happened.
    pub counts: Counts,
    /// Where the time went.
    pub times: Times,
}

/// A simulation's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The results of each worker.
    pub workers: Vec<Worker>,
    /// The time from the first event to the last, in picoseconds.
    pub elapsed: u64,
    /// The number of pages whose uses the policy's scan looked for, by their mappings or accessed bits.
    pub scanned: u64,
    /// Entry `n` counts the pages that `n` workers used.
    pub distribution: Vec<u64>,
    /// The number of frames of near memory, of the smallest page size; `None` if there was no limit.
    pub frames: Option<u64>,
    /// Whether the replay before brought as many pages, where that was checked.
    pub settled: bool,
}

impl Outcome {
    /// Returns the sums over all workers.
    pub fn total(&self) -> Worker {
        let mut total = Worker::default();
        for worker in &self.workers {
            total.counts += worker.counts;
            total.times += worker.times;
        }
        total
    }

    /// Returns the average for each worker, which is table 1's unit.
    pub fn per_worker(&self, count: impl Fn(&Counts) -> u64) -> f64 {
        count(&self.total().counts) as f64 / self.workers.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's table 1 was compared with faults of all kinds, of which most only copied an entry.
    #[test]
    fn entries_copied_from_other_tables_were_counted_as_the_papers_faults() {
        let counts = Counts { minor_faults: 500, major_faults: 30, first_faults: 2, ..Counts::default() };
        assert_eq!((counts.page_ins(), counts.faults()), (32, 532));
    }
}
