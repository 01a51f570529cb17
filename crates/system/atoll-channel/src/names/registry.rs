//! A registry: names with their values, look-ups that wait, and watches. No clock, no thread, no system call.
//!
//! Each level of a name service drives one with its clients' requests; `model.rs` compares it with a slow one. A client that
//! waits or watches is not called back: its news are kept for it (`outbox.rs`), and `roused` tells which clients have some. A
//! look-up of one service takes two searches in trees; registering checks every waiter and watch, which `Limits` bound.
//!
//! Source: the barrelfish paper, section 6.8.2.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::names::entry::{Entry, News, Owner, WaiterId, WatchId};
use crate::names::limits::{Limits, MOST_VALUE};
use crate::names::name::Name;
use crate::names::outbox::{Outbox, cost};
use crate::names::pattern::{Pattern, Service};
use atoll_transport::Node;

/// The errors of limits: a client has reached one, or all of them together have.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LimitError {
    /// All clients together have as many entries as allowed.
    #[error("the name service is full: it has {0} entries")]
    Entries(u64),
    /// This client has as many entries as allowed.
    #[error("this client has {0} entries already, and no client may have more")]
    EntriesEach(u64),
    /// This client has as many look-ups as allowed that wait or are answered.
    #[error("this client waits for {0} look-ups already: fetch or cancel some first")]
    Waiters(u64),
    /// This client has as many watches as allowed.
    #[error("this client has {0} watches already: end some first")]
    Watches(u64),
}

/// The reasons why a name was not registered.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RegisterError {
    /// Another client has registered it.
    #[error("{name} is registered already, by {by}")]
    Taken {
        /// The name.
        name: Name,
        /// The name's owner.
        by: Owner,
    },
    /// The name's node is not the one on which the client runs.
    #[error("{name} can only be registered by a process on its own node, and this one is on {owner}")]
    OtherNode {
        /// The name.
        name: Name,
        /// The node on which the client runs.
        owner: Node,
    },
    /// The value is too long.
    #[error("the value of {name} has {length} bytes, and {MOST_VALUE} are allowed")]
    LongValue {
        /// The name.
        name: Name,
        /// The bytes of the value.
        length: u64,
    },
    /// A limit is reached.
    #[error("{0}")]
    Limit(#[from] LimitError),
}

/// The reasons why a name was not unregistered.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum UnregisterError {
    /// The name is not registered.
    #[error("{0} is not registered")]
    NotThere(Name),
    /// The name belongs to another client.
    #[error("{name} was registered by {by}, and only its owner can unregister it")]
    NotYours {
        /// The name.
        name: Name,
        /// The name's owner.
        by: Owner,
    },
}

/// The look-up was answered before, cancelled, or never begun.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[error("no such look-up waits")]
pub struct NoSuchWaiter;

/// The result of a look-up that may wait.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Wait {
    /// There is a match already.
    Found(Entry),
    /// An answer will follow when there is a match.
    Later(WaiterId),
}

/// Some of the entries that match a pattern.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Page {
    /// The entries, ordered by name.
    pub entries: Vec<Entry>,
    /// Whether there are more after the last one.
    pub more: bool,
    /// The registry's last change: the entries include a watch's changes up to this one.
    pub serial: u64,
}

/// The data of a client.
#[derive(Default)]
struct Client {
    names: BTreeSet<Name>,
    waiters: BTreeSet<WaiterId>,
    outbox: Outbox,
}

/// The instances of a service, by node and number.
type Instances = BTreeMap<(Node, u32), Arc<Entry>>;

/// A registry of names.
#[derive(Default)]
pub struct Registry {
    limits: Limits,
    services: BTreeMap<String, Instances>,
    count: usize,
    clients: HashMap<Owner, Client>,
    waiters: BTreeMap<WaiterId, (Owner, Pattern)>,
    watches: BTreeMap<WatchId, (Owner, Pattern)>,
    /// The number of changes so far.
    serial: u64,
    /// The number of waiters and watches so far.
    ids: u64,
    roused: BTreeSet<Owner>,
}

impl Registry {
    /// An empty registry.
    pub fn new(limits: Limits) -> Registry {
        Registry { limits, ..Registry::default() }
    }

