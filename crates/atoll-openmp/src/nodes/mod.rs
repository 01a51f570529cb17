//! A program on several nodes that share no memory: its team spread over them, its pages kept coherent.
//!
//! On node 0, the origin, the program's `main` runs; on the others a process of the same binary stops before `main` and
//! serves. Each node has an agent, a thread of its first process (`agent`), which moves pages by the protocols of
//! `atoll-coherence` (`memory`) over a transport of `atoll-transport` (`peers`); workers ask it through `mail`, and step it
//! themselves while they wait (`duty`). `region` spreads regions, `decide` says how each runs, by its code (`safety`) and by what
//! it took (`measure`), `division` who gets what; `phases` learns what to fetch ahead;
//! `join` finds the others, over a `way`; `locks`, `futexes`, `singles`, `chunks` and `pools` are what the origin hands out; `stack` makes the main stack a part
//! of what is kept coherent, `tls` sends the main thread's variables; `races` finds words that two nodes write;
//! `twins` is where twins lie; `files` are those that the program maps, `calls` are of functions on other nodes.
//!
//! Source: the Popcorn paper, sections 2 to 4; the barrelfish paper, chapter 7.

pub(crate) mod agent;
pub(crate) mod calls;
mod chunks;
pub(crate) mod decide;
mod direct;
pub(crate) mod division;
mod duty;
pub(crate) mod files;
pub(crate) mod futexes;
mod hold;
mod identity;
mod join;
mod kept;
mod locks;
pub(crate) mod mail;
pub(crate) mod measure;
mod memory;
mod peers;
mod phases;
pub(crate) mod pools;
mod races;
pub(crate) mod region;
mod safety;
mod singles;
pub(crate) mod stack;
pub(crate) mod tls;
mod together;
mod twins;
mod way;
mod wire;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use atoll_memory::control::{EXIT_NODE, EXIT_SETUP};

use crate::state;

/// The node on which `main` runs.
pub(crate) const ORIGIN: u32 = 0;

/// This node's number and how many there are, if there are several.
#[inline]
pub(crate) fn several() -> Option<(u32, u32)> {
    let settings = &state::control()?.settings;
    settings.several_nodes().then_some((settings.node, settings.nodes))
}

/// Nodes on this machine, where there are several nodes; else 0.
static HERE: AtomicU32 = AtomicU32::new(0);

/// So many nodes share this machine's CPUs.
fn share_cpus(nodes: u32) {
    HERE.store(nodes, Ordering::Relaxed);
}

/// Does the agent's thread do all of its work, so that it needs a CPU? Else workers that wait do it.
static APART: AtomicBool = AtomicBool::new(true);

fn set_apart(apart: bool) {
    APART.store(apart, Ordering::Relaxed);
}

fn is_apart() -> bool {
    APART.load(Ordering::Relaxed)
}

/// The CPUs that this node's workers have to themselves, of `cpus`: nodes on one machine share them, and each may have an
/// agent apart.
pub(crate) fn cpus(cpus: u32) -> u32 {
    match (active(), HERE.load(Ordering::Relaxed)) {
        (false, _) => cpus,
        (true, nodes) => (cpus / nodes.max(1)).saturating_sub(is_apart().into()),
    }
}

/// Are there several nodes?
#[inline]
pub(crate) fn active() -> bool {
    several().is_some()
}

/// Takes the program's lock `name`, an address, from all workers of all nodes.
pub(crate) fn lock(name: usize) {
    mail::post(mail::Kind::Lock, [name as u64, 0, 0]);
    crate::wrap::replay::catch_up();
}

/// Takes it if nobody has it.
pub(crate) fn try_lock(name: usize) -> bool {
    mail::post(mail::Kind::Lock, [name as u64, 1, 0]) != 0
}

/// Gives it back.
pub(crate) fn unlock(name: usize) {
    mail::post(mail::Kind::Unlock, [name as u64, 0, 0]);
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
    let from = mail::post(
        mail::Kind::Chunk,
        [share << 17 | u64::from(chunks) << 1 | u64::from(guided), count, chunk],
    );
    let to = mail::second();
    (from < to).then_some((from, to))
}

/// So many of `wanted` threads more than the program has in the region over several nodes that they are `limit` at most; they count
/// from now on.
pub(crate) fn reserve_threads(wanted: u32, limit: u32) -> u32 {
    mail::post(mail::Kind::Threads, [wanted.into(), limit.into(), 0]) as u32
}

/// They do not count any more.
pub(crate) fn give_back_threads(threads: u32) {
    mail::post(mail::Kind::Threads, [0, 0, threads.into()]);
}

/// The calling thread is this node's first at the `single` construct with this number in the region: has it the construct?
pub(crate) fn take_single(number: u64) -> bool {
    mail::post(mail::Kind::Single, [number, 0, 0]) != 0
}

/// All workers of this node are at the barrier from which they go on to `site` (0: not told); returns when those of all nodes
/// were. `last`: it ends the region.
pub(crate) fn barrier(site: usize, last: bool) {
    crate::wrap::stdio::flush_standard();
    crate::wrap::elsewhere::forget();
    measure::barrier(last, || {
        mail::post(mail::Kind::Arrive, [site as u64, last.into(), 0]);
    });
}

/// Ends the run, as another node says what makes no sense: whatever it is, that node is none to go on with.
pub(crate) fn nonsense(what: &str) -> ! {
    state::give_up(EXIT_NODE, what)
}

/// Ends a program that does in a region over several nodes what cannot be done there.
pub(crate) fn unsupported(what: &str) -> ! {
    let text = format!("{what} cannot be spread over several nodes yet: run this program without --nodes");
    state::give_up(EXIT_SETUP, &text)
}
