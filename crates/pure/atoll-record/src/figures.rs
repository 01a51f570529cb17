//! The chunk `figures`: the counters of a run, which `--summary json` and `atoll top --json` also print.

use serde::{Deserialize, Serialize};

use crate::container::Tag;
use crate::run::{Ending, Settings};
use crate::segment::Segment;

/// The chunk's tag.
pub const TAG: Tag = Tag::new("figures");

/// All counters of one run. Field names are stable; later ones may be added.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// The program's file name.
    pub program: String,
    /// The program's process; `None` if no program of the run was managed.
    pub pid: Option<i32>,
    /// Whether there was an OpenMP program whose memory was managed.
    pub managed: bool,
    /// How the program ended; `None` while it runs.
    pub ending: Option<Ending>,
    /// The settings decided before the start.
    pub settings: Settings,
    /// The time since the start, in seconds.
    pub wall_seconds: f64,
    /// The program's memory.
    pub memory: Memory,
    /// The counters of all workers together, the background included.
    pub total: Counters,
    /// The counters of each worker; the first is the master.
    pub workers: Vec<Worker>,
    /// The counters of work done for all workers: the handler thread, eviction ahead of need.
    pub background: Counters,
    /// The number of pages by the number of workers that mapped them (the paper's Figure 6): element 0 is for one worker. Zeros
    /// behind the last count met are left out.
    pub pages_by_core_map_count: Vec<u64>,
    /// The number of programs with OpenMP that the run started after this one; each was managed by a launcher of its own.
    pub later_programs: u32,
    /// The kernel's own count of TLB shootdowns on all CPUs during the run, including those of other programs.
    pub kernel_tlb_shootdowns: Option<u64>,
    /// The figures of each node, the first being that of `main`; empty where there is one node.
    pub nodes: Vec<Node>,
    /// The figures of each parallel region. On one node the region with most time in faults comes first, and the list is empty
    /// where no record was wanted. On several nodes the region with most time comes first.
    pub regions: Vec<Region>,
    /// The lenders of far memory in other hosts, the nearest first; empty for other far memory.
    pub lenders: Vec<Lender>,
    /// The pages that went to the file behind the lenders, as no lender had room for them.
    pub pages_behind_lenders: u64,
    /// The pages that were fetched from there.
    pub pages_from_behind_lenders: u64,
    /// The segment, if the program's memory was one.
    pub segment: Option<Segment>,
    /// The findings of `--check races`; `None` where it was not asked for.
    pub races: Option<Races>,
    /// The names of the regions that keep to one writer of a page because near memory is too small for their twins.
    pub one_writer_regions: Vec<String>,
}

/// One lender of a run whose far memory was in other hosts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Lender {
    /// Its name and its host.
    pub name: String,
    /// Whether it was lost during the run.
    pub lost: bool,
    /// Whether it ended during the run, after the run had moved all pages elsewhere.
    pub left: bool,
    /// The bytes that the run borrowed of it, without those that it gave back.
    pub borrowed_bytes: u64,
    /// The bytes that the run gave back because the lender wanted them.
    pub returned_bytes: u64,
    /// The copies of pages that were moved elsewhere for that.
    pub pages_moved: u64,
    /// The pages that lay there when this was counted.
    pub pages_held: u64,
    /// The pages that were fetched from it.
    pub pages_in: u64,
    /// The pages that were sent to it.
    pub pages_out: u64,
    /// The bytes that were fetched from it.
    pub bytes_in: u64,
    /// The bytes that were sent to it.
    pub bytes_out: u64,
    /// The last measured round trip to it, in microseconds.
    pub round_trip_us: f64,
    /// The time within which half of the reads were done, of one page or several, in microseconds; `None` where there were none.
    pub read_median_us: Option<f64>,
    /// The time within which 99% of the reads were done, in microseconds.
    pub read_99_us: Option<f64>,
}

/// Words that several nodes wrote in one region.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Races {
    /// The number of runs of regions that were checked.
    pub checked_regions: u64,
    /// The number of runs of regions over several nodes that were not checked, because their code synchronises by instructions
    /// of its own.
    pub unchecked_regions: u64,
    /// The number of findings that there was no room for.
    pub lost: u64,
    /// The words, those found most often first.
    pub words: Vec<Race>,
}

