//! The measure of a node's part of a region: its time, waiting and CPU time, and what the agent counts meanwhile.
//!
//! The leader of the part begins and ends it (`omp::parallel`), workers add to it (`hooks`), and the worker that meets the
//! other nodes for all tells how long that took. Before the region's last barrier the agent sends the origin what it decides by
//! (`decide`).
//!
//! Rules: statics only, which all workers of the node share; no locks, no allocation.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use atoll_memory::control::{Control, MAX_WORKERS, NODE_COUNTS, NodeCount, NodeFigures};
use atoll_memory::layout::MAX_NODES;
use atoll_memory::region_counts::{COUNTS, Key, Region};
use atoll_memory::sys;
use atoll_nodes::{clock, region};
use serde::{Deserialize, Serialize};

use crate::state;

/// A node's part of a run, for the origin.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Told {
    /// The time for which it worked, without waiting for pages or at barriers.
    pub(super) work_ns: u64,
    /// The CPU time of its workers; 0 where that is not wanted.
    pub(super) cpu_ns: u64,
}

/// The counts of a node for one region, for the origin's sums.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Counted {
    key: [u64; 3],
    workers: Vec<u64>,
    agent: Vec<u64>,
    waited: u64,
    worked: u64,
}

/// The time at which the part began.
static BEGAN: AtomicU64 = AtomicU64::new(0);
/// The agent's counts at that time.
static BEFORE: [AtomicU64; NODE_COUNTS] = [const { AtomicU64::new(0) }; NODE_COUNTS];
/// Nanoseconds for which the part's last worker waited at barriers.
static WAITED: AtomicU64 = AtomicU64::new(0);
/// The time for which the part had worked when it came to the last barrier.
static WORKED: AtomicU64 = AtomicU64::new(0);
/// The CPU time of the part's workers, and whether that is wanted.
static CPU: AtomicU64 = AtomicU64::new(0);
static WANTED: AtomicBool = AtomicBool::new(false);
/// The runtime has dealt out blocks of iterations in this part.
static DEALT: AtomicBool = AtomicBool::new(false);
/// The work and the CPU time that other nodes told of their parts.
static HEARD: [[AtomicU64; 2]; MAX_NODES] = [const { [const { AtomicU64::new(0) }; 2] }; MAX_NODES];

fn own(control: &'static Control) -> &'static NodeFigures {
    &control.nodes[control.settings.node as usize]
}

/// This node executed a task of another.
pub(super) fn took_task() {
    if let Some(control) = state::control() {
        own(control).add(NodeCount::Tasks, 1);
    }
}

/// The nanoseconds for which this node's workers have waited for pages of other nodes.
pub(super) fn waited_for_pages() -> u64 {
    state::control().map_or(0, |control| own(control).get(NodeCount::FaultNs))
}

/// The number of pages that came to this node, or that it got leave to write.
pub(super) fn pages_taken() -> u64 {
    let counts = [NodeCount::Reads, NodeCount::Writes, NodeCount::Streamed];
    state::control().map_or(0, |control| counts.iter().map(|count| own(control).get(*count)).sum())
}

/// The part begins, of so many workers; their CPU time is wanted if `cpu`.
pub(super) fn begin(workers: u32, cpu: bool) {
    let Some(control) = state::control() else { return };
    for (place, count) in BEFORE.iter().zip(own(control).all()) {
        place.store(count, Ordering::Relaxed);
    }
    for sum in [&WAITED, &WORKED, &CPU] {
        sum.store(0, Ordering::Relaxed);
    }
    DEALT.store(false, Ordering::Relaxed);
    region::set_workers(workers);
    BEGAN.store(clock::now(), Ordering::Relaxed);
    // The last of it: workers that see this see the rest by what sends them to work.
    WANTED.store(cpu, Ordering::Release);
}

/// All workers of the part are at a barrier with other nodes, `last` at its end; `meet` returns when those of all nodes are.
pub(super) fn barrier(last: bool, meet: impl FnOnce()) {
    let Some(control) = state::control() else { return meet() };
    let (figures, arrived) = (own(control), clock::now());
    let batched = figures.get(NodeCount::Batched);
    if last {
        let busy = arrived.saturating_sub(BEGAN.load(Ordering::Relaxed) + WAITED.load(Ordering::Relaxed));
        let before = BEFORE[NodeCount::FaultNs as usize].load(Ordering::Relaxed);
        let faults = figures.get(NodeCount::FaultNs).saturating_sub(before);
        let each = faults / u64::from(region::workers());
        // Pages that several workers wait for are counted once, pages fetched ahead though nobody waits: a guess.
        WORKED.store(busy.saturating_sub(each).max(busy / 10), Ordering::Relaxed);
    }
    meet();
    WAITED.fetch_add(clock::now() - arrived, Ordering::Relaxed);
    if figures.get(NodeCount::Batched) != batched {
        figures.add(NodeCount::Batches, 1);
    }
}

/// This node's part of what the origin decides by; known before the last barrier.
pub(crate) fn told() -> Told {
    Told { work_ns: WORKED.load(Ordering::Relaxed), cpu_ns: CPU.load(Ordering::Relaxed) }
}

/// On the origin: keeps what node `from` tells of its part.
pub(crate) fn heard(from: u32, told: Told) {
    if let Some(place) = HEARD.get(from as usize) {
        place[0].store(told.work_ns, Ordering::Relaxed);
        place[1].store(told.cpu_ns, Ordering::Relaxed);
    }
}

/// On the origin: the measures of all nodes' parts of the run that has just ended.
pub(super) fn parts(nodes: u32) -> Vec<Told> {
    let other = |place: &[AtomicU64; 2]| {
        let [work_ns, cpu_ns] = place.each_ref().map(|word| word.load(Ordering::Relaxed));
        Told { work_ns, cpu_ns }
    };
    HEARD
        .iter()
        .take(nodes as usize)
        .enumerate()
        .map(|(i, p)| if i == 0 { told() } else { other(p) })
        .collect()
}

/// The runtime deals out a block of iterations.
#[inline]
pub(crate) fn deals() {
    DEALT.store(true, Ordering::Relaxed);
}

/// Has the runtime dealt out blocks of iterations in this part?
pub(super) fn dealt() -> bool {
    DEALT.load(Ordering::Relaxed)
}

/// The part is over: adds what it took to the region's figures.
pub(super) fn end(key: Key) -> Option<&'static Region> {
    WANTED.store(false, Ordering::Relaxed);
    let control = state::control()?;
    let region = &control.regions.all[control.regions.find(key)?];
    let node = control.settings.node as usize;
    let before = BEFORE.each_ref().map(|count| count.load(Ordering::Relaxed));
    region.spread.add(&before, own(control));
    region.spread.waited[node].fetch_add(WAITED.load(Ordering::Relaxed), Ordering::Relaxed);
    region.spread.worked[node].fetch_add(WORKED.load(Ordering::Relaxed), Ordering::Relaxed);
    Some(region)
}

