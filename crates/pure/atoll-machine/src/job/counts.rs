//! The counts of a job: faults, invalidations, pages, and the time they took.
//!
//! The simulation counts them for the whole job and by region.

/// Counts over all nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Job {
    /// The number of reads that waited for a page from another node.
    pub read_faults: u64,
    /// The number of writes that waited for a page from another node.
    pub write_faults: u64,
    /// The number of writes that waited for permission while the page was there.
    pub upgrades: u64,
    /// The number of writes that faulted and asked no other node: the first write beside a twin, or at the origin.
    pub local_writes: u64,
    /// The number of copies invalidated one by one.
    pub invalidations: u64,
    /// The number of copies invalidated by the orders of a barrier.
    pub batched: u64,
    /// The number of pages sent.
    pub pages: u64,
    /// The number of twins made.
    pub twins: u64,
    /// The number of diffs sent.
    pub diffs: u64,
    /// The number of pages fetched at regions' entries.
    pub fetched: u64,
    /// The number of these pages that a worker then read.
    pub fetched_used: u64,
    /// The number of barriers, region begins and ends at which all workers met.
    pub barriers: u64,
    /// The picoseconds that workers waited for pages.
    pub waiting: u64,
    /// The picoseconds that workers waited at barriers.
    pub idle: u64,
}

/// The counts of a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionOutcome {
    /// The low bits of the address that it is known by.
    pub name: u64,
    /// The number of its runs.
    pub runs: u64,
    /// The number of its runs with many writers.
    pub many: u64,
    /// The picoseconds from begin to end, all runs together.
    pub elapsed: u64,
    /// The counts within it.
    pub counts: Job,
}

/// The results of a simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOutcome {
    /// The picoseconds up to the last worker's last event.
    pub elapsed: u64,
    /// The counts of the whole job.
    pub all: Job,
    /// The number of messages between nodes.
    pub messages: u64,
    /// The bytes of these messages.
    pub bytes: u64,
    /// The results of each region, in the order in which they first ran.
    pub regions: Vec<RegionOutcome>,
}
