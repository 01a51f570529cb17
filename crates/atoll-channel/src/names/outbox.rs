//! What one client is to be told and has not fetched yet: bounded for each of its watches, which say so when they lose
//! some.
//!
//! `registry.rs` has one for every client that waits or watches.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::names::entry::{Change, Entry, News, WaiterId, WatchId};

/// A change of entries that other clients' changes share.
enum Item {
    Added(Arc<Entry>),
    Removed(Arc<Entry>, u64),
    Missed(u64),
}

impl Item {
    /// Bytes that it takes in a message, generously.
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

/// What a change takes in a message beside its service and its value: numbers of at most 10 bytes each.
const OVERHEAD: usize = 96;

/// Bytes that an entry takes in a message, generously.
pub(super) fn cost(entry: &Entry) -> usize {
    entry.name.service().len() + entry.value.len() + OVERHEAD
}

/// A client's answers, and its changes, oldest first.
#[derive(Default)]
pub(super) struct Outbox {
    answers: BTreeMap<WaiterId, Arc<Entry>>,
    changes: VecDeque<(WatchId, Item)>,
    /// How many changes of each watch there are; every watch of the client is here.
    queued: HashMap<WatchId, usize>,
}

impl Outbox {
    /// Answers to be fetched.
    pub(super) fn answers(&self) -> usize {
        self.answers.len()
    }

    /// Watches, with or without changes.
    pub(super) fn watches(&self) -> usize {
        self.queued.len()
    }

    /// A waiter's answer.
    pub(super) fn found(&mut self, waiter: WaiterId, entry: Arc<Entry>) {
        self.answers.insert(waiter, entry);
    }

    /// Takes a waiter's answer out.
    pub(super) fn take_answer(&mut self, waiter: WaiterId) -> Option<Entry> {
        self.answers.remove(&waiter).map(Arc::unwrap_or_clone)
    }

    /// From here on there can be changes of this watch.
    pub(super) fn begin(&mut self, watch: WatchId) {
        self.queued.insert(watch, 0);
    }

    /// Forgets a watch and its changes; false if there is none.
    pub(super) fn end(&mut self, watch: WatchId) -> bool {
        self.changes.retain(|(of, _)| *of != watch);
        self.queued.remove(&watch).is_some()
    }

    /// A change of a watch that has at most `most` of them: `entry` was added, or removed by change `removed`.
    pub(super) fn changed(&mut self, watch: WatchId, entry: &Arc<Entry>, removed: Option<u64>, most: usize) {
        let Some(queued) = self.queued.get_mut(&watch) else { return };
        let item = if *queued < most {
            *queued += 1;
            match removed {
                None => Item::Added(entry.clone()),
                Some(serial) => Item::Removed(entry.clone(), serial),
            }
        } else {
            // All of them: those behind a gap would be changes of entries that the client does not know.
            *queued = 0;
            self.changes.retain(|(of, _)| *of != watch);
            Item::Missed(removed.unwrap_or(entry.serial))
        };
        self.changes.push_back((watch, item));
    }

    /// Takes out the oldest changes, some `budget` bytes of them at most, but at least one if there is one; and whether
    /// there are more.
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