    /// Registers `name` for `owner`; returns the change's number. Waiting look-ups that match are answered.
    pub fn register(&mut self, owner: Owner, name: Name, value: Vec<u8>) -> Result<u64, RegisterError> {
        if name.node() != owner.node {
            return Err(RegisterError::OtherNode { name, owner: owner.node });
        }
        if let Some(entry) = self.get(&name) {
            return Err(RegisterError::Taken { by: entry.owner, name });
        }
        if value.len() > MOST_VALUE {
            return Err(RegisterError::LongValue { name, length: value.len() as u64 });
        }
        if self.count >= self.limits.entries {
            return Err(LimitError::Entries(self.limits.entries as u64).into());
        }
        let client = self.clients.entry(owner).or_default();
        if client.names.len() >= self.limits.entries_each {
            return Err(LimitError::EntriesEach(self.limits.entries_each as u64).into());
        }
        client.names.insert(name.clone());
        self.count += 1;
        self.serial += 1;
        let place = (name.node(), name.instance());
        let service = name.service().to_owned();
        let entry = Arc::new(Entry { name, value, owner, serial: self.serial });
        self.services.entry(service).or_default().insert(place, entry.clone());

        self.tell_watches(&entry, None);
        let answered: Vec<WaiterId> =
            self.waiters.iter().filter(|(_, (_, p))| p.matches(&entry.name)).map(|(id, _)| *id).collect();
        for waiter in answered {
            let Some((of, _)) = self.waiters.remove(&waiter) else { continue };
            let Some(client) = self.clients.get_mut(&of) else { continue };
            client.waiters.remove(&waiter);
            client.outbox.found(waiter, entry.clone());
            self.roused.insert(of);
        }
        Ok(self.serial)
    }

    /// Unregisters a name of `owner`; returns the change's number.
    pub fn unregister(&mut self, owner: Owner, name: &Name) -> Result<u64, UnregisterError> {
        match self.get(name) {
            None => Err(UnregisterError::NotThere(name.clone())),
            Some(entry) if entry.owner != owner => {
                Err(UnregisterError::NotYours { name: name.clone(), by: entry.owner })
            }
            Some(_) => {
                if let Some(client) = self.clients.get_mut(&owner) {
                    client.names.remove(name);
                }
                self.remove(name);
                Ok(self.serial)
            }
        }
    }

    /// The first entry that matches, by service, node and instance.
    pub fn look_up(&self, pattern: &Pattern) -> Option<&Entry> {
        self.matching(pattern, None).next().map(|entry| &**entry)
    }

    /// The entries that match, by service, node and instance, after the name `after`: up to about `budget` bytes in a message,
    /// but at least one.
    pub fn look_up_all(&self, pattern: &Pattern, after: Option<&Name>, mut budget: usize) -> Page {
        let mut page = Page { entries: Vec::new(), more: false, serial: self.serial };
        for entry in self.matching(pattern, after) {
            let cost = cost(entry);
            if cost > budget && !page.entries.is_empty() {
                page.more = true;
                break;
            }
            budget = budget.saturating_sub(cost);
            page.entries.push(Entry::clone(entry));
        }
        page
    }

    /// Looks up as `look_up` does; if nothing matches, `owner` gets an answer when something that matches is registered.
    pub fn wait(&mut self, owner: Owner, pattern: Pattern) -> Result<Wait, LimitError> {
        if let Some(entry) = self.look_up(&pattern) {
            return Ok(Wait::Found(entry.clone()));
        }
        let client = self.clients.entry(owner).or_default();
        if client.waiters.len() + client.outbox.answers() >= self.limits.waiters_each {
            return Err(LimitError::Waiters(self.limits.waiters_each as u64));
        }
        self.ids += 1;
        let waiter = WaiterId(self.ids);
        client.waiters.insert(waiter);
        self.waiters.insert(waiter, (owner, pattern));
        Ok(Wait::Later(waiter))
    }

    /// The answer to a waiting look-up of `owner`, which then ends; `None` while nothing matches.
    pub fn answer(&mut self, owner: Owner, waiter: WaiterId) -> Result<Option<Entry>, NoSuchWaiter> {
        let client = self.clients.get_mut(&owner).ok_or(NoSuchWaiter)?;
        match client.outbox.take_answer(waiter) {
            None if client.waiters.contains(&waiter) => Ok(None),
            None => Err(NoSuchWaiter),
            found => Ok(found),
        }
    }

    /// Ends a waiting look-up of `owner`. Returns its answer if that came in the meantime and was not fetched.
    pub fn cancel(&mut self, owner: Owner, waiter: WaiterId) -> Option<Entry> {
        let client = self.clients.get_mut(&owner)?;
        if client.waiters.remove(&waiter) {
            self.waiters.remove(&waiter);
            return None;
        }
        client.outbox.take_answer(waiter)
    }

