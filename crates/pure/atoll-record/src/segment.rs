//! The figures of a program whose memory was a direct segment: part of [`crate::Figures`].

use serde::{Deserialize, Serialize};

/// A segment and its workers' page faults.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Segment {
    /// The pages that the segment is made of: `1G`, `2M`, `thp` (transparent huge pages) or `4K`.
    pub pages: String,
    /// The bytes of the segment.
    pub bytes: u64,
    /// The most bytes of the segment that were in use.
    pub peak_bytes: u64,
    /// Bytes of large globals and main stack on huge pages beside it.
    pub globals_bytes: u64,
    /// Whether every page of every worker is locked in memory.
    pub locked: bool,
    /// The number of pieces that are contiguous in physical memory; `None` where the kernel does not tell.
    pub physical_pieces: Option<u64>,
    /// The bytes of the largest of these pieces.
    pub largest_piece_bytes: Option<u64>,
    /// The seconds that making the segment and filling the page tables took, before `main`.
    pub set_up_seconds: f64,
    /// The faults of each worker, the master first.
    pub workers: Vec<WorkerFaults>,
}

/// The page faults of one worker from the end of its set-up to the program's end. `None`: not counted, as the program was
/// killed or the counter is not available.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerFaults {
    /// The worker's number in the team.
    pub index: u32,
    /// The number of minor faults, by the kernel's accounting of the process.
    pub minor: Option<u64>,
    /// The number of major faults, by the same accounting.
    pub major: Option<u64>,
    /// The number of all faults, by perf's software counter of the worker's thread.
    pub perf: Option<u64>,
}

impl Segment {
    /// Returns the faults of all workers, if all were counted.
    pub fn faults(&self) -> Option<u64> {
        self.workers.iter().map(|w| Some(w.minor? + w.major?)).sum()
    }
}
