//! Regions over several nodes: who gets which threads, and the worker that leads each node's part.
//!
//! `omp::parallel` opens and closes a node's part as any team; the agents carry the order and the barriers.
//!
//! Source: the Popcorn paper, section 2; the barrelfish paper, section 7.2.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use atoll_memory::race_counts::MAX_CROWDED;
use atoll_memory::region_counts::Key;
use serde::{Deserialize, Serialize};

use super::division::{Division, Share};
use super::safety::SinglePhases;
use super::{ORIGIN, mail, measure};
use crate::omp::icv::Icv;
use crate::{omp, state};
use atoll_memory::futex::{Gate, Lock};

/// What a node must know to take part in a region.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The outlined function; what threads call, which is it or calls it; and its argument, a place in the program's memory.
    pub(crate) function: u64,
    pub(crate) entry: u64,
    pub(crate) data: u64,
    /// Where the region was begun from.
    pub(crate) call_site: u64,
    /// See [`Key::extent`].
    pub(crate) extent: u64,
    /// Who has which threads of the team; none before there was a region.
    pub(crate) division: Option<Division>,
    /// Is workers' CPU time wanted?
    pub(crate) cpu: bool,
    /// Has the first thread that comes to a `single` it, on whichever node?
    pub(crate) first_come: bool,
    /// Do many nodes write at once, but in some phases?
    pub(crate) many: bool,
    pub(crate) phases: SinglePhases,
    /// Which of the origin's standard descriptors are other files than before.
    pub(crate) standard: u8,
    /// The loop that the region is: start, step, end, count, chunk, and how it is dealt.
    pub(crate) plan: Option<[u64; 6]>,
    /// The control variables where the region is begun: what the program has set.
    pub(crate) icv: Icv,
    /// `omp_get_num_teams` and `omp_get_team_num`.
    pub(crate) teams: (u32, u32),
}

impl Order {
    /// What tells the region apart.
    pub(crate) fn key(&self) -> Key {
        Key { function: self.function, call_site: self.call_site, extent: self.extent }
    }

    /// Do many nodes write at once in the phase that it begins with?
    fn begins_with_many(&self) -> bool {
        self.many && self.phases.many(self.function).unwrap_or(true)
    }

    /// A node's threads and iterations.
    pub(crate) fn part(&self, node: u32) -> (Share, Share) {
        self.division.map_or_else(Default::default, |all| (all.threads(node), all.iterations(node)))
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

/// Does it?
pub(super) fn is_crowded(function: u64) -> bool {
    CROWDED.iter().any(|place| place.load(Ordering::Relaxed) == function)
}

static ORDER: Lock<Order> = Lock::new(Order {
    function: 0,
    entry: 0,
    data: 0,
    call_site: 0,
    extent: 0,
    division: None,
    cpu: false,
    first_come: false,
    many: false,
    phases: SinglePhases::NONE,
    standard: 0,
    plan: None,
    icv: Icv::initial(1),
    teams: (1, 0),
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

/// How many that were.
pub(super) fn invalidated_so_far() -> u64 {
    INVALIDATED.load(Ordering::Relaxed)
}

/// The origin's agent had copies invalidated.
pub(super) fn invalidated(count: u64) {
    INVALIDATED.fetch_add(count, Ordering::Relaxed);
}

/// The origin's leader begins a region: all nodes hear of it.
pub(crate) fn begin(order: Order) {
    crate::wrap::stdio::flush_standard();
    // The agent's locks.
    super::stack::off_paged(move || {
        super::tls::collect();
        *ORDER.lock() = order;
    });
    if let Some(control) = state::control() {
        let races = &control.races;
        (if order.many { &races.checked } else { &races.unchecked }).fetch_add(1, Ordering::Relaxed);
    }
    mail::post(mail::Kind::Region, [0; 3]);
}

/// All workers are past the barrier that returns to `site`.
pub(super) fn passed(site: u64) {
    let order = order();
    if let Some(many) = order.phases.many(site) {
        MANY.store(order.many && many, Ordering::Release);
    }
}

/// The last barrier of a region is over: pages have one writer at a time again.
pub(super) fn end() {
    MANY.store(false, Ordering::Release);
}

/// The leader of a node's part, of `workers`, begins it.
pub(crate) fn begin_part(workers: u32, cpu: bool) {
    measure::begin(workers, cpu);
}

/// On another node than the origin: the part is over.
pub(crate) fn end_part(key: Key) {
    measure::end(key);
}

/// The origin's agent has all nodes begin it.
pub(super) fn begins_here(order: &Order) {
    MANY.store(order.begins_with_many(), Ordering::Release);
}

/// The agent of another node was told of a region.
pub(super) fn begins(order: Order) {
    crate::wrap::elsewhere::replace(order.standard);
    *ORDER.lock() = order;
    begins_here(&order);
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
            super::duty::help(!atoll_memory::futex::is_crowded(), begun);
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
