//! Regions over several nodes: who gets which threads, and the worker that leads each node's part.
//!
//! `omp::parallel` opens and closes a node's part as any team; the agents carry the order and the barriers.
//!
//! Source: the Popcorn paper, section 2; the barrelfish paper, section 7.2.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use atoll_coherence::agent::Mode;
use atoll_coherence::region::{Region, Rules};
use atoll_memory::control::Consistency;
use atoll_memory::race_counts::MAX_CROWDED;
use serde::{Deserialize, Serialize};

use super::{ORIGIN, mail};
use crate::futex::{Gate, Lock};
use crate::omp::icv::Icv;
use crate::{omp, state};

/// What a node must know to take part in a region.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The outlined function and its argument, a place in the program's memory.
    pub(crate) function: u64,
    pub(crate) data: u64,
    /// Where the region was begun from.
    pub(crate) call_site: u64,
    /// Threads of the whole team.
    pub(crate) threads: u32,
    /// Do many nodes write at once?
    pub(crate) many: bool,
    /// Which of the origin's standard descriptors are other files than before.
    pub(crate) standard: u8,
    /// The loop that the region is: start, step, end, count, chunk, and how it is dealt.
    pub(crate) plan: Option<[u64; 6]>,
    /// The control variables where the region is begun: what the program has set.
    pub(crate) icv: Icv,
}

/// Which threads of a region of `threads` are `node`'s: the first one's number, and how many. Every node has one if there are
/// enough.
pub(crate) fn part(threads: u32, node: u32, nodes: u32) -> (u32, u32) {
    let at = |node: u32| (u64::from(threads) * u64::from(node) / u64::from(nodes)) as u32;
    (at(node), at(node + 1) - at(node))
}

pub(crate) use super::safety::How;

/// How the region of this outlined function runs, by its code and by what the user wants.
pub(crate) fn how(function: usize) -> How {
    let how = super::safety::of(function);
    match (how, consistency()) {
        (How::Many, _) if is_crowded(function as u64) => How::Single,
        (How::Many, _) if super::races::wanted() => How::Many,
        (How::Many, Some(Consistency::Smart)) => {
            let mode = REGIONS.lock().entry(function).or_default().mode();
            if mode == Mode::Many { How::Many } else { How::Single }
        }
        (How::Many, Some(Consistency::Many)) => How::Many,
        (How::Many, _) => How::Single,
        (how, _) => how,
    }
}

/// Functions of regions whose twins take too much of some node's near memory. Few, and the agent adds: no lock that a worker
/// may fault under.
static CROWDED: [AtomicU64; MAX_CROWDED] = [const { AtomicU64::new(0) }; MAX_CROWDED];

/// On the origin: the region of `function` runs with one writer from now on.
pub(super) fn crowded(function: u64) {
    let free = |place: &&AtomicU64| [0, function].contains(&place.load(Ordering::Relaxed));
    if let Some(place) = CROWDED.iter().find(free) {
        place.store(function, Ordering::Relaxed);
    }
    if let Some(control) = state::control() {
        control.races.crowded(function);
    }
}

fn is_crowded(function: u64) -> bool {
    CROWDED.iter().any(|place| place.load(Ordering::Relaxed) == function)
}

/// What the user wants.
fn consistency() -> Option<Consistency> {
    let wanted = state::control()?.settings.consistency;
    [Consistency::Single, Consistency::Many, Consistency::Smart].into_iter().find(|c| *c as u32 == wanted)
}

static ORDER: Lock<Order> = Lock::new(Order {
    function: 0,
    data: 0,
    call_site: 0,
    threads: 0,
    many: false,
    standard: 0,
    plan: None,
    icv: Icv::initial(1),
});
static BEGUN: AtomicU32 = AtomicU32::new(0);
static GATE: Gate = Gate::new();
static MANY: AtomicBool = AtomicBool::new(false);
static PUBLISHED: AtomicU64 = AtomicU64::new(0);

/// Do many nodes write at once now?
pub(super) fn is_many() -> bool {
    MANY.load(Ordering::Acquire)
}

/// The region that is under way.
pub(super) fn order() -> Order {
    *ORDER.lock()
}

