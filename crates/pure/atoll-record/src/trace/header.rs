//! The description of a trace: the header before the events, and the trailer behind them.
//!
//! Both are JSON on disk, so that fields can be added; [`frame`](super::frame) holds them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::event::Event;

/// The bytes of the pages that events name.
pub const PAGE_BYTES: u32 = 4096;

/// The description of a trace that is known before the first event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// The version of the atoll that wrote the trace.
    pub atoll_version: String,
    /// The file that was executed, or that was imported.
    pub program: String,
    /// The program's arguments, its name first. Bytes that are no UTF-8 are replaced.
    pub arguments: Vec<String>,
    /// The number of workers asked for; a trace may name more where the program made more threads.
    pub workers: u32,
    /// The bytes of a page.
    pub page_bytes: u32,
    /// The engine that saw the accesses: `qemu`, `tsan`, `oracle-general`.
    pub engine: String,
    /// Whether every access is in the trace. With a filter this is false, and where the engine cannot see some accesses.
    pub exact: bool,
    /// The filter, which left out pages just seen; `None` in an exact trace.
    pub filter: Option<Filter>,
    /// The number of instructions that are gathered, unless a mark comes first; 0: the engine does not count them.
    pub compute_quantum: u32,
    /// The regions that recording was limited to; `None`: no limit.
    pub regions: Option<String>,
    /// The number of iterations after which recording ended; `None`: at the program's end.
    pub iterations: Option<u64>,
    /// Whether the threads' stacks were left out.
    pub without_stacks: bool,
    /// The start time, in seconds since 1970 (UTC).
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

/// The filter of recently seen pages that each worker had: places for pages, taken in the order in which these came. A read of
/// a page that has a place was left out. So was a write if one was recorded since the page got its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// The number of places.
    pub entries: u32,
    /// The number of instructions after which a worker's places were emptied, so that pages in use show up again.
    pub refresh_instructions: u64,
}

/// The description of a trace that is known behind the last event.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Trailer {
    /// The number of events of all kinds.
    pub events: u64,
    /// The number of chunks.
    pub chunks: u64,
    /// The number of accesses that read.
    pub reads: u64,
    /// The number of accesses that wrote.
    pub writes: u64,
    /// The number of instructions of all `Compute` events; it stays at the largest number where there are more.
    pub instructions: u64,
    /// The number of regions begun by worker 0.
    pub regions: u64,
    /// The number of barriers passed by worker 0.
    pub barriers: u64,
    /// The number of workers that events name: the largest worker's number plus one.
    pub workers: u32,
    /// The number of accesses that the engine saw, filtered ones included; 0 where it does not count them.
    pub accesses_seen: u64,
    /// The names of regions whose symbols were found, by address.
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

    /// Whether the counts of events agree.
    pub(super) fn agrees(&self, counted: &Trailer) -> bool {
        let counts = |t: &Trailer| {
            (t.events, t.chunks, t.reads, t.writes, t.instructions, t.regions, t.barriers, t.workers)
        };
        counts(self) == counts(counted)
    }
}
