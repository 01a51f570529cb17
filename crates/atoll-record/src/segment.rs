//! What a record says of a program whose memory was a direct segment: part of [`crate::Figures`].

use serde::{Deserialize, Serialize};

/// A segment and what its workers' page faults were.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Segment {
    /// The pages it is made of: `1G`, `2M`, `thp` (transparent huge pages) or `4K`.
    pub pages: String,
    /// Its bytes.
    pub bytes: u64,
    /// The most of it that was in use.
    pub peak_bytes: u64,
    /// Bytes of large globals and main stack on huge pages beside it.
    pub globals_bytes: u64,
    /// Is every page of every worker locked in memory?
    pub locked: bool,
    /// Pieces that are contiguous in physical memory; none where the kernel does not tell.
    pub physical_pieces: Option<u64>,
    /// Bytes of the largest of them.
    pub largest_piece_bytes: Option<u64>,
    /// How long making it and filling the page tables took, before `main`.
    pub set_up_seconds: f64,
    /// By worker, the master first.
    pub workers: Vec<WorkerFaults>,
}

/// Page faults of one worker from the end of its set-up to the program's end; none: not counted, as the program was killed
/// or the counter is not to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerFaults {
    /// Its number in the team.
    pub index: u32,
    /// Minor ones, by the kernel's accounting of the process.
    pub minor: Option<u64>,
    /// Major ones.
    pub major: Option<u64>,
    /// All, by perf's software counter of the worker's thread.
    pub perf: Option<u64>,
}

impl Segment {
    /// Faults of all workers, if all were counted.
    pub fn faults(&self) -> Option<u64> {
        self.workers.iter().map(|w| Some(w.minor? + w.major?)).sum()
    }
}
