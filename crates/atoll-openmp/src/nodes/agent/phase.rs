//! How a phase of the program begins on this node: what it needed the last time is fetched, and then its workers go on.
//!
//! `agent` comes here past a barrier and when a region begins; the plans are those of `phases`.

use atoll_coherence::agent::{Fault, Mode};
use atoll_coherence::copy::State;
use atoll_memory::control::NodeCount;

use super::super::mail::{self, Number};
use super::super::wire::Packet;
use super::super::{ORIGIN, measure, races, region, tls};
use super::Server;
use atoll_memory::futex;

/// Pages of a plan that are fetched at once where near memory is limited.
const MOST_IN_MESSAGES: usize = 64;

/// Who goes on when a phase begins.
pub(super) enum Go {
    /// A worker that waits for an answer.
    Worker(Number),
    /// Who leads this node's part of a region.
    Region,
}

impl Go {
    fn now(self) {
        match self {
            Go::Worker(number) => drop(mail::answer(number, [0; 2])),
            Go::Region => region::arrived(),
        }
    }
}

impl Server {
    /// Has workers go on that waited for pages of this phase, if they waited long enough.
    pub(super) fn let_workers_go(&mut self) {
        if !self.waits_to_go.is_empty() && !self.phases.is_worth_waiting() {
            self.pages.settle();
            std::mem::take(&mut self.waits_to_go).into_iter().for_each(Go::now);
        }
    }

    /// Has workers go on into the phase that has begun: when the few pages are here that they read first.
    pub(super) fn go_on(&mut self, go: Go) {
        if self.phases.is_worth_waiting() {
            self.waits_to_go.push(go);
        } else {
            self.pages.settle();
            go.now();
        }
    }

    /// On the origin: a region begins, on all nodes.
    pub(super) fn begin_region(&mut self, number: Number) {
        let (order, variables) = (region::order(), tls::take());
        self.chunks.restart();
        self.singles.restart();
        let (threads, _) = order.part(ORIGIN);
        self.more_threads = threads.of.saturating_sub(1);
        region::begins_here(&order);
        if !variables.is_empty() {
            self.peers.broadcast(|| Packet::Variables(variables.clone()));
        }
        let actions = crate::wrap::replay::new_actions();
        if !actions.is_empty() {
            self.peers.broadcast(|| Packet::Actions(actions.clone()));
        }
        self.peers.broadcast(|| Packet::Region(order));
        self.watch();
        self.begin_phase(order.key().number());
        self.go_on(Go::Worker(number));
    }

    /// The region that this node was told of begins, once it is past the barrier before.
    pub(super) fn begin_next(&mut self) {
        if self.arrived.is_none()
            && let Some(order) = self.next.take()
        {
            region::begins(order);
            self.watch();
            self.begin_phase(order.key().number());
            self.go_on(Go::Region);
        }
    }

    /// Where races are looked for: another phase begins, or the region is over, and none of this node's workers run. The origin
    /// hears what was found in the last phase.
    pub(super) fn watch(&mut self) {
        let Some(races) = &mut self.pages.races else { return };
        let found = races.take();
        if self.me == ORIGIN {
            races::count(&found);
        } else if !found.is_empty() {
            self.peers.send(ORIGIN, Packet::Races(found));
        }
        let (from, to) = self.agent.layout().reclaim;
        let result = if !region::is_many() {
            self.agent.unwatch(&mut self.pages)
        } else if self.me == ORIGIN {
            let pager = self.pager;
            self.agent.watch((from..to).filter(|page| pager.is_used(*page as u32)), &mut self.pages)
        } else {
            self.agent.watch([], &mut self.pages)
        };
        self.step(result);
    }

    /// Another phase of the program begins: fetches what it needed the last time.
    pub(super) fn begin_phase(&mut self, key: u64) {
        let pager = self.pager;
        // Others may have written what was read here: the barrier has taken it since.
        let taken = std::mem::take(&mut self.pages.used);
        let is_used = |page| pager.is_used(page as u32) || taken.contains(&page);
        let (mut pages, ahead, used) = self.phases.begin(key, is_used);
        self.counts.add(NodeCount::Ahead, ahead);
        self.counts.add(NodeCount::AheadUsed, used);
        // What is thought to come next may be pages of no address.
        pages.retain(|page| self.agent.state(*page) == State::Nothing && pager.stretch(*page).is_some());
        if pager.control().settings.near_bytes != u64::MAX {
            // They are in messages until they are in place, and messages are near memory.
            pages.truncate(MOST_IN_MESSAGES);
        }
        for page in &pages {
            let result = self.agent.fault(*page, Fault::Read, Mode::Single, &mut self.pages);
            self.step(result);
        }
        self.phases.fetching(pages, measure::workers() == 1 && futex::cpus() == 1);
    }
}
