//! A registry: names and what they stand for, look-ups that wait, and watches. No clock, no thread, no system call.
//!
//! Each level of a name service drives one with its clients' requests; `model.rs` compares it with a slow one. Who
//! waits or watches is not called back: its news are kept for it (`outbox.rs`), and `roused` says who has some. A look-up
//! of one service takes two searches in trees; registering looks at every waiter and watch, which `Limits` bound.
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

/// A client has, or all of them have, as much as is allowed.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LimitError {
    /// Entries of all clients.
    #[error("the name service is full: it has {0} entries")]
    Entries(u64),
    /// Entries of this one.
    #[error("this client has {0} entries already, and no client may have more")]
    EntriesEach(u64),
    /// Look-ups that wait or are answered.
    #[error("this client waits for {0} look-ups already: fetch or cancel some first")]
    Waiters(u64),
    /// Watches.
    #[error("this client has {0} watches already: end some first")]
    Watches(u64),
}

/// Why a name was not registered.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RegisterError {
    /// Somebody was first.
    #[error("{name} is registered already, by {by}")]
    Taken {
        /// The name.
        name: Name,
        /// Whose it is.
        by: Owner,
    },
    /// A name's node is where its owner runs.
    #[error("{name} can only be registered by a process on its own node, and this one is on {owner}")]
    OtherNode {
        /// The name.
        name: Name,
        /// Where the client runs.
        owner: Node,
    },
    /// The value is too long.
    #[error("the value of {name} has {length} bytes, and {MOST_VALUE} are allowed")]
    LongValue {
        /// The name.
        name: Name,
        /// Bytes of the value.
        length: u64,
    },
    /// There are too many.
    #[error("{0}")]
    Limit(#[from] LimitError),
}

/// Why a name was not unregistered.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum UnregisterError {
    /// There is none.
    #[error("{0} is not registered")]
    NotThere(Name),
    /// It belongs to somebody else.
    #[error("{name} was registered by {by}, and only its owner can unregister it")]
    NotYours {
        /// The name.
        name: Name,
        /// Whose it is.
        by: Owner,
    },
}

/// The look-up was answered before, cancelled, or never begun.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[error("no such look-up waits")]
pub struct NoSuchWaiter;

/// What a look-up that may wait comes to at once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Wait {
    /// There is a match already.
    Found(Entry),
    /// There will be an answer when there is.
    Later(WaiterId),
}

/// Some of the entries that match a pattern.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Page {
    /// By name.
    pub entries: Vec<Entry>,
    /// There are more behind the last one.
    pub more: bool,
    /// The registry's last change: a watch's changes up to this one are in the entries.
    pub serial: u64,
}

/// What a client has.
#[derive(Default)]
struct Client {
    names: BTreeSet<Name>,
    waiters: BTreeSet<WaiterId>,
    outbox: Outbox,
}

/// Where its instances are.
type Instances = BTreeMap<(Node, u32), Arc<Entry>>;

/// A registry.
#[derive(Default)]
pub struct Registry {
    limits: Limits,
    services: BTreeMap<String, Instances>,
    count: usize,
    clients: HashMap<Owner, Client>,
    waiters: BTreeMap<WaiterId, (Owner, Pattern)>,
    watches: BTreeMap<WatchId, (Owner, Pattern)>,
    /// Changes so far.
    serial: u64,
    /// Waiters and watches so far.
    ids: u64,
    roused: BTreeSet<Owner>,
}

impl Registry {
    /// An empty one.
    pub fn new(limits: Limits) -> Registry {
        Registry { limits, ..Registry::default() }
    }

    /// Registers `name` for `owner`; returns the change's number. All that wait for such a name are answered.
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

    /// Takes back what `owner` registered; returns the change's number.
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

    /// The first entry by service, node and instance that matches.
    pub fn look_up(&self, pattern: &Pattern) -> Option<&Entry> {
        self.matching(pattern, None).next().map(|entry| &**entry)
    }

