//! The origin's table of the program's locks: who has each, who waits.
//!
//! `agent` asks it for workers of all nodes. A lock that nobody has takes no room.

use std::collections::{HashMap, VecDeque};

use crate::program::Who;

#[derive(Default)]
pub(crate) struct Locks {
    /// Locks that are taken, by name, with those who wait.
    taken: HashMap<u64, VecDeque<Who>>,
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
    pub(crate) fn take(&mut self, name: u64, who: Who, wait: bool) -> Taken {
        match self.taken.get_mut(&name) {
            None => {
                self.taken.insert(name, VecDeque::new());
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
        }
        next
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
        assert_eq!(locks.take(8, (0, 3), true), Taken::Yes);
        assert_eq!(locks.give(7), Some((1, 2)));
        assert_eq!(locks.give(7), Some((0, 3)));
        assert_eq!(locks.give(7), None);
        assert_eq!(locks.take(7, (1, 1), false), Taken::Yes);
        assert_eq!(locks.give(9), None);
    }
}
