//! What is counted of each worker, and where its time goes: the columns of the CMCP paper's table 1 and more.
//!
//! Filled by [`engine`](crate::engine), printed by the commands.

use std::ops::{Add, AddAssign, Sub};

macro_rules! counts {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: u64,)*
        }

        impl $name {
            /// Names and values, in order.
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

            /// What came since `earlier`, which is a smaller count of the same worker.
            fn sub(self, earlier: Self) -> Self {
                Self { $($field: self.$field - earlier.$field,)* }
            }
        }
    };
}

counts! {
    /// What happened to one worker.
    Counts {
        /// Events of the trace that touch a page.
        accesses,
        /// Of these, translated by a page walk: data TLB misses.
        tlb_misses,
        /// Faults on pages that are near but not mapped by this worker.
        minor_faults,
        /// Faults on pages that are far.
        major_faults,
        /// Faults on pages that nobody had touched.
        first_faults,
        /// Faults on writes to pages mapped read-only, which only atoll's pager has.
        write_faults,
        /// Pages that came with another's fault, which only atoll's pager has.
        prefetched,
        /// Pages this worker evicted.
        evictions,
        /// Of these, written back.
        written_back,
        /// TLB invalidations of pages that other workers, or the policy's scan, asked this one for.
        remote_invalidations,
        /// Interrupts they came in.
        interrupts,
    }
}

counts! {
    /// Where a worker's time went, in picoseconds.
    Times {
        /// Instructions.
        compute,
        /// Later TLBs and page walks.
        walk,
        /// The work of its faults.
        fault,
        /// Waiting for locks in them.
        lock,
        /// Sending invalidations and waiting for the answers.
        invalidation,
        /// Being interrupted by those of others.
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

    /// Faults that brought a page near: what the paper's table 1 calls page faults. An entry copied from another worker's
    /// page table is none of them: FIFO has up to 8.6 invalidations for each of its faults there, where entries and
    /// invalidations would be about as many, and its faults summed over the cores do not grow with the cores.
    pub fn page_ins(&self) -> u64 {
        self.major_faults + self.first_faults
    }
}

impl Times {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.fields().iter().map(|(_, value)| value).sum()
    }
}

/// One worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Worker {
    /// What happened.
    pub counts: Counts,
    /// Where the time went.
    pub times: Times,
}

/// A simulation's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Each worker.
    pub workers: Vec<Worker>,
    /// From the first event to the last, in picoseconds.
    pub elapsed: u64,
    /// Pages the policy's scan looked at by taking their mappings or accessed bits.
    pub scanned: u64,
    /// Entry `n` counts the pages that `n` workers used.
    pub distribution: Vec<u64>,
    /// Frames of near memory, of the smallest page size; none if there was no limit.
    pub frames: Option<u64>,
    /// Did the replay before bring as many pages, where somebody looked?
    pub settled: bool,
}

impl Outcome {
    /// All workers together.
    pub fn total(&self) -> Worker {
        let mut total = Worker::default();
        for worker in &self.workers {
            total.counts += worker.counts;
            total.times += worker.times;
        }
        total
    }

    /// An average for each worker: table 1's unit.
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
