//! What it was worth that other nodes executed tasks: which kinds of tasks go there, and how many at once.
//!
//! `travel`'s agent asks it before it gives a task away, and tells it what came of that. A task is worth giving if the time that
//! another node computed for it is longer than what its pages and messages cost. That is known by trying: a kind of which nothing is
//! known has one task at each node at most. A kind that lost rests for many times what it cost, so that all trials together cost a small
//! share of the program's time; twice as long after each further loss. All kinds rest where this node waited for pages, which others
//! had taken, longer than others computed for it.
//!
//! Tasks are told apart by their code and by how deep they are nested: a recursion's outer tasks are large and its inner ones small. The
//! largest are tried first. Inner tasks first, and outer ones only where the inner were worth their pages, saved Fourier transforms half of
//! what they lose, and cost sorts a fifth of their time: the trials took pages out of the middle of what the node worked on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A kind of task: the address of its code, and the number of explicit tasks that it is nested in.
pub(super) type Kind = (u64, u32);

/// The time that a task took at another node, in nanoseconds, with all tasks that it made and waited for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct Took {
    /// From its beginning to its end.
    pub(crate) ran: u64,
    /// That part of it for which its worker waited for pages.
    pub(crate) stalled: u64,
    /// The number of pages that came for it.
    pub(crate) pages: u64,
}

/// The messages of one task that goes away and is done: two, and what both agents do, in nanoseconds.
const TRIP: u64 = 30_000;
/// What a page that comes for a task costs in nanoseconds besides the worker's wait: the work of both agents.
const PAGE: u64 = 6_000;
/// A kind rests so many times the time that it cost.
const RESTS: u64 = 20;
/// The longest rest, in nanoseconds.
const LONGEST: u64 = 2_000_000_000;
/// Tasks of so many nanoseconds together are given to a worker at once, so that it seldom has to ask for more.
const ENOUGH: u64 = 4_000_000;
/// The least time, in nanoseconds, over which what others computed is compared with this node's waiting.
const WINDOW: u64 = 4_000_000;

/// A time of rest after losses, longer after each.
#[derive(Clone, Copy, Default, Debug)]
struct Rest {
    until: u64,
    length: u64,
}

impl Rest {
    fn begin(&mut self, now: u64, cost: u64) {
        self.length = (2 * self.length).max(RESTS * cost).min(LONGEST);
        self.until = now + self.length;
    }
}

#[derive(Default, Debug)]
struct Known {
    /// Tasks given to a worker at once; 0: they are not known to be worth it.
    at_once: u32,
    rest: Rest,
    /// Tasks that are away, by node.
    away: BTreeMap<u32, u32>,
}

/// What is known of all kinds.
#[derive(Default, Debug)]
pub(super) struct Worth {
    kinds: BTreeMap<Kind, Known>,
    /// The nanoseconds that others computed, and that this node waited for pages, since these were compared last.
    gained: u64,
    lost: u64,
    rest: Rest,
    /// The nanoseconds for which this node had waited for other nodes' pages when a task came back last.
    waited: Option<u64>,
}

impl Worth {
    /// The number of tasks of `kind` that a node may have in addition, for each of its workers that idles; 0 if they are not known
    /// to be worth it.
    pub(super) fn at_once(&self, kind: Kind, now: u64) -> u32 {
        match self.kinds.get(&kind) {
            Some(known) if now >= self.rest.until.max(known.rest.until) => known.at_once,
            _ => 0,
        }
    }

    /// Is it to be tried whether tasks of `kind` are worth it at `node`?
    pub(super) fn may_try(&mut self, (code, depth): Kind, node: u32, now: u64) -> bool {
        if now < self.rest.until {
            return false;
        }
        // Inner tasks are hardly larger than those around them.
        let outer = self.kinds.range((code, 0)..(code, depth)).next_back();
        let rest = outer.map(|(_, outer)| outer.rest).unwrap_or_default();
        let known = self.kinds.entry((code, depth)).or_insert(Known { rest, ..Known::default() });
        now >= known.rest.until && known.at_once == 0 && !known.away.contains_key(&node)
    }

