//! Regions and phases that begin on a node: the pages that it needed the last time are fetched ahead, and its workers go on.
//!
//! `asked` comes here on the origin and `heard` on other nodes; `barriers` when one is over. The plans are `phases`'.

use atoll_coherence::agent::{Fault, Mode};
use atoll_coherence::copy::State;
use atoll_memory::control::NodeCount;
use atoll_memory::futex;

use super::Server;
use crate::mail::{self, Number};
use crate::phases::Phases;
use crate::region::{Region, SinglePhases};
use crate::wire::Packet;
use crate::{ORIGIN, nonsense, races, region};

/// Pages of a plan that are fetched at once where near memory is limited.
const MOST_IN_MESSAGES: usize = 64;

/// A worker that goes on when a phase begins.
pub(super) enum Go {
    /// A worker that waits for an answer.
    Worker(Number),
    /// The worker that leads this node's part of a region.
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

/// The region and the phase that are under way.
pub(super) struct Phase {
    pub(super) phases: Phases,
    /// Many nodes may write a page at once now.
    pub(super) many: bool,
    /// They may in this region, but in the phases of `single`.
    many_in_region: bool,
    single: SinglePhases,
    /// The region's code.
    pub(super) code: u64,
    /// A region that has begun elsewhere.
    pub(super) next: Option<Region>,
    /// The worker that begins a region, as soon as nothing is under way that was asked for before.
    pub(super) begins: Option<Number>,
    /// Workers that go on when the pages are here that they read first.
    waits_to_go: Vec<Go>,
}

impl Phase {
    /// `ahead`: pages are fetched ahead.
    pub(super) fn new(ahead: bool) -> Phase {
        Phase {
            phases: Phases::new(ahead),
            many: false,
            many_in_region: false,
            single: SinglePhases::NONE,
            code: 0,
            next: None,
            begins: None,
            waits_to_go: Vec::new(),
        }
    }

    fn enter(&mut self, region: &Region) {
        (self.many_in_region, self.single, self.code) = (region.many, region.phases, region.code);
        self.many = region.begins_with_many();
    }

    /// All nodes' workers are past the barrier that returns to `site`; `last`: it ended the region, so pages have one writer at a time
    /// again.
    pub(super) fn pass(&mut self, site: u64, last: bool) {
        if last {
            self.many = false;
        } else if let Some(many) = self.single.many(site) {
            self.many = self.many_in_region && many;
        }
    }
}

impl Server {
    /// Lets workers go on that waited for pages of this phase, if they waited long enough.
    pub(super) fn let_workers_go(&mut self) {
        if !self.phase.waits_to_go.is_empty() && !self.phase.phases.is_worth_waiting() {
            self.pages.settle();
            std::mem::take(&mut self.phase.waits_to_go).into_iter().for_each(Go::now);
        }
    }

    /// Lets workers go on into the phase that has begun, when the few pages are here that they read first.
    pub(super) fn go_on(&mut self, go: Go) {
        if self.phase.phases.is_worth_waiting() {
            self.phase.waits_to_go.push(go);
        } else {
            self.pages.settle();
            go.now();
        }
    }

    /// On the origin: a region begins, on all nodes.
    pub(super) fn begin_region(&mut self, number: Number) {
        let peers = &mut self.peers;
        let region = self.program.begin_region(&mut |message| {
            peers.broadcast(|| Packet::Program(message.clone()));
        });
        self.enter(&region);
        self.peers.broadcast(|| Packet::Region(region.clone()));
        self.watch();
        self.begin_phase(region.key);
        self.go_on(Go::Worker(number));
    }

    /// Begins the region that this node was told of, if the node is past the barrier before.
    pub(super) fn begin_next(&mut self) {
        if !self.barriers.waits()
            && let Some(region) = self.phase.next.take()
        {
            self.enter(&region);
            if !self.program.enter_region(&region) {
                nonsense("the origin begins a region that there cannot be");
            }
            self.watch();
            self.begin_phase(region.key);
            self.go_on(Go::Region);
        }
    }

    fn enter(&mut self, region: &Region) {
        self.phase.enter(region);
        self.watch_for_thrashing(region.calming);
        if let Some(races) = &mut self.pages.races {
            races.code = region.code;
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
        let result = if !self.phase.many {
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
        let (mut pages, ahead, used) = self.phase.phases.begin(key, is_used);
        self.counts.add(NodeCount::Ahead, ahead);
        self.counts.add(NodeCount::AheadUsed, used);
        // What is thought to come next may be pages of no address.
        pages.retain(|page| self.agent.state(*page) == State::Nothing && pager.stretch(*page).is_some());
        if pager.control().settings.near_bytes != u64::MAX {
            // They are in messages until they are in place, and messages are near memory.
            pages.truncate(MOST_IN_MESSAGES);
        }
        for page in &pages {
            let result = self.agent.fault(*page, Fault::Read, Mode::OneWriter, &mut self.pages);
            self.step(result);
        }
        self.phase.phases.fetching(pages, region::workers() == 1 && futex::cpus() == 1);
    }
}
