//! The news that one client has not fetched yet: bounded for each of its watches, which say so when they lose some.
//!
//! `registry.rs` has one for every client that waits or watches.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::names::entry::{Change, Entry, News, WaiterId, WatchId};

/// News with entries that other clients' news share.
enum Item {
    Found(WaiterId, Arc<Entry>),
    Added(WatchId, Arc<Entry>),
    Removed(WatchId, Arc<Entry>, u64),
    Missed(WatchId, u64),
}

impl Item {
    fn watch(&self) -> Option<WatchId> {
        match self {
            Item::Found(..) => None,
            Item::Added(watch, _) | Item::Removed(watch, ..) | Item::Missed(watch, _) => Some(*watch),
        }
    }

    /// Bytes that it takes in a message, generously.
    fn cost(&self) -> usize {
        match self {
            Item::Found(_, entry) | Item::Added(_, entry) => cost(entry),
            Item::Removed(_, entry, _) => entry.name.service().len() + OVERHEAD,
            Item::Missed(..) => OVERHEAD,
        }
    }

    fn news(self) -> News {
        let whole = |entry: Arc<Entry>| Arc::unwrap_or_clone(entry);
        match self {
            Item::Found(waiter, entry) => News::Found { waiter, entry: whole(entry) },
            Item::Added(watch, entry) => News::Changed { watch, change: Change::Added(whole(entry)) },
            Item::Removed(watch, entry, serial) => {
                News::Changed { watch, change: Change::Removed { name: entry.name.clone(), serial } }
            }
            Item::Missed(watch, up_to) => News::Missed { watch, up_to },
        }
    }
}

/// What a piece of news takes in a message beside its service and its value: numbers of at most 10 bytes each.
const OVERHEAD: usize = 96;

/// Bytes that an entry takes in a message, generously.
pub(super) fn cost(entry: &Entry) -> usize {
    entry.name.service().len() + entry.value.len() + OVERHEAD
}

/// A client's news, oldest first.
#[derive(Default)]
pub(super) struct Outbox {
    items: VecDeque<Item>,
    /// How many changes of each watch are among them; every watch of the client is here.
    queued: HashMap<WatchId, usize>,
    /// Answers among them.
    answers: usize,
}

impl Outbox {
    /// Nothing is to be fetched.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Answers to be fetched.
    pub(super) fn answers(&self) -> usize {
        self.answers
    }

    /// Watches, with or without news.
    pub(super) fn watches(&self) -> usize {
        self.queued.len()
    }

    /// From here on there can be changes of this watch.
    pub(super) fn begin(&mut self, watch: WatchId) {
        self.queued.insert(watch, 0);
    }

    /// Forgets a watch and its changes; false if there is none.
    pub(super) fn end(&mut self, watch: WatchId) -> bool {
        self.items.retain(|item| item.watch() != Some(watch));
        self.queued.remove(&watch).is_some()
    }

    /// A waiter's answer.
    pub(super) fn found(&mut self, waiter: WaiterId, entry: Arc<Entry>) {
        self.answers += 1;
        self.items.push_back(Item::Found(waiter, entry));
    }

    /// Takes a waiter's answer out.
    pub(super) fn take_answer(&mut self, waiter: WaiterId) -> Option<Entry> {
        let at =
            self.items.iter().position(|item| matches!(item, Item::Found(this, _) if *this == waiter))?;
        let Some(Item::Found(_, entry)) = self.items.remove(at) else { return None };
        self.answers -= 1;
        Some(Arc::unwrap_or_clone(entry))
    }

    /// A change of a watch that has at most `most` of them: `entry` was added, or removed by change `removed`.
    pub(super) fn changed(&mut self, watch: WatchId, entry: &Arc<Entry>, removed: Option<u64>, most: usize) {
        let Some(queued) = self.queued.get_mut(&watch) else { return };
        if *queued < most {
            *queued += 1;
            self.items.push_back(match removed {
                None => Item::Added(watch, entry.clone()),
                Some(serial) => Item::Removed(watch, entry.clone(), serial),
            });
        } else {
            // All of it: what is left would be changes of entries that the client does not know.
            *queued = 0;
            self.items.retain(|item| item.watch() != Some(watch));
            self.items.push_back(Item::Missed(watch, removed.unwrap_or(entry.serial)));
        }
    }

    /// Takes out the oldest, at most some `budget` bytes, but at least one if there is one.
    pub(super) fn take(&mut self, mut budget: usize) -> Vec<News> {
        let mut news = Vec::new();
        while let Some(item) = self.items.front() {
            let cost = item.cost();
            if cost > budget && !news.is_empty() {
                break;
            }
            budget = budget.saturating_sub(cost);
            let Some(item) = self.items.pop_front() else { break };
            match &item {
                Item::Found(..) => self.answers -= 1,
                Item::Added(watch, _) | Item::Removed(watch, ..) => {
                    if let Some(queued) = self.queued.get_mut(watch) {
                        *queued -= 1;
                    }
                }
                Item::Missed(..) => {}
            }
            news.push(item.news());
        }
        news
    }
}
