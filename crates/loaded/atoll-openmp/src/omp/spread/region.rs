//! Regions over several nodes: who gets which threads, and the worker that leads each node's part.
//!
//! `parallel` opens and closes a node's part as any team; the nodes' agents carry the order and the barriers.
//!
//! Source: the Popcorn paper, section 2; the barrelfish paper, section 7.2.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use atoll_memory::futex::Lock;
use atoll_memory::race_counts::MAX_CROWDED;
use atoll_memory::region_counts::Key;
use atoll_nodes::region::{Calming, Region, SinglePhases};
use atoll_nodes::{ask, stack};
use serde::{Deserialize, Serialize};

use super::division::{Division, Share};
use super::{measure, wire};
use crate::omp::icv::Icv;
use crate::omp::parallel;
use crate::state;

/// The order to all nodes to take part in a region.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The outlined function; what threads call, which is it or calls it; and its argument, a place in the program's memory.
    pub(crate) function: u64,
    pub(crate) entry: u64,
    pub(crate) data: u64,
    /// The address from which the region was begun.
    pub(crate) call_site: u64,
    /// The extent, as [`Key::extent`].
    pub(crate) extent: u64,
    /// The threads of the team by node; none before there was a region.
    pub(crate) division: Option<Division>,
    /// The workers' CPU time is wanted.
    pub(crate) cpu: bool,
    /// The first thread that comes to a `single` has it, on whichever node.
    pub(crate) first_come: bool,
    /// Its tasks may be executed by other nodes than the one that makes them.
    pub(crate) tasks: bool,
    /// Bits of the origin's standard descriptors that are other files than before.
    pub(crate) standard: u8,
    /// The loop that the region is: start, step, end, count, chunk, and how it is dealt.
    pub(crate) plan: Option<[u64; 6]>,
    /// The control variables where the region is begun: what the program has set.
    pub(crate) icv: Icv,
    /// `omp_get_num_teams` and `omp_get_team_num`.
    pub(crate) teams: (u32, u32),
}

impl Order {
    /// The key that tells the region apart from others.
    pub(crate) fn key(&self) -> Key {
        Key { function: self.function, call_site: self.call_site, extent: self.extent }
    }

    /// A node's threads and iterations.
    pub(crate) fn part(&self, node: u32) -> (Share, Share) {
        self.division.map_or_else(Default::default, |all| (all.threads(node), all.iterations(node)))
    }
}

/// Functions of regions whose twins take too much of some node's near memory. There are few, and the agent adds them: no lock guards
/// them, as a worker could fault while it holds one.
static CROWDED: [AtomicU64; MAX_CROWDED] = [const { AtomicU64::new(0) }; MAX_CROWDED];

/// On the origin: the region of `function` runs with one writer from now on.
pub(crate) fn crowded(function: u64) {
    let free = |place: &&AtomicU64| [0, function].contains(&place.load(Ordering::Relaxed));
    if let Some(place) = CROWDED.iter().find(free) {
        place.store(function, Ordering::Relaxed);
    }
    if let Some(control) = state::control() {
        control.races.crowded(function);
    }
}

/// Does the region of `function` run with one writer, as its twins took too much?
pub(super) fn is_crowded(function: u64) -> bool {
    CROWDED.iter().any(|place| place.load(Ordering::Relaxed) == function)
}

/// The number of nodes that write a page of a region at once: one or many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writers {
    /// Many nodes may, but in some phases.
    pub(crate) many: bool,
    /// The phases in which they may not.
    pub(crate) phases: SinglePhases,
    /// Whether the region is calmed where its pages go to and fro.
    pub(crate) calming: Calming,
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
    tasks: false,
    standard: 0,
    plan: None,
    icv: Icv::initial(1),
    teams: (1, 0),
});
/// On the origin: the writers of the region that is under way.
static WRITERS: Lock<Writers> =
    Lock::new(Writers { many: false, phases: SinglePhases::NONE, calming: Calming::Never });

/// The region that is under way.
pub(crate) fn order() -> Order {
    *ORDER.lock()
}

/// The origin's leader begins a region: all nodes hear of it.
pub(crate) fn begin(order: Order, writers: Writers) {
    crate::wrap::stdio::flush_standard();
    // The agent's locks.
    stack::off_paged(move || {
        super::tls::collect();
        *ORDER.lock() = order;
        *WRITERS.lock() = writers;
    });
    if let Some(control) = state::control() {
        let races = &control.races;
        (if writers.many { &races.checked } else { &races.unchecked }).fetch_add(1, Ordering::Relaxed);
    }
    ask::begin_region();
}

/// The region that the origin's leader begins, for the nodes.
pub(crate) fn describe() -> Region {
    let (order, Writers { many, phases, calming }) = (order(), *WRITERS.lock());
    let (key, code) = (order.key().number(), order.function);
    Region { key, code, many, phases, calming, order: wire::encode(&order) }
}

/// On another node than the origin: the region begins.
pub(crate) fn enter(order: Order) {
    crate::wrap::elsewhere::replace(order.standard);
    *ORDER.lock() = order;
}

/// The leader of a node's part, of `workers`, begins it.
pub(crate) fn begin_part(workers: u32, cpu: bool) {
    measure::begin(workers, cpu);
}

/// On another node than the origin: the part is over.
pub(crate) fn end_part(key: Key) {
    measure::end(key);
}

/// The worker that leads a node's part of every region, on nodes other than the origin.
pub(crate) extern "C" fn lead(_: *mut c_void) -> *mut c_void {
    let mut done = 0;
    loop {
        atoll_nodes::region::wait_for(done);
        done = done.wrapping_add(1);
        parallel::take_part_of_region(order());
    }
}

/// Workers of this node besides the first thread that lead and are in no crew: on nodes other than the origin one.
pub(crate) fn leaders() -> usize {
    usize::from(!atoll_nodes::on_origin())
}
