//! A program on several nodes that share no memory: its team spread over them, its pages kept coherent.
//!
//! On node 0, the origin, the program's `main` runs; on the others a process of the same binary stops before `main` and
//! serves. Each node has an agent, a thread of its first process (`agent`), which moves pages by the protocols of
//! `atoll-coherence` (`memory`) over a transport of `atoll-channel` (`peers`); workers ask it through `mail`, and step it
//! themselves while they wait (`duty`). `region` spreads regions, `decide` says how each runs, by its code (`safety`) and by what
//! it took (`measure`), `division` who gets what; `phases` learns what to fetch ahead;
//! `join` finds the others, over a `way`; `locks` and `chunks` are what the origin hands out; `stack` makes the main stack a part
//! of what is kept coherent, `tls` sends the main thread's variables; `races` finds words that two nodes write;
//! `twins` is where twins lie.
//!
//! Source: the Popcorn paper, sections 2 to 4; the barrelfish paper, chapter 7.

pub(crate) mod agent;
mod chunks;
pub(crate) mod decide;
mod direct;
pub(crate) mod division;
mod duty;
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
mod races;
pub(crate) mod region;
mod safety;
pub(crate) mod stack;
pub(crate) mod tls;
mod together;
mod twins;
mod way;
mod wire;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use atoll_memory::control::EXIT_SETUP;

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
/// or more as long as many are left if `guided`.
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

/// All workers of this node are at the barrier from which they go on to `site` (0: not told); returns when those of all nodes
/// were. `last`: it ends the region.
pub(crate) fn barrier(site: usize, last: bool) {
    crate::wrap::stdio::flush_standard();
    crate::wrap::elsewhere::forget();
    measure::barrier(last, || {
        mail::post(mail::Kind::Arrive, [site as u64, last.into(), 0]);
    });
}

/// Ends a program that does in a region over several nodes what cannot be done there.
pub(crate) fn unsupported(what: &str) -> ! {
    let text = format!("{what} cannot be spread over several nodes yet: run this program without --nodes");
    state::give_up(EXIT_SETUP, &text)
}
