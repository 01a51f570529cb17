//! What a trace says of itself: the header before the events, the trailer behind them.
//!
//! Both are JSON on disk, so that fields can be added; [`frame`](super::frame) holds them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::event::Event;

/// Bytes of the pages that events name.
pub const PAGE_BYTES: u32 = 4096;

/// What is known before the first event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// The atoll that wrote it.
    pub atoll_version: String,
    /// The file that was executed, or that was imported.
    pub program: String,
    /// Its arguments, its name first. Bytes that are no UTF-8 are replaced.
    pub arguments: Vec<String>,
    /// Workers asked for; a trace may name more where the program made more threads.
    pub workers: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// What saw the accesses: `qemu`, `tsan`, `oracle-general`.
    pub engine: String,
    /// Is every access there? Not with a filter, nor where the engine cannot see some.
    pub exact: bool,
    /// What was left out as just seen; none in an exact trace.
    pub filter: Option<Filter>,
    /// Instructions are gathered until there are this many, or until a mark; 0: the engine does not count them.
    pub compute_quantum: u32,
    /// Only these regions were recorded; none: everything.
    pub regions: Option<String>,
    /// Recording ended after this many iterations; none: at the program's end.
    pub iterations: Option<u64>,
    /// Were the threads' stacks left out?
    pub without_stacks: bool,
    /// When it started, in seconds since 1970 (UTC).
    pub started_unix_seconds: f64,
}

impl Default for Header {
    fn default() -> Self {
        Self {
            atoll_version: String::new(),
            program: String::new(),
            arguments: Vec::new(),
            workers: 1,
            page_bytes: PAGE_BYTES,
            engine: String::new(),
            exact: false,
            filter: None,
            compute_quantum: 0,
            regions: None,
            iterations: None,
            without_stacks: false,
            started_unix_seconds: 0.0,
        }
    }
}

/// The recently-seen filter each worker had: places for pages, taken in the order these came. A read of a page that has one
/// was left out, and so was a write if one was recorded since the page got it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// Places.
    pub entries: u32,
    /// Instructions after which a worker's places were emptied, so that pages in use show up again.
    pub refresh_instructions: u64,
}

/// What is known behind the last event.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Trailer {
    /// Events of all kinds.
    pub events: u64,
    /// Chunks.
    pub chunks: u64,
    /// Accesses that read.
    pub reads: u64,
    /// Accesses that wrote.
    pub writes: u64,
    /// Instructions of all `Compute` events; it stays at the largest number where there are more.
    pub instructions: u64,
    /// Regions begun by worker 0.
    pub regions: u64,
    /// Barriers passed by worker 0.
    pub barriers: u64,
    /// Workers that any event names: the largest number plus one.
    pub workers: u32,
    /// Accesses the engine saw, filtered ones included; 0 where it does not count them.
    pub accesses_seen: u64,
    /// Names of regions whose symbols were found, by address.
    pub names: BTreeMap<u64, String>,
}

impl Trailer {
    /// Counts one event.
    pub(super) fn count(&mut self, event: &Event) {
        self.events += 1;
        if let Some(worker) = event.worker() {
            self.workers = self.workers.max(u32::from(worker) + 1);
        }
        match *event {
            Event::Access { write: false, .. } => self.reads += 1,
            Event::Access { write: true, .. } => self.writes += 1,
            Event::Compute { instructions, .. } => {
                self.instructions = self.instructions.saturating_add(instructions);
            }
            Event::RegionBegin { worker: 0, .. } => self.regions += 1,
            Event::Barrier { worker: 0, .. } => self.barriers += 1,
            _ => {}
        }
    }

    /// Do the counts of events agree?
    pub(super) fn agrees(&self, counted: &Trailer) -> bool {
        let counts = |t: &Trailer| {
            (t.events, t.chunks, t.reads, t.writes, t.instructions, t.regions, t.barriers, t.workers)
        };
        counts(self) == counts(counted)
    }
}
