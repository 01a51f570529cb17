//! Locks of the program that workers of the origin take and give back without their agent, as long as nobody waits for them and no
//! other node asks.
//!
//! `ask` comes here first. `locks`, the agent's table, takes over the lock that it is asked for, together with those that share its
//! slot: from then on the agent has them all, until none of them is taken.
//!
//! Rules: statics only, which all workers of the node share; no locks, no allocation.

use std::sync::atomic::{AtomicU64, Ordering};

const SLOTS: usize = 4096;
/// No lock of the slot is taken.
const FREE: u64 = 0;
/// The agent has the slot's locks. Other values are the name of the one lock that a worker of the origin has; names are addresses.
const AGENT: u64 = 1;
/// A worker looks so often whether the lock is given back before it asks the agent.
const LOOKS: u32 = 200;

static TAKEN: [AtomicU64; SLOTS] = [const { AtomicU64::new(FREE) }; SLOTS];

/// The slot of the lock `name`.
pub(crate) fn slot(name: u64) -> usize {
    (name.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize % SLOTS
}

/// A worker of the origin takes the lock, looking for a while if `patient`; `false`: it is to ask the agent.
pub(crate) fn take(name: u64, patient: bool) -> bool {
    let word = &TAKEN[slot(name)];
    for _ in 0..if patient { LOOKS } else { 1 } {
        // Other side: the exchange in `give`.
        match word.compare_exchange(FREE, name, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(holder) if holder == name => std::hint::spin_loop(),
            Err(_) => return false,
        }
    }
    false
}

/// A worker of the origin gives the lock back; `false`: the agent has it, which is to be told.
pub(crate) fn give(name: u64) -> bool {
    TAKEN[slot(name)].compare_exchange(name, FREE, Ordering::Release, Ordering::Relaxed).is_ok()
}

/// The agent has the locks of `slot` from now on; returns the name of the one that a worker has.
pub(crate) fn close(slot: usize) -> Option<u64> {
    let holder = TAKEN[slot].swap(AGENT, Ordering::AcqRel);
    (holder != FREE && holder != AGENT).then_some(holder)
}

/// Nobody has any of the locks of `slot`, which the agent had: workers may take them.
pub(crate) fn open(slot: usize) {
    TAKEN[slot].store(FREE, Ordering::Release);
}
