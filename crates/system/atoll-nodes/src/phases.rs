//! The phases of a program, from barrier to barrier: what each node reads of others' in one is fetched ahead in the next of
//! the same kind.
//!
//! `agent` tells it what happens; the plans are `atoll-coherence`'s.
//!
//! Source: the Popcorn paper, sections 3.2 and 4.3. There a region is one phase; here each barrier begins another.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use atoll_coherence::merge::Page;
use atoll_coherence::plan::{Costs, Fate, Plan};

/// So few pages are worth waiting for, as they come sooner than a worker that faults on each would go on.
const FEW: usize = 32;

/// The phases of this node.
pub(crate) struct Phases {
    enabled: bool,
    plans: HashMap<u64, Plan>,
    now: u64,
    began: Instant,
    /// Pages that were fetched ahead in this phase.
    ahead: Vec<Page>,
    /// No worker goes on before all of them are here, as none could compute meanwhile: the agent needs the only CPU.
    in_turn: bool,
    /// Pages that came with one that a worker waited for.
    streamed: Vec<Page>,
    /// Pages fetched ahead that are not here yet.
    flying: HashSet<Page>,
    /// The time from the phase's begin until the last of them was here.
    entry: Duration,
    /// The cost of a fault, as an average that follows.
    fault: Duration,
    asked: HashMap<Page, Instant>,
}

impl Phases {
    pub(crate) fn new(enabled: bool) -> Phases {
        Phases {
            enabled,
            plans: HashMap::new(),
            now: 0,
            began: Instant::now(),
            ahead: Vec::new(),
            in_turn: false,
            streamed: Vec::new(),
            flying: HashSet::new(),
            entry: Duration::ZERO,
            fault: Duration::from_micros(20),
            asked: HashMap::new(),
        }
    }

    /// Another phase begins; `used` says of a page that was fetched ahead whether a worker used it. Returns what to fetch, how
    /// many pages of the last phase were fetched, and how many of these were used.
    pub(crate) fn begin(&mut self, key: u64, used: impl Fn(Page) -> bool) -> (Vec<Page>, u64, u64) {
        if !self.enabled {
            return (Vec::new(), 0, 0);
        }
        let (mut fetched, mut good) = (0, 0);
        let streamed = std::mem::take(&mut self.streamed);
        if let Some(plan) = self.plans.get_mut(&self.now) {
            let ahead: HashSet<Page> = self.ahead.drain(..).collect();
            fetched = ahead.len() as u64;
            good = ahead.iter().filter(|page| used(**page)).count() as u64;
            // Or the next run would wait for one in a while again, from where they stream.
            streamed.into_iter().filter(|page| used(*page)).for_each(|page| plan.faulted(page));
            let costs = Costs { entry: self.entry.as_nanos() as u64, fault: self.fault.as_nanos() as u64 };
            plan.ended(costs, |page| match ahead.contains(&page) {
                false => Fate::Here,
                true if used(page) => Fate::Used,
                true => Fate::Unused,
            });
        }
        self.now = key;
        self.began = Instant::now();
        self.entry = Duration::ZERO;
        self.flying.clear();
        let pages: Vec<Page> = self.plans.entry(key).or_default().enter().collect();
        (pages, fetched, good)
    }

    /// Notes that `pages` are being fetched; `in_turn`: the node has one worker and one CPU.
    pub(crate) fn fetching(&mut self, pages: Vec<Page>, in_turn: bool) {
        self.flying.extend(&pages);
        (self.ahead, self.in_turn) = (pages, in_turn);
    }

    /// `page` is fetched as one before it was waited for.
    pub(crate) fn streams(&mut self, page: Page) {
        if self.enabled {
            self.streamed.push(page);
        }
    }

    /// A worker waits for `page`; `missing`: there is no copy here.
    pub(crate) fn waits(&mut self, page: Page, missing: bool) {
        if self.enabled && missing {
            if let Some(plan) = self.plans.get_mut(&self.now) {
                plan.faulted(page);
            }
            self.asked.entry(page).or_insert_with(Instant::now);
        }
    }

    /// Should workers wait for what is fetched and not all here?
    pub(crate) fn is_worth_waiting(&self) -> bool {
        self.are_waited_for() && !self.flying.is_empty()
    }

    fn are_waited_for(&self) -> bool {
        self.in_turn || self.ahead.len() <= FEW
    }

    /// `page` is here.
    pub(crate) fn came(&mut self, page: Page) {
        if self.flying.remove(&page) {
            // Where workers run meanwhile and others fetch, an eighth of it is this plan's cost.
            self.entry = self.began.elapsed() / if self.are_waited_for() { 1 } else { 8 };
        }
        if let Some(asked) = self.asked.remove(&page) {
            self.fault = (self.fault * 15 + asked.elapsed()) / 16;
        }
    }
}