    /// A task of `kind` goes to `node`.
    pub(super) fn goes(&mut self, kind: Kind, node: u32) {
        *self.kinds.entry(kind).or_default().away.entry(node).or_default() += 1;
    }

    /// A task of `kind` is not at `node` any more, which has not begun it.
    pub(super) fn is_back(&mut self, kind: Kind, node: u32) {
        if let Some(known) = self.kinds.get_mut(&kind)
            && let Some(count) = known.away.get_mut(&node)
        {
            *count -= 1;
            if *count == 0 {
                known.away.remove(&node);
            }
        }
    }

    /// `node` has executed a task of `kind`. Until now this node has waited `waited` nanoseconds for pages of others.
    pub(super) fn is_done(&mut self, kind: Kind, node: u32, took: Took, (now, waited): (u64, u64)) {
        self.is_back(kind, node);
        let gain = took.ran.saturating_sub(took.stalled);
        let cost = took.stalled + PAGE * took.pages + TRIP;
        let known = self.kinds.entry(kind).or_default();
        if gain > cost {
            known.rest.length = 0;
            let enough = ENOUGH.div_ceil(took.ran.max(1)).min(super::travel::MOST as u64) as u32;
            known.at_once = (2 * known.at_once).clamp(1, enough);
        } else {
            known.rest.begin(now, cost);
            known.at_once = 0;
        }
        let before = self.waited.replace(waited).unwrap_or(waited);
        self.gained += gain;
        self.lost += waited.saturating_sub(before);
        if self.gained + self.lost < WINDOW {
            return;
        }
        if self.gained < self.lost {
            self.rest.begin(now, self.lost);
            self.waited = None;
        } else {
            self.rest.length = 0;
        }
        (self.gained, self.lost) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = (0x1000, 1);
    const LONG: Took = Took { ran: 2_000_000, stalled: 100_000, pages: 10 };
    const SHORT: Took = Took { ran: 10_000, stalled: 9_000, pages: 1 };

    #[test]
    fn a_kind_of_which_nothing_is_known_has_one_task_at_each_node() {
        let mut worth = Worth::default();
        assert!(worth.may_try(KIND, 1, 0));
        worth.goes(KIND, 1);
        assert!(!worth.may_try(KIND, 1, 1) && worth.may_try(KIND, 2, 1));
        worth.is_back(KIND, 1);
        assert!(worth.may_try(KIND, 1, 2) && worth.at_once(KIND, 2) == 0);
        worth.goes(KIND, 1);
        for at_once in [1, 2, 2] {
            worth.is_done(KIND, 1, LONG, (3, 0));
            assert_eq!((worth.at_once(KIND, 4), worth.may_try(KIND, 1, 4)), (at_once, false));
        }
    }

    #[test]
    fn small_tasks_cost_a_small_share_of_the_time() {
        let (mut worth, mut now, mut tried, mut cost) = (Worth::default(), 0, 0, 0);
        while now < 10_000_000_000 {
            // Ten depths of one recursion.
            for depth in 0..10 {
                if worth.may_try((0x1000, depth), 1, now) {
                    worth.goes((0x1000, depth), 1);
                    now += SHORT.ran;
                    worth.is_done((0x1000, depth), 1, SHORT, (now, 0));
                    (tried, cost) = (tried + 1, cost + PAGE + TRIP);
                }
            }
            now += 100_000;
        }
        assert!(tried > 1 && cost < now / 1000, "{tried} trials cost {cost} ns");
    }

    #[test]
    fn all_kinds_rest_where_this_node_waits_longer_than_others_compute() {
        let mut worth = Worth::default();
        let mut now = 0;
        for turn in 0..10 {
            worth.goes(KIND, 1);
            now += LONG.ran;
            worth.is_done(KIND, 1, LONG, (now, turn * 3 * LONG.ran));
        }
        assert_eq!(worth.at_once(KIND, now), 0);
        assert!(!worth.may_try((0x2000, 0), 1, now) && worth.may_try((0x2000, 0), 1, now + LONGEST));
    }
}