/// Words of one variable, or side by side, that several nodes wrote in one region.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Race {
    /// The region's outlined function, as the program's symbols name it; else its address.
    pub region: String,
    /// What the words are in: a variable's name, `heap`, `stack`, or empty where it is not known.
    pub variable: String,
    /// Bytes from the variable's start to the first word; 0 where there is no variable.
    pub offset: u64,
    /// The address of the first word.
    pub address: u64,
    /// The number of words, of 8 bytes each.
    pub words: u64,
    /// The nodes that wrote the words.
    pub nodes: Vec<u32>,
    /// The number of barriers at which one of the words was found.
    pub count: u64,
}

/// One parallel region: sums over all workers, from entering it to leaving it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Region {
    /// The outlined function, as the program's symbols name it; else its address.
    pub name: String,
    /// On several nodes: the place that the region is called from.
    pub call_site: Option<String>,
    /// On several nodes, where the region is a loop that the runtime deals out: the approximate number of iterations, and how
    /// they are dealt out.
    #[serde(rename = "loop")]
    pub extent: Option<String>,
    /// On several nodes: what the nodes did for the region.
    pub spread: Option<Spread>,
    /// The number of times that the region was entered. This and the following fields are there where a record was wanted.
    pub entered: u64,
    /// The same as in [`Counters`].
    pub minor_faults: u64,
    /// The same as in [`Counters`].
    pub major_faults: u64,
    /// The same as in [`Counters`].
    pub first_faults: u64,
    /// The same as in [`Counters`].
    pub write_faults: u64,
    /// The same as in [`Counters`].
    pub prefetched_pages: u64,
    /// The time in the fault path, in seconds.
    pub fault_seconds: f64,
    /// The time of all workers in the region, faults included, in seconds.
    pub worker_seconds: f64,
}

/// What several nodes did for one region: sums over its runs and all nodes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Spread {
    /// The number of runs, those on the origin alone included.
    pub runs: u64,
    /// The number of runs on the origin alone.
    pub alone_runs: u64,
    /// The time of all runs, in seconds.
    pub seconds: f64,
    /// The part of this time that was spent in runs on the origin alone, in seconds.
    pub alone_seconds: f64,
    /// How many nodes may write a page at once, in the last run: `one` or `many`; `alone` where the origin ran it alone.
    pub writers: String,
    /// The reason for `writers`.
    pub why: String,
    /// The same as in [`Node`].
    pub read_faults: u64,
    /// The same as in [`Node`].
    pub write_faults: u64,
    /// The same as in [`Node`].
    pub twins: u64,
    /// The same as in [`Node`].
    pub pages_sent: u64,
    /// The same as in [`Node`].
    pub single_invalidations: u64,
    /// The same as in [`Node`].
    pub batched_invalidations: u64,
    /// The number of messages that batching saved.
    pub saved_invalidations: u64,
    /// The same as in [`Node`].
    pub diffs: u64,
    /// The same as in [`Node`].
    pub diff_bytes: u64,
    /// The number of pages fetched ahead that were used.
    pub ahead_used: u64,
    /// The number of pages fetched ahead for nothing.
    pub ahead_wasted: u64,
    /// The same as in [`Node`].
    pub streamed: u64,
    /// The seconds that faults waited.
    pub fault_seconds: f64,
    /// The same as in [`Node`].
    pub messages: u64,
    /// For each node, the seconds that its last worker waited at barriers.
    pub barrier_seconds: Vec<f64>,
    /// For each node, the seconds that it worked, neither at barriers nor waiting for pages.
    pub work_seconds: Vec<f64>,
    /// For each node, the number of its threads in the last run that was spread.
    pub threads: Vec<u32>,
}

