//! Tests the registry against a slow and obvious one: lists that are searched from end to end, and a log of all changes.
//!
//! Random clients of two nodes register, look up, wait, watch, fetch and go; both registries must answer alike.

use proptest::prelude::*;

use crate::names::entry::{Change, Entry, News, Owner, WaiterId, WatchId};
use crate::names::limits::{Limits, MOST_VALUE};
use crate::names::name::Name;
use crate::names::pattern::Pattern;
use crate::names::registry::{LimitError, NoSuchWaiter, RegisterError, Registry, UnregisterError, Wait};
use atoll_transport::Node;

const LIMITS: Limits =
    Limits { entries: 12, entries_each: 6, waiters_each: 3, watches_each: 2, changes_each: 4 };

/// The slow registry, with everything in the order in which it came.
#[derive(Default)]
struct Slow {
    entries: Vec<Entry>,
    waiters: Vec<(WaiterId, Owner, Pattern)>,
    watches: Vec<(WatchId, Owner, Pattern)>,
    answers: Vec<(Owner, WaiterId, Entry)>,
    news: Vec<(Owner, News)>,
    serial: u64,
    ids: u64,
}

impl Slow {
    fn first(&self, pattern: &Pattern) -> Option<Entry> {
        self.all(pattern).into_iter().next()
    }