    /// Begins a watch: from now on `owner` gets news of every change that matches. Also returns the number of the last change
    /// before.
    pub fn watch(&mut self, owner: Owner, pattern: Pattern) -> Result<(WatchId, u64), LimitError> {
        let client = self.clients.entry(owner).or_default();
        if client.outbox.watches() >= self.limits.watches_each {
            return Err(LimitError::Watches(self.limits.watches_each as u64));
        }
        self.ids += 1;
        let watch = WatchId(self.ids);
        client.outbox.begin(watch);
        self.watches.insert(watch, (owner, pattern));
        Ok((watch, self.serial))
    }

    /// Ends a watch of `owner`; news that were not fetched are dropped. Returns false if there is no such watch.
    pub fn unwatch(&mut self, owner: Owner, watch: WatchId) -> bool {
        let theirs = self.clients.get_mut(&owner).is_some_and(|client| client.outbox.end(watch));
        if theirs {
            self.watches.remove(&watch);
        }
        theirs
    }

    /// The oldest news of the watches of `owner`: up to about `budget` bytes in a message, but at least one; and whether there
    /// are more.
    pub fn fetch(&mut self, owner: Owner, budget: usize) -> (Vec<News>, bool) {
        self.clients.get_mut(&owner).map_or((Vec::new(), false), |client| client.outbox.take(budget))
    }

    /// The clients that have had an answer or news since the last call.
    pub fn roused(&mut self) -> BTreeSet<Owner> {
        std::mem::take(&mut self.roused)
    }

    /// Removes a client that is gone: its entries, which watches report, its look-ups and its watches.
    pub fn owner_gone(&mut self, owner: Owner) {
        let Some(client) = self.clients.remove(&owner) else { return };
        for waiter in &client.waiters {
            self.waiters.remove(waiter);
        }
        self.watches.retain(|_, (of, _)| *of != owner);
        self.roused.remove(&owner);
        for name in &client.names {
            self.remove(name);
        }
    }

    /// Removes all clients of a node that is gone.
    pub fn node_gone(&mut self, node: Node) {
        let mut gone: Vec<Owner> = self.clients.keys().filter(|owner| owner.node == node).copied().collect();
        // Sorted, so that changes come in an order that does not depend on a hash.
        gone.sort_unstable();
        for owner in gone {
            self.owner_gone(owner);
        }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn get(&self, name: &Name) -> Option<&Arc<Entry>> {
        self.services.get(name.service())?.get(&(name.node(), name.instance()))
    }

    /// Removes an entry from the services alone, and notifies the watches.
    fn remove(&mut self, name: &Name) {
        let Some(instances) = self.services.get_mut(name.service()) else { return };
        let Some(entry) = instances.remove(&(name.node(), name.instance())) else { return };
        if instances.is_empty() {
            self.services.remove(name.service());
        }
        self.count -= 1;
        self.serial += 1;
        self.tell_watches(&entry, Some(self.serial));
    }

    fn tell_watches(&mut self, entry: &Arc<Entry>, removed: Option<u64>) {
        for (watch, (owner, pattern)) in &self.watches {
            if !pattern.matches(&entry.name) {
                continue;
            }
            let Some(client) = self.clients.get_mut(owner) else { continue };
            client.outbox.changed(*watch, entry, removed, self.limits.changes_each);
            self.roused.insert(*owner);
        }
    }

    /// The entries that match, in order, after the name `after`.
    fn matching(&self, pattern: &Pattern, after: Option<&Name>) -> impl Iterator<Item = &Arc<Entry>> {
        let (service, node, instance) = pattern.parts();
        let (first, last) = match service {
            Service::Exactly(service) => (service.as_str(), Some(service.as_str())),
            Service::Beginning(prefix) => (prefix.as_str(), None),
        };
        let from = after.map_or(first, |after| after.service().max(first));
        // The map panics on a range that ends before it begins.
        let any = last.is_none_or(|last| from <= last);
        let range = (Bound::Included(from), last.map_or(Bound::Unbounded, Bound::Included));
        let services = any.then(|| self.services.range::<str, _>(range)).into_iter().flatten();
        let ((low, high), (least, most)) = (node.range(), instance.range());
        services
            .take_while(move |(service, _)| service.starts_with(first))
            .flat_map(move |(_, instances)| instances.range((Node(low), least)..=(Node(high), most)))
            // If the pattern has any node, the range contains other instances, too.
            .filter(move |((_, instance), _)| (least..=most).contains(instance))
            .map(|(_, entry)| entry)
            .filter(move |entry| after.is_none_or(|after| entry.name > *after))
    }
}
