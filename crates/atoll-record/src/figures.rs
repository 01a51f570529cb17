//! Chunk `figures`: what was counted, which is also what `--summary json` and `atoll top --json` print.

use serde::{Deserialize, Serialize};

use crate::container::Tag;
use crate::run::{Ending, Settings};
use crate::segment::Segment;

/// The chunk's tag.
pub const TAG: Tag = Tag::new("figures");

/// Everything counted in one run. Field names are stable; later ones may be added.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// The program's file name.
    pub program: String,
    /// Its process; none if no program of the run was managed.
    pub pid: Option<i32>,
    /// Was there an OpenMP program whose memory was managed?
    pub managed: bool,
    /// How it ended; none while it runs.
    pub ending: Option<Ending>,
    /// What was decided before the start.
    pub settings: Settings,
    /// Time since the start.
    pub wall_seconds: f64,
    /// Memory.
    pub memory: Memory,
    /// All workers together, the background included.
    pub total: Counters,
    /// By worker; the first is the master.
    pub workers: Vec<Worker>,
    /// What was done for all workers: the handler thread, eviction ahead of need.
    pub background: Counters,
    /// Pages by how many workers mapped them (the paper's Figure 6): element 0 is for one worker. Zeros behind the
    /// last count met are left out.
    pub pages_by_core_map_count: Vec<u64>,
    /// The kernel's own count of TLB shootdowns on all CPUs during the run, other programs' included.
    pub kernel_tlb_shootdowns: Option<u64>,
    /// By node, the first being that of `main`; empty where there is one node.
    pub nodes: Vec<Node>,
    /// By parallel region, that with most time in faults first, on several nodes that with most time; on one node empty where no
    /// record was wanted.
    pub regions: Vec<Region>,
    /// The segment, if the program's memory was one.
    pub segment: Option<Segment>,
    /// What `--check races` found; none where it was not asked for.
    pub races: Option<Races>,
    /// Regions that keep to one writer of a page as near memory is too small for their twins, by their functions' names.
    pub one_writer_regions: Vec<String>,
}

/// Words that several nodes wrote in one region.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Races {
    /// Runs of regions in which they were looked for.
    pub checked_regions: u64,
    /// Runs of regions over several nodes in which they were not, as their code synchronises by instructions of its own.
    pub unchecked_regions: u64,
    /// Finds that there was no room for.
    pub lost: u64,
    /// That found most often first.
    pub words: Vec<Race>,
}

/// Words of one variable, or side by side, that several nodes wrote in one region.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Race {
    /// The region's outlined function, as the program's symbols name it; else its address.
    pub region: String,
    /// What they are in: a variable's name, `heap`, `stack`, or empty where it is not known.
    pub variable: String,
    /// Bytes from the variable's start to the first word; 0 where it is no variable.
    pub offset: u64,
    /// Address of the first word.
    pub address: u64,
    /// How many words, of 8 bytes.
    pub words: u64,
    /// Nodes that wrote them.
    pub nodes: Vec<u32>,
    /// At how many barriers one of them was found.
    pub count: u64,
}

/// One parallel region: sums over all workers, from entering it to leaving it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Region {
    /// The outlined function, as the program's symbols name it; else its address.
    pub name: String,
    /// On several nodes: where it is begun from.
    pub call_site: Option<String>,
    /// On several nodes, where the region is a loop that the runtime deals out: about how many iterations, and how.
    #[serde(rename = "loop")]
    pub extent: Option<String>,
    /// On several nodes: what they did for it.
    pub spread: Option<Spread>,
    /// How often it was entered; this and what follows where a record was wanted.
    pub entered: u64,
    /// As in [`Counters`].
    pub minor_faults: u64,
    /// As in [`Counters`].
    pub major_faults: u64,
    /// As in [`Counters`].
    pub first_faults: u64,
    /// As in [`Counters`].
    pub write_faults: u64,
    /// As in [`Counters`].
    pub prefetched_pages: u64,
    /// Time in the fault path.
    pub fault_seconds: f64,
    /// Time of all workers in it, faults included.
    pub worker_seconds: f64,
}

/// What several nodes did for one region: sums over its runs and all nodes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Spread {
    /// Runs, those on the first node alone included.
    pub runs: u64,
    /// Runs on the first node alone.
    pub alone_runs: u64,
    /// Time of all runs.
    pub seconds: f64,
    /// Of this, those on the first node alone.
    pub alone_seconds: f64,
    /// How many nodes may write a page at once: `one` or `many`; `alone` where the first node runs it. Of the last run.
    pub writers: String,
    /// Why so.
    pub why: String,
    /// As in [`Node`].
    pub read_faults: u64,
    /// As in [`Node`].
    pub write_faults: u64,
    /// As in [`Node`].
    pub twins: u64,
    /// As in [`Node`].
    pub pages_sent: u64,
    /// As in [`Node`].
    pub single_invalidations: u64,
    /// As in [`Node`].
    pub batched_invalidations: u64,
    /// Messages that batching saved.
    pub saved_invalidations: u64,
    /// As in [`Node`].
    pub diffs: u64,
    /// As in [`Node`].
    pub diff_bytes: u64,
    /// Pages fetched ahead that were used.
    pub ahead_used: u64,
    /// Pages fetched ahead for nothing.
    pub ahead_wasted: u64,
    /// As in [`Node`].
    pub streamed: u64,
    /// Seconds that faults waited.
    pub fault_seconds: f64,
    /// As in [`Node`].
    pub messages: u64,
    /// By node: seconds that its last worker waited at barriers.
    pub barrier_seconds: Vec<f64>,
    /// By node: seconds that it worked, neither at barriers nor waiting for pages.
    pub work_seconds: Vec<f64>,
    /// By node: its threads in the last run that was spread.
    pub threads: Vec<u32>,
}

