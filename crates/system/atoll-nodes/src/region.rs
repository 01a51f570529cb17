//! Regions as a node sees them: what it must know of one to take part, and how the worker that leads its part waits for it.
//!
//! The program describes a region on the origin ([`Program`](crate::Program)); the agents carry that to all nodes.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use atoll_memory::futex::{self, Gate};
use atoll_memory::managed;
use atoll_memory::signals::SignalsBlocked;
use serde::{Deserialize, Serialize};

use crate::{duty, stack};

/// Phases of a region that can be told apart.
const MOST_PHASES: usize = 8;

/// The phases of a region with many writers that have one at a time: addresses at which phases begin, where a barrier returns to or
/// the region's code begins. There are none if all phases have many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SinglePhases {
    begins: [u64; MOST_PHASES],
    /// Bits of the phases that have one writer.
    single: u8,
}

impl SinglePhases {
    /// All phases have many writers.
    pub const NONE: SinglePhases = SinglePhases { begins: [0; MOST_PHASES], single: 0 };

    /// Made from the address at which each phase begins, and whether it has one writer. None if no phase has many writers, or there are
    /// too many phases.
    pub fn of(phases: impl ExactSizeIterator<Item = (u64, bool)>) -> Option<SinglePhases> {
        let (mut all, count) = (SinglePhases::NONE, phases.len() as u32);
        for (at, (begin, single)) in phases.enumerate() {
            *all.begins.get_mut(at)? = begin;
            all.single |= u8::from(single) << at;
        }
        (all.single.count_ones() < count).then_some(all)
    }

    /// May many nodes write at once in the phase that begins at `begin`? None where that is not known: then as before it.
    pub fn many(&self, begin: u64) -> Option<bool> {
        let at = self.begins.iter().position(|other| begin != 0 && *other == begin)?;
        Some(self.single & (1 << at) == 0)
    }
}

/// Whether a region is calmed (`hold`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Calming {
    /// It is not, whatever its pages do.
    #[default]
    Never,
    /// It is as soon as its pages go to and fro.
    Watched,
    /// It is from the beginning.
    AtOnce,
}

/// A region, as far as a node must know it to take part in it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Region {
    /// Tells the region apart from others: what its phases fetch ahead is learnt for it.
    pub key: u64,
    /// The address of its code.
    pub code: u64,
    /// Many nodes may write a page at once, but in some phases.
    pub many: bool,
    /// The phases in which they may not.
    pub phases: SinglePhases,
    /// Whether it is calmed.
    pub calming: Calming,
    /// The program's order to its parts, in bytes that only it understands.
    #[serde(with = "serde_bytes")]
    pub order: Vec<u8>,
}

impl Region {
    /// Do many nodes write at once in the phase that the region begins with?
    pub(crate) fn begins_with_many(&self) -> bool {
        self.many && self.phases.many(self.code).unwrap_or(true)
    }
}

/// Regions that this node was told of, on nodes other than the origin.
static BEGUN: AtomicU32 = AtomicU32::new(0);
static GATE: Gate = Gate::new();

/// The agent's side: this node is ready for the region that it was told of.
pub(crate) fn arrived() {
    // Other side: the load in `wait_for`.
    BEGUN.fetch_add(1, Ordering::Release);
    GATE.notify();
}

/// The worker that leads this node's part of every region, on nodes other than the origin, waits until there is one more than the
/// `done` that it has led.
pub fn wait_for(done: u32) {
    // Other side: the addition in `arrived`.
    let begun = move || BEGUN.load(Ordering::Acquire) != done;
    let _blocked = SignalsBlocked::new();
    duty::help(!futex::is_crowded(), begun);
    // Workers of such nodes leave signals to their helpers, so that nobody waits for this one to take them.
    duty::parked(|| GATE.wait_until(begun));
}

/// Runs `wait`, in which a worker touches no paged memory: what its node loses meanwhile is unmapped in its page table when the wait is
/// over. The first process of a node and workers with paged stacks wait as they are: handlers of the program's may run there.
pub fn wait_parked<R>(wait: impl FnOnce() -> R) -> R {
    let _parked = (crate::active() && managed::table() != 0 && !stack::is_given()).then(duty::Parked::new);
    wait()
}

/// Workers of this node's part of the region that began last.
static WORKERS: AtomicU32 = AtomicU32::new(1);

/// Notes that this node's part of a region, which its leader begins, has so many workers.
pub fn set_workers(workers: u32) {
    WORKERS.store(workers.max(1), Ordering::Relaxed);
}

/// Workers of this node's part of the region that began last.
pub fn workers() -> u32 {
    WORKERS.load(Ordering::Relaxed)
}

/// Copies invalidated so far, on all nodes, as the origin knows it.
static INVALIDATED: AtomicU64 = AtomicU64::new(0);

/// Copies invalidated so far on all nodes, as the origin knows it.
pub fn invalidated_so_far() -> u64 {
    INVALIDATED.load(Ordering::Relaxed)
}

/// The origin's agent had copies invalidated.
pub(crate) fn invalidated(count: u64) {
    INVALIDATED.fetch_add(count, Ordering::Relaxed);
}

/// The pages of the region that is under way, or ran last, went to and fro between nodes.
static THRASHED: AtomicBool = AtomicBool::new(false);

/// Did the pages of the region that ran last go to and fro between nodes? Known on the origin.
pub fn has_thrashed() -> bool {
    THRASHED.load(Ordering::Relaxed)
}

pub(crate) fn set_thrashed(thrashed: bool) {
    THRASHED.store(thrashed, Ordering::Relaxed);
}

/// The value that a worker gave to all nodes last.
static PUBLISHED: AtomicU64 = AtomicU64::new(0);

pub(crate) fn published() -> u64 {
    PUBLISHED.load(Ordering::Acquire)
}

pub(crate) fn set_published(value: u64) {
    PUBLISHED.store(value, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_that_synchronise_have_one_writer_and_others_many() {
        let phases = SinglePhases::of([(10, false), (20, true)].into_iter());
        let asked = phases.map(|phases| [10, 20, 30, 0].map(|at| phases.many(at)));
        assert_eq!(asked, Some([Some(true), Some(false), None, None]));
        assert_eq!(SinglePhases::of([(10, true)].into_iter()), None);
        assert_eq!(SinglePhases::of((1..=9).map(|at| (at, false)).collect::<Vec<_>>().into_iter()), None);
        let region = Region {
            key: 1,
            code: 20,
            many: true,
            phases: phases.unwrap_or_default(),
            calming: Calming::Never,
            order: vec![],
        };
        assert!(!region.begins_with_many() && Region { code: 30, ..region }.begins_with_many());
    }
}
