//! The pages that a node fetches when it enters a region: those that it had to fetch one by one in an earlier run.
//!
//! There is one [`Plan`] for each region and node. The driver tells it which pages were read-faulted, which of the pages
//! fetched ahead were used, and the cost of both.
//!
//! Source: the Popcorn paper, sections 3.2 and 4.3. There the first run alone decides. Here pages that are no longer used leave
//! the plan, those that move along from run to run are added before they are missed (`drift`), and a plan that costs more than
//! it saves rests (the paper's Hotspot lost 4 %).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::drift::Drift;
use crate::merge::Page;

/// The number of successive runs without use after which a page leaves the plan.
const UNUSED: u8 = 2;
/// The number of successive runs with a loss after which a plan rests.
const LOSSES: u8 = 3;
/// The number of runs that it rests.
const REST: u8 = 20;

/// The costs of a run, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Costs {
    /// The cost of fetching the plan's pages at the region's begin, including waiting for other nodes.
    pub entry: u64,
    /// The cost of one read fault.
    pub fault: u64,
}

/// The use of a page of the plan in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The page was here already.
    Here,
    /// The page was fetched, and a worker used it.
    Used,
    /// The page was fetched, and nobody used it.
    Unused,
}

/// A region's plan at one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The pages, each with the number of successive runs in which it was fetched and not used.
    pages: BTreeMap<Page, u8>,
    drift: Drift,
    /// The pages in the plan that were predicted and never missed.
    guessed: Vec<Page>,
    losses: u8,
    rests: u8,
    /// Whether the pages were fetched in the present run.
    fetched: bool,
}

impl Plan {
    /// Begins the region; returns the pages to fetch, ascending. Those that are here already need no fetching.
    pub fn enter(&mut self) -> impl Iterator<Item = Page> + '_ {
        self.fetched = self.rests == 0 && !self.pages.is_empty();
        let pages = self.fetched.then_some(&self.pages);
        pages.into_iter().flat_map(BTreeMap::keys).copied()
    }

    /// Notes that a worker had to wait for `page` to read it.
    pub fn faulted(&mut self, page: Page) {
        if let Entry::Vacant(entry) = self.pages.entry(page) {
            entry.insert(0);
            self.drift.is_new(page);
        }
    }

    /// Ends the region. `fate` is asked for each of its pages.
    pub fn ended(&mut self, costs: Costs, fate: impl Fn(Page) -> Fate) {
        let guessed = std::mem::take(&mut self.guessed);
        if std::mem::take(&mut self.fetched) {
            self.judge(costs, &guessed, fate);
        } else {
            self.rests = self.rests.saturating_sub(1);
            for page in &guessed {
                self.pages.remove(page);
            }
        }
        let expected = self.drift.ended();
        expected.gone.iter().for_each(|page| _ = self.pages.remove(page));
        for page in expected.next {
            if let Entry::Vacant(entry) = self.pages.entry(page) {
                // A single run without use removes the page again.
                entry.insert(UNUSED - 1);
                self.guessed.push(page);
            }
        }
    }

    fn judge(&mut self, costs: Costs, guessed: &[Page], fate: impl Fn(Page) -> Fate) {
        let mut saved = 0;
        for page in guessed {
            match fate(*page) {
                Fate::Used => self.drift.is_new(*page),
                // Nothing shows that the page is needed.
                Fate::Here => _ = self.pages.remove(page),
                Fate::Unused => {}
            }
        }
        self.pages.retain(|page, unused| {
            *unused = if fate(*page) == Fate::Unused { *unused + 1 } else { 0 };
            saved += u64::from(*unused == 0);
            *unused < UNUSED
        });
        let lost = costs.entry > saved.saturating_mul(costs.fault);
        self.losses = if lost { self.losses + 1 } else { 0 };
        if self.losses == LOSSES {
            (self.losses, self.rests) = (0, REST);
        }
    }

    /// The number of pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether the plan is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHEAP: Costs = Costs { entry: 10, fault: 100 };

    #[test]
    fn what_was_faulted_is_fetched_until_it_is_no_longer_used() {
        let mut plan = Plan::default();
        assert_eq!(plan.enter().count(), 0);
        [3, 1, 2].into_iter().for_each(|page| plan.faulted(page));
        plan.ended(CHEAP, |_| Fate::Unused);
        for _ in 0..2 {
            assert_eq!(plan.enter().collect::<Vec<_>>(), [1, 2, 3]);
            plan.ended(CHEAP, |page| if page == 2 { Fate::Unused } else { Fate::Used });
        }
        assert_eq!(plan.enter().collect::<Vec<_>>(), [1, 3]);
        plan.faulted(9);
        plan.ended(CHEAP, |_| Fate::Used);
        assert_eq!(plan.len(), 3);
    }

    #[test]
    fn what_moves_along_is_fetched_before_it_is_missed_and_leaves_when_it_stops() {
        let mut plan = Plan::default();
        for start in [10, 20] {
            plan.enter().count();
            (start..start + 4).for_each(|page| plan.faulted(page));
            plan.ended(CHEAP, |page| if page < 20 { Fate::Unused } else { Fate::Used });
        }
        let fetched = |plan: &mut Plan| plan.enter().filter(|page| *page > 20).collect::<Vec<_>>();
        assert_eq!(fetched(&mut plan), [30, 31, 32, 33]);
        plan.ended(CHEAP, |page| if page < 30 { Fate::Unused } else { Fate::Used });
        assert_eq!(fetched(&mut plan), [40, 41, 42, 43]);
        plan.ended(CHEAP, |_| Fate::Unused);
        assert!(plan.is_empty());
    }

    #[test]
    fn what_is_expected_of_a_run_that_fetches_nothing_is_forgotten() {
        let mut plan = Plan::default();
        for start in [100, 200] {
            (start..start + 3).chain(start + 50..start + 53).for_each(|page| plan.faulted(page));
            plan.ended(CHEAP, |_| Fate::Unused);
        }
        assert_eq!(plan.len(), 12);
        plan.ended(CHEAP, |_| Fate::Unused);
        assert_eq!(plan.len(), 6);
    }

    #[test]
    fn a_plan_that_costs_more_than_it_saves_rests_for_a_while() {
        let mut plan = Plan::default();
        plan.enter().count();
        plan.faulted(1);
        let dear = Costs { entry: 1000, fault: 100 };
        plan.ended(dear, |_| Fate::Used);
        for _ in 0..LOSSES {
            assert_eq!(plan.enter().count(), 1);
            plan.ended(dear, |_| Fate::Used);
        }
        for _ in 0..REST {
            assert_eq!(plan.enter().count(), 0);
            plan.ended(dear, |_| Fate::Used);
        }
        assert_eq!(plan.enter().count(), 1);
    }
}