/// What kept one node's copies of pages coherent with the others'.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Faults that waited for a page from another node, to be read.
    pub read_faults: u64,
    /// Faults that waited for leave to write a page.
    pub write_faults: u64,
    /// Pages written among many nodes.
    pub twins: u64,
    /// Pages sent to other nodes.
    pub pages_sent: u64,
    /// Copies invalidated one by one.
    pub single_invalidations: u64,
    /// Copies invalidated at barriers, in one message for all.
    pub batched_invalidations: u64,
    /// Differences sent to be merged.
    pub diffs: u64,
    /// Their bytes.
    pub diff_bytes: u64,
    /// Pages fetched ahead at the begin of a phase.
    pub ahead: u64,
    /// Of these, used in it.
    pub ahead_used: u64,
    /// Pages fetched ahead in the stream of a worker's faults.
    pub streamed: u64,
    /// Seconds that faults waited.
    pub fault_seconds: f64,
    /// Barriers of all nodes.
    pub barriers: u64,
    /// Seconds from the node's last worker at a barrier until it opened.
    pub barrier_seconds: f64,
    /// Messages sent.
    pub messages: u64,
    /// Their bytes.
    pub message_bytes: u64,
    /// Messages that batching invalidations saved.
    pub saved_invalidations: u64,
}

/// Memory, in bytes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// All that a near limit counts, now: data, pinned memory and tables.
    pub footprint_bytes: u64,
    /// The program's footprint: the least near limit under which nothing would have been evicted. Of a program that did not end in
    /// good order, what is known of it.
    pub footprint_peak_bytes: u64,
    /// Data in the arena now: touched and not freed.
    pub data_bytes: u64,
    /// The most of that at any time.
    pub data_peak_bytes: u64,
    /// Of the arena, what is near now.
    pub resident_bytes: u64,
    /// The most of that at any time.
    pub resident_peak_bytes: u64,
    /// Shared memory that is always near: stacks, small blocks.
    pub pinned_bytes: u64,
    /// The most of that at any time.
    pub pinned_peak_bytes: u64,
    /// The runtime's own tables.
    pub table_bytes: u64,
    /// Pages that far memory holds, before compression.
    pub far_bytes: u64,
    /// What far memory really takes.
    pub far_stored_bytes: u64,
    /// Where far memory is a file: bytes of evicted pages on which compressing was tried.
    pub tried_bytes: u64,
    /// What these would take compressed with lz4.
    pub tried_packed_bytes: u64,
}

/// One worker's counters.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Worker {
    /// Its number in the team.
    pub index: u32,
    /// Its process or thread.
    pub pid: i32,
    /// What it did.
    #[serde(flatten)]
    pub counters: Counters,
}

/// Counters; they only grow.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Faults on pages that were near but not mapped by this worker.
    pub minor_faults: u64,
    /// Faults that fetched their page from far memory.
    pub major_faults: u64,
    /// Faults on pages never touched before.
    pub first_faults: u64,
    /// First writes to pages that were mapped read-only.
    pub write_faults: u64,
    /// Pages fetched before they were asked for.
    pub prefetched_pages: u64,
    /// Pages evicted whose far copy was still good.
    pub evictions_clean: u64,
    /// Pages evicted and written to far memory.
    pub evictions_dirty: u64,
    /// Bytes fetched from far memory.
    pub bytes_in: u64,
    /// Bytes written to far memory.
    pub bytes_out: u64,
    /// Remote TLB invalidations by core map.
    pub remote_tlb_invalidations: u64,
    /// Pages unmapped only to see whether they are used (LRU's scan).
    pub scan_unmapped_pages: u64,
    /// Time in the fault path.
    pub fault_seconds: f64,
    /// Of that, time in making room.
    pub evict_seconds: f64,
    /// Faults that waited for another worker.
    pub waits: u64,
    /// Parallel regions taken part in.
    pub regions: u64,
}

impl Counters {
    /// Faults of all kinds.
    pub fn faults(&self) -> u64 {
        self.minor_faults + self.major_faults + self.first_faults + self.write_faults
    }

    /// Applies `f` to each pair of counters; both kinds, as `f64` holds what a run counts.
    pub fn combine(&self, other: &Counters, f: impl Fn(f64, f64) -> f64) -> Counters {
        let n = |a: u64, b: u64| f(a as f64, b as f64) as u64;
        Counters {
            minor_faults: n(self.minor_faults, other.minor_faults),
            major_faults: n(self.major_faults, other.major_faults),
            first_faults: n(self.first_faults, other.first_faults),
            write_faults: n(self.write_faults, other.write_faults),
            prefetched_pages: n(self.prefetched_pages, other.prefetched_pages),
            evictions_clean: n(self.evictions_clean, other.evictions_clean),
            evictions_dirty: n(self.evictions_dirty, other.evictions_dirty),
            bytes_in: n(self.bytes_in, other.bytes_in),
            bytes_out: n(self.bytes_out, other.bytes_out),
            remote_tlb_invalidations: n(self.remote_tlb_invalidations, other.remote_tlb_invalidations),
            scan_unmapped_pages: n(self.scan_unmapped_pages, other.scan_unmapped_pages),
            fault_seconds: f(self.fault_seconds, other.fault_seconds),
            evict_seconds: f(self.evict_seconds, other.evict_seconds),
            waits: n(self.waits, other.waits),
            regions: n(self.regions, other.regions),
        }
    }
}