    /// The entries that match, by service, node and instance, behind the name `after`: as many as take some `budget`
    /// bytes in a message, but one at least.
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

    /// As `look_up`; where nothing matches, `owner` will have an answer when something is registered that does.
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

    /// The answer to a look-up of `owner` that waits, which is over then; none as long as nothing matches.
    pub fn answer(&mut self, owner: Owner, waiter: WaiterId) -> Result<Option<Entry>, NoSuchWaiter> {
        let client = self.clients.get_mut(&owner).ok_or(NoSuchWaiter)?;
        match client.outbox.take_answer(waiter) {
            None if client.waiters.contains(&waiter) => Ok(None),
            None => Err(NoSuchWaiter),
            found => Ok(found),
        }
    }

    /// `owner` waits no longer. The answer, if it came in the meantime and was not fetched.
    pub fn cancel(&mut self, owner: Owner, waiter: WaiterId) -> Option<Entry> {
        let client = self.clients.get_mut(&owner)?;
        if client.waiters.remove(&waiter) {
            self.waiters.remove(&waiter);
            return None;
        }
        client.outbox.take_answer(waiter)
    }

    /// From here on `owner` has news of every change that matches. Returns the last change before them, too.
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

    /// `owner` watches no longer; what it did not fetch is forgotten. False if it has no such watch.
    pub fn unwatch(&mut self, owner: Owner, watch: WatchId) -> bool {
        let theirs = self.clients.get_mut(&owner).is_some_and(|client| client.outbox.end(watch));
        if theirs {
            self.watches.remove(&watch);
        }
        theirs
    }

    /// The oldest news of what `owner` watches: as many as take some `budget` bytes in a message, but one at least; and
    /// whether there are more.
    pub fn fetch(&mut self, owner: Owner, budget: usize) -> (Vec<News>, bool) {
        self.clients.get_mut(&owner).map_or((Vec::new(), false), |client| client.outbox.take(budget))
    }

    /// Those that have an answer or news since the last call.
    pub fn roused(&mut self) -> BTreeSet<Owner> {
        std::mem::take(&mut self.roused)
    }

    /// `owner` is gone: with it go its entries, of which watches are told, its look-ups and its watches.
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

    /// A whole node is gone, with all owners there.
    pub fn node_gone(&mut self, node: Node) {
        let mut gone: Vec<Owner> = self.clients.keys().filter(|owner| owner.node == node).copied().collect();
        // Changes in an order that does not depend on a hash.
        gone.sort_unstable();
        for owner in gone {
            self.owner_gone(owner);
        }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn get(&self, name: &Name) -> Option<&Arc<Entry>> {
        self.services.get(name.service())?.get(&(name.node(), name.instance()))
    }

    /// Takes an entry out of the services alone, and tells the watches.
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

    /// The entries that match, in order, behind `after`.
    fn matching(&self, pattern: &Pattern, after: Option<&Name>) -> impl Iterator<Item = &Arc<Entry>> {
        let (service, node, instance) = pattern.parts();
        let (first, last) = match service {
            Service::Exactly(service) => (service.as_str(), Some(service.as_str())),
            Service::Beginning(prefix) => (prefix.as_str(), None),
        };
        let from = after.map_or(first, |after| after.service().max(first));
        // The map panics where a range ends before it begins.
        let any = last.is_none_or(|last| from <= last);
        let range = (Bound::Included(from), last.map_or(Bound::Unbounded, Bound::Included));
        let services = any.then(|| self.services.range::<str, _>(range)).into_iter().flatten();
        let ((low, high), (least, most)) = (node.range(), instance.range());
        services
            .take_while(move |(service, _)| service.starts_with(first))
            .flat_map(move |(_, instances)| instances.range((Node(low), least)..=(Node(high), most)))
            // With any node the range has other instances in it.
            .filter(move |((_, instance), _)| (least..=most).contains(instance))
            .map(|(_, entry)| entry)
            .filter(move |entry| after.is_none_or(|after| entry.name > *after))
    }
}
