//! Regions that are spread over several nodes: which run so and how, who gets which threads, and what their constructs need.
//!
//! `parallel` asks `decide` how a region runs, by its code (`safety`) and by what it took (`measure`); `division` says who gets what,
//! `region` carries the order to the other nodes and leads their parts. `served` is what the origin hands out for all nodes, with
//! `chunks`, `singles` and `pools`; `travel` has other nodes execute tasks that are worth it (`worth`), for which `stacks` gives workers stacks that all nodes see;
//! `tls` sends the main thread's variables; `wire` has what the nodes' runtimes say to each other.
//! Pages, barriers and locks are the node's (`atoll-nodes`).
//!
//! Source: the Popcorn paper, section 2; the barrelfish paper, chapter 7.

mod chunks;
pub(crate) mod decide;
pub(crate) mod division;
pub(crate) mod measure;
pub(crate) mod pools;
pub(crate) mod region;
pub(crate) mod safety;
pub(crate) mod served;
mod singles;
pub(crate) mod stacks;
pub(crate) mod tls;
pub(crate) mod travel;
pub(crate) mod wire;
mod worth;

use atoll_nodes::ask;

use served::Service;

/// Takes the program's lock `name`, an address, from all workers of all nodes.
pub(crate) fn lock(name: usize) {
    ask::lock(name);
    crate::wrap::replay::catch_up();
}

/// Iterations of the loop with number `share` for this node, from the origin: up to `chunks` times `chunk`, by the node's speed;
/// or if `guided` one chunk of a guided loop of `chunks` threads.
pub(crate) fn take_chunk(
    share: u64,
    count: u64,
    chunk: u64,
    chunks: u16,
    guided: bool,
) -> Option<(u64, u64)> {
    let first = share << 17 | u64::from(chunks) << 1 | u64::from(guided);
    let [from, to] = served::ask(Service::Chunk, [first, count, chunk]);
    (from < to).then_some((from, to))
}

/// So many of `wanted` threads more than the program has in the region over several nodes that they are `limit` at most; they count
/// from now on.
pub(crate) fn reserve_threads(wanted: u32, limit: u32) -> u32 {
    served::ask(Service::Threads, [wanted.into(), limit.into(), 0])[0] as u32
}

/// So many threads do not count any more.
pub(crate) fn give_back_threads(threads: u32) {
    served::ask(Service::Threads, [0, 0, threads.into()]);
}

/// The calling thread is this node's first at the `single` construct with this number in the region: has it the construct?
pub(crate) fn take_single(number: u64) -> bool {
    served::ask(Service::Single, [number, 0, 0])[0] != 0
}

/// All workers of this node are at the barrier from which they go on to `site` (0: not told); returns true when those of all nodes
/// were, false if a task has come to be executed before. `last`: it ends the region.
pub(crate) fn barrier(site: usize, last: bool) -> bool {
    crate::wrap::stdio::flush_standard();
    crate::wrap::elsewhere::forget();
    let mut open = false;
    measure::barrier(last, || open = ask::barrier(site, last));
    open
}
