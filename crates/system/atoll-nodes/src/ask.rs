//! Questions of workers to their node's agent that are not about pages: locks, barriers, regions, the program's end.
//!
//! `mail` carries the questions. `futexes`, `files` and `calls` ask for more. Each function returns when the agent has answered.

use crate::mail::{self, Kind, Service};
use crate::{quick_locks, region};

/// Takes the program's lock `name`, an address, from all workers of all nodes.
pub fn lock(name: usize) {
    if crate::on_origin() && quick_locks::take(name as u64, true) {
        return;
    }
    mail::post(Kind::Origin(Service::Lock), [name as u64, 0, 0]);
}

/// Takes the lock `name` if nobody has it; returns whether it is taken now.
pub fn try_lock(name: usize) -> bool {
    if crate::on_origin() && quick_locks::take(name as u64, false) {
        return true;
    }
    mail::post(Kind::Origin(Service::Lock), [name as u64, 1, 0])[0] != 0
}

/// Gives the lock `name` back.
pub fn unlock(name: usize) {
    if crate::on_origin() && quick_locks::give(name as u64) {
        return;
    }
    mail::post(Kind::Origin(Service::Unlock), [name as u64, 0, 0]);
}

/// Asks the program's part on the origin ([`Program::serve`](crate::Program::serve)) for `what`; returns its answer.
pub fn program(what: u8, words: [u64; 3]) -> [u64; 2] {
    mail::post(Kind::Origin(Service::Program(what)), words)
}

/// All workers of this node are at the barrier from which they go on to `site` (0: not told); returns true when those of all nodes
/// were, false if work has come that is to be done before ([`Program::has_work`](crate::Program::has_work)). `last`: the barrier ends
/// the region.
pub fn barrier(site: usize, last: bool) -> bool {
    mail::post(Kind::Arrive, [site as u64, last.into(), 0])[0] == 0
}

/// The program's part here has something to say to other nodes ([`Program::speak`](crate::Program::speak)).
pub fn speak() {
    mail::post(Kind::Speak, [0; 3]);
}

/// On the origin: all nodes are to begin the region that the program tells them of
/// ([`Program::begin_region`](crate::Program::begin_region)).
pub fn begin_region() {
    mail::post(Kind::Region, [0; 3]);
}

/// On the origin: gives `value` to all nodes, on which [`published`] returns it behind the next barrier.
pub fn publish(value: u64) {
    mail::post(Kind::Publish, [value, 0, 0]);
}

/// The value that a worker of the origin gave to all nodes, on each behind the barrier that follows.
pub fn published() -> u64 {
    region::published()
}

/// The block at `block`, of node `owner`'s heap, is free.
pub fn free(block: usize, owner: u32) {
    mail::post(Kind::Free, [block as u64, owner.into(), 0]);
}

/// On another node than the origin: a worker sends the program `signal`.
pub fn raise(signal: i32) {
    mail::post(Kind::Signal, [signal as u64, 0, 0]);
}

/// The program ends with `status`; `handlers`: what it registered for its end is still to run. Returns on the origin, when the other
/// nodes have ended; on other nodes it does not, as the origin ends the program.
pub fn exit(status: i32, handlers: bool) {
    mail::post(Kind::Exit, [status as u64, handlers.into(), 0]);
}
