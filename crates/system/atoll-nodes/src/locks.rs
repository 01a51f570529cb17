//! The origin's table of the program's locks: who has each, who waits.
//!
//! `agent` asks it for workers of all nodes. A lock that nobody has takes no room. Workers of the origin take locks without it where
//! nobody else wants them (`quick_locks`).

use std::collections::{HashMap, VecDeque};

use crate::program::Who;
use crate::quick_locks as quick;

#[derive(Default)]
pub(crate) struct Locks {
    /// Locks that are taken, by name, with those who wait.
    taken: HashMap<u64, VecDeque<Who>>,
    /// How many of them there are in each slot of `quick_locks`.
    slots: HashMap<usize, u32>,
}

/// The outcome of a request for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    Yes,
    /// Somebody has it, and the asker does not wait.
    No,
    /// The asker will be told.
    Later,
}

impl Locks {
    fn enter(&mut self, name: u64) {
        self.taken.insert(name, VecDeque::new());
        *self.slots.entry(quick::slot(name)).or_default() += 1;
    }

    pub(crate) fn take(&mut self, name: u64, who: Who, wait: bool) -> Taken {
        // Another lock of the slot may be a worker's, which tells the agent when it gives that back.
        quick::close(quick::slot(name)).into_iter().for_each(|held| self.enter(held));
        match self.taken.get_mut(&name) {
            None => {
                self.enter(name);
                Taken::Yes
            }
            Some(waiting) if wait => {
                waiting.push_back(who);
                Taken::Later
            }
            Some(_) => Taken::No,
        }
    }

    /// Gives the lock back; returns who has it now, if somebody waited.
    pub(crate) fn give(&mut self, name: u64) -> Option<Who> {
        let next = self.taken.get_mut(&name)?.pop_front();
        if next.is_none() {
            self.taken.remove(&name);
            let slot = quick::slot(name);
            let left = self.slots.entry(slot).or_default();
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.slots.remove(&slot);
                quick::open(slot);
            }
        }
        next
    }

    /// How many workers of `node` wait for locks.
    pub(crate) fn waiting_of(&self, node: u32) -> usize {
        self.taken.values().flatten().filter(|who| who.0 == node).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_longest_has_it_next() {
        let mut locks = Locks::default();
        assert_eq!(locks.take(7, (0, 1), true), Taken::Yes);
        assert_eq!(locks.take(7, (1, 1), false), Taken::No);
        assert_eq!(locks.take(7, (1, 2), true), Taken::Later);
        assert_eq!(locks.take(7, (0, 3), true), Taken::Later);
        assert_eq!(locks.waiting_of(0), 1);
        assert_eq!(locks.take(8, (0, 3), true), Taken::Yes);
        assert_eq!(locks.give(7), Some((1, 2)));
        assert_eq!(locks.give(7), Some((0, 3)));
        assert_eq!(locks.give(7), None);
        assert_eq!(locks.take(7, (1, 1), false), Taken::Yes);
        assert_eq!(locks.give(9), None);
    }

    #[test]
    fn the_agent_takes_over_what_workers_have_in_the_same_slot() {
        let mut locks = Locks::default();
        let name = 0x5000;
        let beside = (0x5004..).find(|other| quick::slot(*other) == quick::slot(name)).unwrap();
        assert!(quick::take(beside, true) && !quick::take(name, true) && !quick::take(beside, true));
        // Another node takes one of the slot: the worker's is the agent's now, too.
        assert_eq!(locks.take(name, (1, 1), true), Taken::Yes);
        assert!(!quick::take(name, true) && !quick::take(beside, true) && !quick::give(beside));
        assert_eq!(locks.take(beside, (1, 2), true), Taken::Later);
        assert_eq!(locks.give(name), None);
        assert_eq!(locks.give(beside), Some((1, 2)));
        assert!(!quick::take(name, true));
        assert_eq!(locks.give(beside), None);
        assert!(quick::take(name, true) && quick::give(name) && locks.taken.is_empty());
    }
}