/// Copies invalidated so far, on all nodes, as the origin knows it.
static INVALIDATED: AtomicU64 = AtomicU64::new(0);
/// What it was when the region began.
static BEFORE: AtomicU64 = AtomicU64::new(0);
/// What is known of the regions that may have many writers, by outlined function.
static REGIONS: Lock<BTreeMap<usize, Region>> = Lock::new(BTreeMap::new());

/// The origin's agent had copies invalidated.
pub(super) fn invalidated(count: u64) {
    INVALIDATED.fetch_add(count, Ordering::Relaxed);
}

/// The origin's leader begins a region: all nodes hear of it.
pub(crate) fn begin(order: Order) {
    crate::wrap::stdio::flush_standard();
    super::tls::collect();
    BEFORE.store(INVALIDATED.load(Ordering::Relaxed), Ordering::Relaxed);
    *ORDER.lock() = order;
    MANY.store(order.many, Ordering::Release);
    if let Some(control) = state::control() {
        let races = &control.races;
        (if order.many { &races.checked } else { &races.unchecked }).fetch_add(1, Ordering::Relaxed);
    }
    mail::post(mail::Kind::Region, [0; 3]);
}

/// The last barrier of a region is over: pages have one writer at a time again.
pub(super) fn end() {
    MANY.store(false, Ordering::Release);
}

/// The origin's leader is behind a region: what it cost decides how the next one runs. Not the agent's work, which must not wait
/// for a lock whose holder may fault.
pub(crate) fn judge() {
    if consistency() == Some(Consistency::Smart) {
        let order = order();
        let invalidated = INVALIDATED.load(Ordering::Relaxed) - BEFORE.load(Ordering::Relaxed);
        let (_, nodes) = super::several().unwrap_or((0, 1));
        if let Some(region) = REGIONS.lock().get_mut(&(order.function as usize)) {
            region.ended(u32::try_from(invalidated).unwrap_or(u32::MAX), &Rules::of(order.threads / nodes));
        }
    }
}

/// The agent of another node was told of a region.
pub(super) fn begins(order: Order) {
    crate::wrap::elsewhere::replace(order.standard);
    *ORDER.lock() = order;
    MANY.store(order.many, Ordering::Release);
}

/// It is ready for it.
pub(super) fn arrived() {
    // Other side: the load in `lead`.
    BEGUN.fetch_add(1, Ordering::Release);
    GATE.notify();
}

/// The value that `copyprivate` gives to all: on every node before the barrier that follows.
pub(crate) fn published() -> u64 {
    PUBLISHED.load(Ordering::Acquire)
}

pub(super) fn set_published(value: u64) {
    PUBLISHED.store(value, Ordering::Release);
}

/// Gives a value to all nodes.
pub(crate) fn publish(value: u64) {
    mail::post(mail::Kind::Publish, [value, 0, 0]);
}

/// The worker that leads a node's part of every region, on nodes other than the origin.
pub(crate) extern "C" fn lead(_: *mut c_void) -> *mut c_void {
    let mut done = 0;
    loop {
        // Other side: the addition in `arrived`.
        let begun = move || BEGUN.load(Ordering::Acquire) != done;
        {
            let _blocked = state::SignalsBlocked::new();
            super::duty::help(!crate::futex::is_crowded(), begun);
        }
        GATE.wait_until(begun);
        done = done.wrapping_add(1);
        omp::take_part_of_region(order());
    }
}

/// Workers of this node besides the first thread that lead and are in no crew: on nodes other than the origin one.
pub(crate) fn leaders() -> usize {
    usize::from(!on_origin())
}

/// Is this node the origin?
pub(crate) fn on_origin() -> bool {
    super::several().is_none_or(|(node, _)| node == ORIGIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_is_on_one_node_and_every_node_has_one() {
        for nodes in 1..=16 {
            for threads in nodes..64 {
                let mut next = 0;
                for node in 0..nodes {
                    let (first, count) = part(threads, node, nodes);
                    assert_eq!(first, next);
                    assert!(count > 0);
                    next += count;
                }
                assert_eq!(next, threads);
            }
        }
    }
}