/// The counters of one node's part in keeping copies of pages coherent.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// The number of faults that waited to read a page from another node.
    pub read_faults: u64,
    /// The number of faults that waited for permission to write a page.
    pub write_faults: u64,
    /// The number of pages written while other nodes may write them.
    pub twins: u64,
    /// The number of pages sent to other nodes.
    pub pages_sent: u64,
    /// The number of copies invalidated one by one.
    pub single_invalidations: u64,
    /// The number of copies invalidated at barriers, in one message for all.
    pub batched_invalidations: u64,
    /// The number of differences sent to be merged.
    pub diffs: u64,
    /// The number of bytes of these differences.
    pub diff_bytes: u64,
    /// The number of pages fetched ahead at the begin of a phase.
    pub ahead: u64,
    /// The number of these pages that were used in the phase.
    pub ahead_used: u64,
    /// The number of pages fetched ahead in the stream of a worker's faults.
    pub streamed: u64,
    /// The seconds that faults waited.
    pub fault_seconds: f64,
    /// The number of barriers of all nodes.
    pub barriers: u64,
    /// The seconds from the arrival of the node's last worker at a barrier until the barrier opened.
    pub barrier_seconds: f64,
    /// The number of messages sent.
    pub messages: u64,
    /// The number of bytes of these messages.
    pub message_bytes: u64,
    /// The number of other nodes' tasks that the node executed.
    pub tasks: u64,
    /// The number of messages that batching invalidations saved.
    pub saved_invalidations: u64,
}

/// Memory, in bytes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// The memory that a near limit counts, now: data, pinned memory and tables.
    pub footprint_bytes: u64,
    /// The program's footprint: the least near limit under which nothing would have been evicted. For a program that did not
    /// end in good order, as far as it is known.
    pub footprint_peak_bytes: u64,
    /// The data in the arena now: touched and not freed.
    pub data_bytes: u64,
    /// The greatest value of `data_bytes` at any time.
    pub data_peak_bytes: u64,
    /// The part of the arena that is near now.
    pub resident_bytes: u64,
    /// The greatest value of `resident_bytes` at any time.
    pub resident_peak_bytes: u64,
    /// Shared memory that is always near: stacks, small blocks.
    pub pinned_bytes: u64,
    /// The greatest value of `pinned_bytes` at any time.
    pub pinned_peak_bytes: u64,
    /// The runtime's own tables.
    pub table_bytes: u64,
    /// The pages that far memory holds, before compression.
    pub far_bytes: u64,
    /// The bytes that far memory really takes.
    pub far_stored_bytes: u64,
    /// The part of that in which `auto` has pages as they are, as the machine has plenty of memory.
    pub far_plain_bytes: u64,
    /// Where far memory is a file: bytes of evicted pages on which compressing was tried.
    pub tried_bytes: u64,
    /// The bytes that these would take compressed with lz4.
    pub tried_packed_bytes: u64,
    /// How often a huge page came: 2 MiB that the program walks through, which come and leave as one. Records of an older atoll have none.
    #[serde(default)]
    pub huge_pages: u64,
}

/// One worker's counters.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Worker {
    /// The worker's number in the team.
    pub index: u32,
    /// The worker's process or thread.
    pub pid: i32,
    /// The worker's counters.
    #[serde(flatten)]
    pub counters: Counters,
}

/// Counters of faults and pages; they only grow.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// The number of faults on pages that were near but not mapped by this worker.
    pub minor_faults: u64,
    /// The number of faults that fetched their page from far memory.
    pub major_faults: u64,
    /// The number of faults on pages never touched before.
    pub first_faults: u64,
    /// The number of first writes to pages that were mapped read-only.
    pub write_faults: u64,
    /// The number of pages fetched before they were asked for.
    pub prefetched_pages: u64,
    /// The number of pages evicted whose far copy was still good.
    pub evictions_clean: u64,
    /// The number of pages evicted and written to far memory.
    pub evictions_dirty: u64,
    /// The bytes fetched from far memory.
    pub bytes_in: u64,
    /// The bytes written to far memory.
    pub bytes_out: u64,
    /// The number of remote TLB invalidations, by core map.
    pub remote_tlb_invalidations: u64,
    /// The number of pages unmapped only to see whether they are used (LRU's scan).
    pub scan_unmapped_pages: u64,
    /// The time in the fault path, in seconds.
    pub fault_seconds: f64,
    /// The part of `fault_seconds` spent in making room, in seconds.
    pub evict_seconds: f64,
    /// The number of faults that waited for another worker.
    pub waits: u64,
    /// The number of parallel regions that this worker took part in.
    pub regions: u64,
}

impl Counters {
    /// Returns the number of faults of all kinds.
    pub fn faults(&self) -> u64 {
        self.minor_faults + self.major_faults + self.first_faults + self.write_faults
    }

    /// Applies `f` to each pair of counters, integers as well; `f64` holds every value that a run counts.
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
