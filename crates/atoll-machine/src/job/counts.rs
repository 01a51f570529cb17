//! What happened to a job: faults, invalidations, pages, and the time they took.
//!
//! Counted by the simulation for all of it and by region.

/// Counts over all nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Job {
    /// Reads that waited for a page from another node.
    pub read_faults: u64,
    /// Writes that waited for a page from another node.
    pub write_faults: u64,
    /// Writes that waited for leave, the page being there.
    pub upgrades: u64,
    /// Writes that faulted and needed nobody: the first write beside a twin, or at the default owner.
    pub local_writes: u64,
    /// Copies invalidated one by one.
    pub invalidations: u64,
    /// Copies invalidated by the orders of a barrier.
    pub batched: u64,
    /// Pages sent.
    pub pages: u64,
    /// Twins made.
    pub twins: u64,
    /// Diffs sent.
    pub diffs: u64,
    /// Pages fetched at regions' entries.
    pub fetched: u64,
    /// Of them, those that a worker then read.
    pub fetched_used: u64,
    /// Barriers, region begins and ends at which all workers met.
    pub barriers: u64,
    /// Picoseconds that workers waited for pages.
    pub waiting: u64,
    /// Picoseconds that workers waited at barriers.
    pub idle: u64,
}

/// A region's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionOutcome {
    /// The low bits of the address it is known by.
    pub name: u64,
    /// How often it ran.
    pub runs: u64,
    /// Runs among them with many writers.
    pub many: u64,
    /// Picoseconds from begin to end.
    pub elapsed: u64,
    /// What happened in it.
    pub counts: Job,
}

/// A simulation's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOutcome {
    /// Picoseconds up to the last worker's last event.
    pub elapsed: u64,
    /// All counts.
    pub all: Job,
    /// Messages between nodes.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// By region, in the order in which they first ran.
    pub regions: Vec<RegionOutcome>,
}
