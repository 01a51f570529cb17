//! Which pages a node fetches when it enters a region: those that it had to fetch one by one in a run before.
//!
//! One [`Plan`] for each region and node. Who drives it says which pages were read-faulted, which of those fetched ahead
//! were used, and what both cost.
//!
//! Source: the Popcorn paper, sections 3.2 and 4.3. There the first run alone decides; here pages that are no longer used
//! leave the plan, and a plan that costs more than it saves rests (the paper's Hotspot lost 4 %).

use std::collections::BTreeMap;

use crate::merge::Page;

/// Runs in a row without use after which a page leaves.
const UNUSED: u8 = 2;
/// Runs in a row that cost more than they saved after which a plan rests.
const LOSSES: u8 = 3;
/// Runs that it rests.
const REST: u8 = 20;

/// What a run cost, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Costs {
    /// Fetching the plan's pages at the region's entry, waiting for others included.
    pub entry: u64,
    /// One read fault.
    pub fault: u64,
}

/// A region's plan at one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Pages, with the runs in a row in which they were fetched for nothing.
    pages: BTreeMap<Page, u8>,
    losses: u8,
    rests: u8,
    /// The pages were fetched in the run that is under way.
    fetched: bool,
}

impl Plan {
    /// The region begins: the pages to fetch, ascending. Those that are here already need no fetching.
    pub fn enter(&mut self) -> impl Iterator<Item = Page> + '_ {
        self.fetched = self.rests == 0 && !self.pages.is_empty();
        let pages = self.fetched.then_some(&self.pages);
        pages.into_iter().flat_map(BTreeMap::keys).copied()
    }

    /// A worker had to wait for `page` to read it.
    pub fn faulted(&mut self, page: Page) {
        self.pages.entry(page).or_insert(0);
    }

    /// The region ended. `used` says of a page that was fetched ahead whether a worker used it.
    pub fn ended(&mut self, costs: Costs, mut used: impl FnMut(Page) -> bool) {
        if !std::mem::take(&mut self.fetched) {
            self.rests = self.rests.saturating_sub(1);
            return;
        }
        let mut saved = 0;
        self.pages.retain(|page, unused| {
            *unused = if used(*page) { 0 } else { *unused + 1 };
            saved += u64::from(*unused == 0);
            *unused < UNUSED
        });
        let lost = costs.entry > saved.saturating_mul(costs.fault);
        self.losses = if lost { self.losses + 1 } else { 0 };
        if self.losses == LOSSES {
            (self.losses, self.rests) = (0, REST);
        }
    }

    /// Pages in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Nothing was faulted yet, or nothing stayed.
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
        plan.ended(CHEAP, |_| false);
        for _ in 0..2 {
            assert_eq!(plan.enter().collect::<Vec<_>>(), [1, 2, 3]);
            plan.ended(CHEAP, |page| page != 2);
        }
        assert_eq!(plan.enter().collect::<Vec<_>>(), [1, 3]);
        plan.faulted(9);
        plan.ended(CHEAP, |_| true);
        assert_eq!(plan.len(), 3);
    }

    #[test]
    fn a_plan_that_costs_more_than_it_saves_rests_for_a_while() {
        let mut plan = Plan::default();
        plan.enter().count();
        plan.faulted(1);
        let dear = Costs { entry: 1000, fault: 100 };
        plan.ended(dear, |_| true);
        for _ in 0..LOSSES {
            assert_eq!(plan.enter().count(), 1);
            plan.ended(dear, |_| true);
        }
        for _ in 0..REST {
            assert_eq!(plan.enter().count(), 0);
            plan.ended(dear, |_| true);
        }
        assert_eq!(plan.enter().count(), 1);
    }
}
