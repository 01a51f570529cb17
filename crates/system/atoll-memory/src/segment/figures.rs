//! What the launcher and the runtime tell each other of a segment, in the control block.
//!
//! `control` holds one of each; the launcher reads the figures when all is over, also after a kill.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::kind::PageKind;
use crate::control::MAX_WORKERS;

/// What was decided before the start.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct SegmentSettings {
    /// Whether the program's memory is a segment; 0: no, it is paged.
    pub on: u32,
    /// The first kind of pages to try: a [`PageKind`] as a number.
    pub first: u32,
    /// Whether anything less than the first kind, pinned, is a reason to end; 0: no.
    pub strict: u32,
    /// Bytes of the segment; 0: all that is reserved.
    pub bytes: u64,
}

impl SegmentSettings {
    /// Whether the program's memory is a segment.
    pub fn is_on(&self) -> bool {
        self.on != 0
    }

    /// Whether anything less than what was asked for is a reason to end.
    pub fn is_strict(&self) -> bool {
        self.strict != 0
    }
}

/// Stands for a number that nobody has counted.
pub const NOT_COUNTED: u64 = u64::MAX;

/// Faults of one worker, and what it had when it was set up.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct WorkerFaults {
    /// Whether the worker is set up; 0: no.
    pub ready: AtomicU32,
    /// Minor faults up to then, and in setting up other workers later.
    pub before_minor: AtomicU64,
    /// Major ones.
    pub before_major: AtomicU64,
    /// Minor faults since, by the kernel's accounting of the process.
    pub minor: AtomicU64,
    /// Major faults since.
    pub major: AtomicU64,
    /// Faults since by the software counter of perf.
    pub perf: AtomicU64,
}

/// What the runtime found and did.
#[repr(C)]
#[derive(Debug)]
pub struct SegmentFigures {
    /// A [`PageKind`] as a number; 0 as long as there is no segment.
    pub kind: AtomicU32,
    /// 1: every page is locked in memory; 0: the kernel refused some.
    pub locked: AtomicU32,
    /// Bytes of the segment.
    pub bytes: AtomicU64,
    /// The most of it that was in use.
    pub peak: AtomicU64,
    /// Pieces that are contiguous in physical memory; 0: the kernel does not tell.
    pub pieces: AtomicU64,
    /// Bytes of the largest of them.
    pub largest: AtomicU64,
    /// Bytes of large globals and main stack that lie on huge pages of their own beside the segment.
    pub globals: AtomicU64,
    /// Ticks from the start of set-up to its end.
    pub set_up_ticks: AtomicU64,
    /// By worker.
    pub workers: [WorkerFaults; MAX_WORKERS],
}

impl SegmentFigures {
    /// The pages the segment is made of; none as long as there is no segment.
    pub fn page_kind(&self) -> Option<PageKind> {
        PageKind::from_number(self.kind.load(Ordering::Relaxed))
    }
}
