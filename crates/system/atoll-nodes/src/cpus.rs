//! The CPUs of a node: nodes of one machine share them, and each may have an agent that needs one.
//!
//! `join` and `meeting` say how it is; the runtime asks for how long its workers may spin.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Nodes on this machine, where there are several nodes; else 0.
static HERE: AtomicU32 = AtomicU32::new(0);

/// Says how many nodes share this machine's CPUs.
pub(crate) fn share(nodes: u32) {
    HERE.store(nodes, Ordering::Relaxed);
}

/// The agent's thread does all of the agent's work, so that it needs a CPU. Else workers that wait do it.
static APART: AtomicBool = AtomicBool::new(true);

pub(crate) fn set_apart(apart: bool) {
    APART.store(apart, Ordering::Relaxed);
}

pub(crate) fn is_apart() -> bool {
    APART.load(Ordering::Relaxed)
}

/// The CPUs that this node's workers have to themselves, of `cpus`: nodes on one machine share them, and each may have an
/// agent apart.
pub fn of_workers(cpus: u32) -> u32 {
    match (super::active(), HERE.load(Ordering::Relaxed)) {
        (false, _) => cpus,
        (true, nodes) => (cpus / nodes.max(1)).saturating_sub(is_apart().into()),
    }
}

/// The CPUs that this process may use.
pub fn available() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}