    fn all(&self, pattern: &Pattern) -> Vec<Entry> {
        let mut all: Vec<Entry> = self.entries.iter().filter(|e| pattern.matches(&e.name)).cloned().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn register(&mut self, owner: Owner, name: Name, value: Vec<u8>) -> Result<u64, RegisterError> {
        if name.node() != owner.node {
            return Err(RegisterError::OtherNode { name, owner: owner.node });
        }
        if let Some(entry) = self.entries.iter().find(|e| e.name == name) {
            return Err(RegisterError::Taken { by: entry.owner, name });
        }
        if value.len() > MOST_VALUE {
            return Err(RegisterError::LongValue { name, length: value.len() as u64 });
        }
        if self.entries.len() >= LIMITS.entries {
            return Err(LimitError::Entries(LIMITS.entries as u64).into());
        }
        if self.entries.iter().filter(|e| e.owner == owner).count() >= LIMITS.entries_each {
            return Err(LimitError::EntriesEach(LIMITS.entries_each as u64).into());
        }
        self.serial += 1;
        let entry = Entry { name, value, owner, serial: self.serial };
        self.entries.push(entry.clone());
        self.tell(&entry.name, &Change::Added(entry.clone()));
        let (answered, waiting) =
            self.waiters.drain(..).partition(|(_, _, pattern)| pattern.matches(&entry.name));
        self.waiters = waiting;
        let answered: Vec<_> = answered;
        for (waiter, of, _) in answered {
            self.answers.push((of, waiter, entry.clone()));
        }
        Ok(self.serial)
    }

    fn tell(&mut self, name: &Name, change: &Change) {
        for (watch, of, pattern) in &self.watches {
            if !pattern.matches(name) {
                continue;
            }
            let queued = self
                .news
                .iter()
                .filter(|(_, news)| news.watch == *watch && !matches!(news.change, Change::Missed { .. }));
            let mut change = change.clone();
            if queued.count() >= LIMITS.changes_each {
                self.news.retain(|(_, news)| news.watch != *watch);
                change = Change::Missed { serial: change.serial() };
            }
            self.news.push((*of, News { watch: *watch, change }));
        }
    }

    fn unregister(&mut self, owner: Owner, name: &Name) -> Result<u64, UnregisterError> {
        let Some(at) = self.entries.iter().position(|e| e.name == *name) else {
            return Err(UnregisterError::NotThere(name.clone()));
        };
        if self.entries[at].owner != owner {
            return Err(UnregisterError::NotYours { name: name.clone(), by: self.entries[at].owner });
        }
        self.entries.remove(at);
        self.serial += 1;
        self.tell(name, &Change::Removed { name: name.clone(), serial: self.serial });
        Ok(self.serial)
    }

    fn wait(&mut self, owner: Owner, pattern: Pattern) -> Result<Wait, LimitError> {
        if let Some(entry) = self.first(&pattern) {
            return Ok(Wait::Found(entry));
        }
        let waiting = self.waiters.iter().filter(|w| w.1 == owner).count();
        let answered = self.answers.iter().filter(|a| a.0 == owner).count();
        if waiting + answered >= LIMITS.waiters_each {
            return Err(LimitError::Waiters(LIMITS.waiters_each as u64));
        }
        self.ids += 1;
        self.waiters.push((WaiterId(self.ids), owner, pattern));
        Ok(Wait::Later(WaiterId(self.ids)))
    }

    fn answer(&mut self, owner: Owner, waiter: WaiterId) -> Result<Option<Entry>, NoSuchWaiter> {
        if self.waiters.iter().any(|w| (w.0, w.1) == (waiter, owner)) {
            return Ok(None);
        }
        let at = self.answers.iter().position(|a| (a.0, a.1) == (owner, waiter)).ok_or(NoSuchWaiter)?;
        Ok(Some(self.answers.remove(at).2))
    }

    fn cancel(&mut self, owner: Owner, waiter: WaiterId) -> Option<Entry> {
        let answer = self.answer(owner, waiter).ok()?;
        self.waiters.retain(|w| w.0 != waiter);
        answer
    }

    fn watch(&mut self, owner: Owner, pattern: Pattern) -> Result<(WatchId, u64), LimitError> {
        if self.watches.iter().filter(|w| w.1 == owner).count() >= LIMITS.watches_each {
            return Err(LimitError::Watches(LIMITS.watches_each as u64));
        }
        self.ids += 1;
        self.watches.push((WatchId(self.ids), owner, pattern));
        Ok((WatchId(self.ids), self.serial))
    }

    fn unwatch(&mut self, owner: Owner, watch: WatchId) -> bool {
        let before = self.watches.len();
        self.watches.retain(|w| (w.0, w.1) != (watch, owner));
        let theirs = self.watches.len() < before;
        if theirs {
            self.news.retain(|(_, news)| news.watch != watch);
        }
        theirs
    }

    fn fetch(&mut self, owner: Owner) -> Vec<News> {
        let (theirs, others) = self.news.drain(..).partition(|(of, _)| *of == owner);
        self.news = others;
        let theirs: Vec<_> = theirs;
        theirs.into_iter().map(|(_, news)| news).collect()
    }

    fn gone(&mut self, owner: Owner) {
        self.waiters.retain(|w| w.1 != owner);
        self.watches.retain(|w| w.1 != owner);
        self.news.retain(|(of, _)| *of != owner);
        self.answers.retain(|(of, ..)| *of != owner);
        let mut names: Vec<Name> =
            self.entries.iter().filter(|e| e.owner == owner).map(|e| e.name.clone()).collect();
        names.sort();
        for name in names {
            self.unregister(owner, &name).unwrap();
        }
    }
}

/// One of five clients, three of them on node 0.
fn client(number: u32) -> Owner {
    Owner { node: Node(number % 2), process: 100 + number, connection: u64::from(number) }
}

#[derive(Clone, Debug)]
enum Step {
    Register(Name, usize),
    Unregister(Name),
    LookUp(Pattern),
    Wait(Pattern),
    Answer(u64),
    Cancel(u64),
    Watch(Pattern),
    Unwatch(u64),
    Fetch,
    Gone,
    NodeGone,
}

fn names() -> impl Strategy<Value = Name> {
    let service = prop_oneof![Just("a"), Just("ab"), Just("abc"), Just("b")];
    (service, 0..2u32, 0..3u32).prop_map(|(service, node, instance)| Name::of(service, Node(node), instance))
}

fn patterns() -> impl Strategy<Value = Pattern> {
    let service = prop_oneof![Just("*"), Just("a*"), Just("a"), Just("ab"), Just("ab*"), Just("c*")];
    let number = || prop_oneof![Just("*"), Just("0"), Just("1")];
    (service, number(), number()).prop_map(|(s, n, i)| format!("{s}@{n}.{i}").parse().unwrap())
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (names(), prop_oneof![9 => 0..9usize, 1 => Just(MOST_VALUE + 1)])
            .prop_map(|(name, length)| Step::Register(name, length)),
        5 => names().prop_map(Step::Unregister),
        4 => patterns().prop_map(Step::LookUp),
        3 => patterns().prop_map(Step::Wait),
        2 => (0..20u64).prop_map(Step::Answer),
        1 => (0..20u64).prop_map(Step::Cancel),
        3 => patterns().prop_map(Step::Watch),
        1 => (0..20u64).prop_map(Step::Unwatch),
        3 => Just(Step::Fetch),
        1 => Just(Step::Gone),
        1 => Just(Step::NodeGone),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn it_does_what_a_slow_one_does(steps in prop::collection::vec((0..5u32, steps()), 1..120)) {
        let mut registry = Registry::new(LIMITS);
        let mut slow = Slow::default();
        for (number, step) in steps {
            let before = (slow.news.clone(), slow.answers.clone());
            let owner = client(number);
            match step {
                Step::Register(name, length) => {
                    let value = vec![number as u8; length];
                    prop_assert_eq!(
                        registry.register(owner, name.clone(), value.clone()),
                        slow.register(owner, name, value)
                    );
                }
                Step::Unregister(name) => {
                    prop_assert_eq!(registry.unregister(owner, &name), slow.unregister(owner, &name));
                }
                Step::LookUp(pattern) => {
                    prop_assert_eq!(registry.look_up(&pattern).cloned(), slow.first(&pattern));
                    // Fetched in pages of one, and all at once.
                    let mut entries: Vec<Entry> = Vec::new();
                    loop {
                        let page = registry.look_up_all(&pattern, entries.last().map(|e| &e.name), 0);
                        entries.extend(page.entries);
                        if !page.more {
                            break;
                        }
                    }
                    prop_assert_eq!(&entries, &slow.all(&pattern));
                    let page = registry.look_up_all(&pattern, None, usize::MAX);
                    prop_assert_eq!((page.entries, page.more, page.serial), (entries, false, slow.serial));
                }
                Step::Wait(pattern) => {
                    prop_assert_eq!(registry.wait(owner, pattern.clone()), slow.wait(owner, pattern));
                }
                Step::Answer(id) => {
                    let id = WaiterId(id);
                    prop_assert_eq!(registry.answer(owner, id), slow.answer(owner, id));
                }
                Step::Cancel(id) => {
                    let id = WaiterId(id);
                    prop_assert_eq!(registry.cancel(owner, id), slow.cancel(owner, id));
                }
                Step::Watch(pattern) => {
                    prop_assert_eq!(registry.watch(owner, pattern.clone()), slow.watch(owner, pattern));
                }
                Step::Unwatch(id) => {
                    let id = WatchId(id);
                    prop_assert_eq!(registry.unwatch(owner, id), slow.unwatch(owner, id));
                }
                Step::Fetch => {
                    let mut news = Vec::new();
                    loop {
                        let (some, more) = registry.fetch(owner, 200);
                        news.extend(some);
                        if !more {
                            break;
                        }
                    }
                    prop_assert_eq!(news, slow.fetch(owner));
                }
                Step::Gone => {
                    registry.owner_gone(owner);
                    slow.gone(owner);
                }
                Step::NodeGone => {
                    registry.node_gone(owner.node);
                    for number in (0..5).filter(|number| client(*number).node == owner.node) {
                        slow.gone(client(number));
                    }
                }
            }
            prop_assert_eq!(registry.len(), slow.entries.len());
            let roused = registry.roused();
            for (owner, _) in slow.news.iter().filter(|news| !before.0.contains(news)) {
                prop_assert!(roused.contains(owner), "{} has news and was not told", owner);
            }
            for (owner, ..) in slow.answers.iter().filter(|answer| !before.1.contains(answer)) {
                prop_assert!(roused.contains(owner), "{} has an answer and was not told", owner);
            }
        }
    }
}

#[test]
fn an_error_says_who_was_first() {
    let mut registry = Registry::new(Limits::default());
    let name = Name::new("dma", Node(0), 0).unwrap();
    registry.register(client(0), name.clone(), b"first".to_vec()).unwrap();
    let why = registry.register(client(2), name.clone(), b"second".to_vec()).unwrap_err();
    assert_eq!(why.to_string(), "dma@0.0 is registered already, by process 100 on node 0");
    assert_eq!(registry.look_up(&Pattern::from(&name)).unwrap().value, b"first");
    let foreign = registry.register(client(1), name, Vec::new()).unwrap_err();
    assert!(matches!(foreign, RegisterError::OtherNode { owner: Node(1), .. }));
}

#[test]
fn a_hostile_owner_fills_its_own_part_only() {
    let mut registry = Registry::new(LIMITS);
    let mut refused = 0;
    for instance in 0..100 {
        let name = Name::of("x", Node(0), instance);
        refused += u32::from(registry.register(client(0), name, vec![0; MOST_VALUE]).is_err());
        refused += u32::from(registry.wait(client(0), "never".parse().unwrap()).is_err());
        refused += u32::from(registry.watch(client(0), "*".parse().unwrap()).is_err());
    }
    assert_eq!(refused, 300 - (6 + 3 + 2));
    assert!(registry.register(client(2), Name::of("y", Node(0), 0), Vec::new()).is_ok());
    // The client watches its own changes and never fetches.
    for _ in 0..1000 {
        let name = Name::of("x", Node(0), 0);
        registry.unregister(client(0), &name).unwrap();
        registry.register(client(0), name, Vec::new()).unwrap();
    }
    let (news, more) = registry.fetch(client(0), usize::MAX);
    assert!(news.len() <= 2 * (LIMITS.changes_each + 1) && !more, "{}", news.len());
    assert!(news.iter().any(|news| matches!(news.change, Change::Missed { .. })));
}
