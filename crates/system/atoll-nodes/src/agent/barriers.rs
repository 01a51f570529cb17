//! Barriers of all nodes: this node's last worker arrives, and goes on when those of all nodes were there.
//!
//! `asked` brings the arrival, the protocol says when the barrier is over (`step` comes here). What comes meanwhile is `late`'s; what
//! follows a barrier is another phase (`phase`).

use std::time::Instant;

use atoll_memory::control::NodeCount;

use super::Server;
use super::late::Late;
use super::phase::Go;
use crate::ORIGIN;
use crate::mail::{self, Number};
use crate::wire::Packet;

/// The answer to workers at a barrier who have work to do before.
const WORK: [u64; 2] = [1, 0];

/// The barrier at which this node's workers are, or were last.
pub(super) struct Barriers {
    /// The worker that waits for the barrier, for all workers of the node.
    arrived: Option<Number>,
    arrived_at: Instant,
    /// The address at which the workers go on from there; 0 where it is not known.
    site: u64,
    /// The barrier ends the region.
    last: bool,
    /// Work came, for which the workers are to leave as soon as the node does not count as having arrived. Others of them may have
    /// done it by then.
    leaves: bool,
    /// Faults that come while they wait.
    pub(super) late: Late,
}

impl Barriers {
    pub(super) fn new() -> Barriers {
        Barriers {
            arrived: None,
            arrived_at: Instant::now(),
            site: 0,
            last: false,
            leaves: false,
            late: Late::default(),
        }
    }

    /// Are this node's workers at a barrier?
    pub(super) fn waits(&self) -> bool {
        self.arrived.is_some()
    }
}

impl Server {
    /// All workers of this node are at a barrier, from which they go on to `site`; `last`: it ends the region.
    pub(super) fn arrive(&mut self, number: Number, site: u64, last: bool) {
        if self.program.has_work() {
            mail::answer(number, WORK);
            return;
        }
        self.pages.merging = self.phase.many;
        let barrier = &mut self.barriers;
        (barrier.arrived, barrier.arrived_at) = (Some(number), Instant::now());
        (barrier.site, barrier.last) = (site, last);
        // Before this node's arrival: the origin knows when it begins the next region.
        self.tell_if_crowded();
        if last && self.me != ORIGIN {
            // Before what this node wrote: the origin goes on when it has heard of that.
            let peers = &mut self.peers;
            self.program.end_region(&mut |message| peers.send(ORIGIN, Packet::Program(message)));
        }
        let result = self.agent.arrive(&mut self.pages);
        self.step(result);
        self.speak();
    }

    /// Sends what the program has to say to other nodes.
    pub(super) fn speak(&mut self) {
        while let Some((to, message)) = self.program.speak() {
            self.peers.send(to, Packet::Program(message));
        }
    }

    /// Lets this node's workers leave a barrier for work that has come: once the node does not count as having arrived. Whoever gave
    /// the work has not arrived, so that the barrier is not over.
    pub(super) fn leave_for_work(&mut self) {
        if !self.barriers.waits() || !self.program.has_work() {
            return;
        }
        self.barriers.leaves = true;
        if !self.agent.is_out() {
            let result = self.agent.withdraw(&mut self.pages).map(drop);
            self.step(result);
        }
        self.go_to_work();
    }

    /// Lets this node's workers leave the barrier, if they are to and the node does not count as having arrived there.
    pub(super) fn go_to_work(&mut self) {
        if self.barriers.leaves
            && self.agent.is_out()
            && let Some(number) = self.barriers.arrived.take()
        {
            self.barriers.leaves = false;
            self.pages.merging = false;
            mail::answer(number, WORK);
            for question in self.barriers.late.take() {
                self.asked(question);
            }
        }
    }

    /// Lets this node's workers go on if those of all nodes were at the barrier.
    pub(super) fn pass_barrier(&mut self) {
        if !self.agent.released() {
            return;
        }
        let Some(number) = self.barriers.arrived.take() else { return };
        self.barriers.leaves = false;
        self.pages.merging = false;
        self.counts.add(NodeCount::Barriers, 1);
        self.counts.add(NodeCount::BarrierNs, self.barriers.arrived_at.elapsed().as_nanos() as u64);
        let site = self.barriers.site;
        // Before anybody goes on: what is written behind a region has one writer at a time.
        self.phase.pass(site, self.barriers.last);
        self.watch();
        self.begin_phase(site);
        self.go_on(Go::Worker(number));
        self.begin_next();
        for question in self.barriers.late.take() {
            self.asked(question);
        }
    }

    /// Tells the origin if the twins of the region that is under way take too much of this node's near memory.
    fn tell_if_crowded(&mut self) {
        if !std::mem::take(&mut self.pages.crowded) {
            return;
        }
        let code = self.phase.code;
        if self.me == ORIGIN {
            self.program.crowded(code);
        } else {
            self.peers.send(ORIGIN, Packet::Crowded(code));
        }
    }
}