/// The time since which each worker works, by its CPU clock, and room for the kernel to write that time, as it could not on the stack.
static SINCE: [AtomicU64; MAX_WORKERS + 1] = [const { AtomicU64::new(0) }; MAX_WORKERS + 1];
static CLOCK: [[AtomicI64; 2]; MAX_WORKERS + 1] =
    [const { [const { AtomicI64::new(0) }; 2] }; MAX_WORKERS + 1];

fn cpu_time(worker: usize) -> u64 {
    let [seconds, nanoseconds] = &CLOCK[worker];
    let at = CLOCK[worker].as_ptr() as usize;
    // SAFETY: a timespec of this worker's own, in memory that is never paged.
    let done = unsafe {
        sys::syscall(libc::SYS_clock_gettime, [libc::CLOCK_THREAD_CPUTIME_ID as usize, at, 0, 0, 0, 0])
    };
    let get = |word: &AtomicI64| word.load(Ordering::Relaxed) as u64;
    if done.is_ok() { get(seconds) * 1_000_000_000 + get(nanoseconds) } else { 0 }
}

/// The worker enters its part of a region.
#[inline]
pub(crate) fn enter(worker: usize) {
    if WANTED.load(Ordering::Acquire) {
        SINCE[worker].store(cpu_time(worker), Ordering::Relaxed);
    }
}

/// The worker leaves its part of a region.
#[inline]
pub(crate) fn leave(worker: usize) {
    if WANTED.load(Ordering::Acquire) {
        let (now, since) = (cpu_time(worker), SINCE[worker].load(Ordering::Relaxed));
        SINCE[worker].store(now, Ordering::Relaxed);
        if since > 0 {
            CPU.fetch_add(now.saturating_sub(since), Ordering::Relaxed);
        }
    }
}

/// On another node than the origin, at the end: its counts of all regions.
pub(crate) fn counted(control: &Control) -> Vec<Counted> {
    let node = control.settings.node as usize;
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let of = |region: &Region| {
        let Key { function, call_site, extent } = region.key()?;
        Some(Counted {
            key: [function, call_site, extent],
            workers: region.counts.iter().map(get).collect(),
            agent: region.spread.counts.iter().map(get).collect(),
            waited: get(&region.spread.waited[node]),
            worked: get(&region.spread.worked[node]),
        })
    };
    control.regions.all.iter().filter_map(of).collect()
}

/// On the origin: adds the counts of node `from`.
pub(crate) fn add(control: &Control, from: u32, all: &[Counted]) {
    for counted in all {
        let [function, call_site, extent] = counted.key;
        let Some(at) = control.regions.find(Key { function, call_site, extent }) else { continue };
        let region = &control.regions.all[at];
        for (sum, more) in region.counts.iter().zip(&counted.workers).take(COUNTS.len()) {
            sum.fetch_add(*more, Ordering::Relaxed);
        }
        for (sum, more) in region.spread.counts.iter().zip(&counted.agent) {
            sum.fetch_add(*more, Ordering::Relaxed);
        }
        if let (Some(waited), Some(worked)) =
            (region.spread.waited.get(from as usize), region.spread.worked.get(from as usize))
        {
            waited.store(counted.waited, Ordering::Relaxed);
            worked.store(counted.worked, Ordering::Relaxed);
        }
    }
}
