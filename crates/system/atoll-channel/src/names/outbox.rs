//! The outbox of one client: news that it has not fetched yet, bounded for each of its watches, which report when they lose
//! some.
//!
//! `registry.rs` has one for every client that waits or watches.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::names::entry::{Change, Entry, News, WaiterId, WatchId};

/// A change, whose entry is shared with other clients' changes.
enum Item {
    Added(Arc<Entry>),
    Removed(Arc<Entry>, u64),
    Missed(u64),
}

impl Item {
    /// The most bytes that it takes in a message.
    fn cost(&self) -> usize {
        match self {
            Item::Added(entry) => cost(entry),
            Item::Removed(entry, _) => entry.name.service().len() + OVERHEAD,
            Item::Missed(_) => OVERHEAD,
        }
    }

    fn change(self) -> Change {
        match self {
            Item::Added(entry) => Change::Added(Arc::unwrap_or_clone(entry)),
            Item::Removed(entry, serial) => Change::Removed { name: entry.name.clone(), serial },
            Item::Missed(serial) => Change::Missed { serial },
        }
    }
}

/// The most bytes that a change takes in a message besides its service and its value: numbers of at most 10 bytes each.
const OVERHEAD: usize = 96;

/// The most bytes that an entry takes in a message.
pub(super) fn cost(entry: &Entry) -> usize {
    entry.name.service().len() + entry.value.len() + OVERHEAD
}

/// A client's answers, and its changes, oldest first.
#[derive(Default)]
pub(super) struct Outbox {
    answers: BTreeMap<WaiterId, Arc<Entry>>,
    changes: VecDeque<(WatchId, Item)>,
    /// The number of changes of each watch; every watch of the client is in this map.
    queued: HashMap<WatchId, usize>,
}

impl Outbox {
    /// The number of answers to be fetched.
    pub(super) fn answers(&self) -> usize {
        self.answers.len()
    }

    /// The number of watches, with or without changes.
    pub(super) fn watches(&self) -> usize {
        self.queued.len()
    }

    /// Adds a waiter's answer.
    pub(super) fn found(&mut self, waiter: WaiterId, entry: Arc<Entry>) {
        self.answers.insert(waiter, entry);
    }

    /// Removes a waiter's answer.
    pub(super) fn take_answer(&mut self, waiter: WaiterId) -> Option<Entry> {
        self.answers.remove(&waiter).map(Arc::unwrap_or_clone)
    }

    /// Begins a watch, which can have changes from now on.
    pub(super) fn begin(&mut self, watch: WatchId) {
        self.queued.insert(watch, 0);
    }

    /// Removes a watch and its changes; returns false if there is none.
    pub(super) fn end(&mut self, watch: WatchId) -> bool {
        self.changes.retain(|(of, _)| *of != watch);
        self.queued.remove(&watch).is_some()
    }

    /// Adds a change of a watch, which keeps at most `most`: `entry` was added, or removed by change `removed`.
    pub(super) fn changed(&mut self, watch: WatchId, entry: &Arc<Entry>, removed: Option<u64>, most: usize) {
        let Some(queued) = self.queued.get_mut(&watch) else { return };
        let item = if *queued < most {
            *queued += 1;
            match removed {
                None => Item::Added(entry.clone()),
                Some(serial) => Item::Removed(entry.clone(), serial),
            }
        } else {
            // All changes are dropped: those after a gap would be changes of entries that the client does not know.
            *queued = 0;
            self.changes.retain(|(of, _)| *of != watch);
            Item::Missed(removed.unwrap_or(entry.serial))
        };
        self.changes.push_back((watch, item));
    }

    /// Takes out the oldest changes, up to about `budget` bytes but at least one if there is one; also returns whether there
    /// are more.
    pub(super) fn take(&mut self, mut budget: usize) -> (Vec<News>, bool) {
        let mut news = Vec::new();
        while let Some((watch, item)) = self.changes.pop_front() {
            let cost = item.cost();
            if cost > budget && !news.is_empty() {
                self.changes.push_front((watch, item));
                return (news, true);
            }
            budget = budget.saturating_sub(cost);
            if !matches!(item, Item::Missed(_))
                && let Some(queued) = self.queued.get_mut(&watch)
            {
                *queued -= 1;
            }
            news.push(News { watch, change: item.change() });
        }
        (news, false)
    }
}
