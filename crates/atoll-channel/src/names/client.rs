//! A process's connection to the name service of its node.
//!
//! `service.rs` is the other end. What waits here sleeps on the bell's channel and fetches when it rang; nothing is asked
//! for again and again.
//!
//! Source: the barrelfish paper, section 6.8.2, listing 6.3.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use crate::host::{Connected, DirectoryError, Lazy, NotConnected, connect, from_environment, visit};
use crate::names::entry::{Change, Entry, News, WaiterId, WatchId};
use crate::names::interface::{BELL_GLOBAL, BELL_LOCAL, GlobalLost, NamesClient};
use crate::names::name::Name;
use crate::names::pattern::Pattern;
use crate::names::registry::{LimitError, NoSuchWaiter, RegisterError, UnregisterError, Wait};
use crate::names::service::SOCKET;
use crate::service::{BindError, CallError};
use atoll_transport::Node;
use atoll_transport::clock::Deadline;
use atoll_transport::{Channel, ConnectError, Message, Receiver, RecvError};

/// How long the service may take for an answer.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));

/// Where an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Level {
    /// Known at this node alone.
    Local,
    /// Kept at node 0, known everywhere.
    Global,
}

/// Where to look.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Search {
    /// At this node; no other is asked.
    Local,
    /// At node 0.
    Global,
    /// At this node, then at node 0.
    Either,
}

impl Search {
    fn levels(self) -> &'static [Level] {
        match self {
            Search::Local => &[Level::Local],
            Search::Global => &[Level::Global],
            Search::Either => &[Level::Local, Level::Global],
        }
    }
}

/// Why there is no connection to the name service.
#[derive(thiserror::Error, Debug)]
pub enum JoinError {
    /// Its socket is not there, or cannot be trusted.
    #[error("the node's name service: {0}")]
    Directory(#[from] DirectoryError),
    /// It does not make channels with this process.
    #[error("the node's name service: {0}")]
    Connect(#[from] ConnectError),
    /// It does not answer, or speaks something else.
    #[error("the node's name service: {0}")]
    Bind(#[from] BindError),
    /// It does not say which node this is.
    #[error("the node's name service does not say which node this is")]
    NoNode,
}

impl From<NotConnected> for JoinError {
    fn from(why: NotConnected) -> JoinError {
        match why {
            NotConnected::Connect(why) => why.into(),
            NotConnected::NoNode => JoinError::NoNode,
        }
    }
}

/// Why a request has no result.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum NamesError {
    /// The name was not registered.
    #[error("{0}")]
    Register(#[from] RegisterError),
    /// The name was not unregistered.
    #[error("{0}")]
    Unregister(#[from] UnregisterError),
    /// This process has too much of something.
    #[error("{0}")]
    Limit(#[from] LimitError),
    /// Nothing was registered in time.
    #[error("nothing that matches {pattern} was registered within {within:?}")]
    TimedOut {
        /// What was waited for.
        pattern: Pattern,
        /// How long.
        within: Duration,
    },
    /// Global names are out of reach. Those of the node are not.
    #[error("{0}")]
    GlobalLost(#[from] GlobalLost),
    /// The node's own name service does not answer.
    #[error("the node's name service: {0}")]
    Service(#[from] CallError),
    /// What it has for global names speaks something else, or does not answer.
    #[error("the node's name service: {0}")]
    Bind(#[from] BindError),
    /// It has ended, with all names of this node.
    #[error("the node's name service: {0}")]
    Ended(RecvError),
    /// It forgot what this process waits for, which no name service does.
    #[error("the node's name service: {0}")]
    Forgotten(#[from] NoSuchWaiter),
}

/// A watch of this connection's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Watch {
    level: Level,
    id: WatchId,
}

/// A connection to the node's name service. Dropped, what it registered disappears, and its watches end; the same where
/// the process dies, within a second.
pub struct NameClient {
    node: Node,
    local: NamesClient<Channel>,
    global: Lazy<NamesClient<Channel>>,
    bell: Receiver,
    message: Message,
    /// Changes that were fetched and not handed out, at most what one answer holds.
    changes: VecDeque<(Watch, Change)>,
    /// The bell rang for changes since they were fetched: local, global.
    rang: [bool; 2],
}

impl NameClient {
    /// Connects to the service of the node that this process was started at
    /// ([`NODE_DIRECTORY`](crate::host::NODE_DIRECTORY)).
    pub fn from_environment() -> Result<NameClient, JoinError> {
        NameClient::connect(&from_environment()?)
    }

    /// Connects to the service whose socket lies in `directory`.
    pub fn connect(directory: &Path) -> Result<NameClient, JoinError> {
        let stream = visit(directory, SOCKET)?;
        let Connected { node, calls: [local, global], bell } = connect(&stream)?;
        let local = NamesClient::bind(local, PATIENCE)?;
        let global = Lazy::new(global, NamesClient::bind, PATIENCE);
        let message = Message::default();
        Ok(NameClient { node, local, global, bell, message, changes: VecDeque::new(), rang: [false; 2] })
    }

    /// Which node this is.
    pub fn node(&self) -> Node {
        self.node
    }

    fn at(&mut self, level: Level) -> Result<&mut NamesClient<Channel>, BindError> {
        match level {
            Level::Local => Ok(&mut self.local),
            Level::Global => self.global.get(),
        }
    }

    /// Makes `name`, which must be of this node, known with `value`, until it is unregistered or this is dropped.
    /// Returns the change's number.
    pub fn register(&mut self, level: Level, name: &Name, value: &[u8]) -> Result<u64, NamesError> {
        Ok(self.at(level)?.register(name.clone(), value)???)
    }

    /// Takes back what this connection registered. Returns the change's number.
    pub fn unregister(&mut self, level: Level, name: &Name) -> Result<u64, NamesError> {
        Ok(self.at(level)?.unregister(name.clone())???)
    }

    /// The first entry that matches, by service, node, instance; in `Either` a local one, if there is any.
    pub fn look_up(&mut self, search: Search, pattern: &Pattern) -> Result<Option<Entry>, NamesError> {
        for level in search.levels() {
            if let Some(entry) = self.at(*level)?.look_up(pattern.clone())?? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// All entries of a level that match, by service, node, instance, and the number of the level's last change before
    /// the answer: a watch that began earlier need not be asked about those up to it.
    pub fn look_up_all(&mut self, level: Level, pattern: &Pattern) -> Result<(Vec<Entry>, u64), NamesError> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut serial = None;
        loop {
            let after = entries.last().map(|entry| entry.name.clone());
            let page = self.at(level)?.look_up_all(pattern.clone(), after)??;
            let serial = *serial.get_or_insert(page.serial);
            let more = page.more && !page.entries.is_empty();
            entries.extend(page.entries);
            if !more {
                return Ok((entries, serial));
            }
        }
    }

    /// As `look_up`; where nothing matches, waits until something does, at most `timeout` (none: for ever). Where global
    /// names are out of reach, that is an error at once, in `Either` too.
    pub fn wait_for(
        &mut self,
        search: Search,
        pattern: &Pattern,
        timeout: Option<Duration>,
    ) -> Result<Entry, NamesError> {
        let mut waiters = Vec::new();
        let found = self.wait_at(search, pattern, timeout, &mut waiters);
        // The others; and all of them, if it failed. One that was answered in the last moment is an answer.
        let mut late = None;
        for (level, waiter) in waiters {
            let cancelled = self.at(level).ok().map(|service| service.cancel(waiter));
            if let Some(Ok(Ok(entry))) = cancelled {
                late = late.or(entry);
            }
        }
        match (found, late) {
            (Err(NamesError::TimedOut { .. }), Some(late)) => Ok(late),
            (found, _) => found,
        }
    }

    fn wait_at(
        &mut self,
        search: Search,
        pattern: &Pattern,
        timeout: Option<Duration>,
        waiters: &mut Vec<(Level, WaiterId)>,
    ) -> Result<Entry, NamesError> {
        let mut deadline = Deadline::new(timeout);
        for level in search.levels() {
            match self.at(*level)?.wait(pattern.clone())??? {
                Wait::Found(entry) => return Ok(entry),
                Wait::Later(waiter) => waiters.push((*level, waiter)),
            }
        }
        loop {
            let left = deadline.left(Duration::MAX).unwrap_or_default();
            if left.is_zero() || !self.ring(left)? {
                let within = timeout.unwrap_or(Duration::MAX);
                return Err(NamesError::TimedOut { pattern: pattern.clone(), within });
            }
            for (level, waiter) in &*waiters {
                let (level, waiter) = (*level, *waiter);
                if let Some(entry) = self.at(level)?.answer(waiter)??? {
                    waiters.retain(|other| *other != (level, waiter));
                    return Ok(entry);
                }
            }
        }
    }

    /// From now on [`next_change`](NameClient::next_change) tells of everything that is registered or disappears and
    /// matches. Returns the number of the last change before, too.
    pub fn watch(&mut self, level: Level, pattern: &Pattern) -> Result<(Watch, u64), NamesError> {
        let (id, serial) = self.at(level)?.watch(pattern.clone())???;
        Ok((Watch { level, id }, serial))
    }

    /// Ends a watch; changes that were not handed out are forgotten.
    pub fn unwatch(&mut self, watch: Watch) -> Result<(), NamesError> {
        self.changes.retain(|(of, _)| *of != watch);
        self.at(watch.level)?.unwatch(watch.id)??;
        Ok(())
    }

    /// The next change of any watch, in the order in which they happened at a level. Waits for it at most `timeout`
    /// (none: for ever); nothing if none came in time.
    pub fn next_change(&mut self, timeout: Option<Duration>) -> Result<Option<(Watch, Change)>, NamesError> {
        let mut deadline = Deadline::new(timeout);
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Ok(Some(change));
            }
            // Bells that rang already; nothing is waited for.
            self.hear()?;
            if self.fetch()? {
                continue;
            }
            let left = deadline.left(Duration::MAX).unwrap_or_default();
            if left.is_zero() || !self.ring(left)? {
                return Ok(None);
            }
        }
    }

    /// Fetches changes of the levels whose bell rang; true if there are any.
    fn fetch(&mut self) -> Result<bool, NamesError> {
        for level in [Level::Local, Level::Global] {
            if !std::mem::take(&mut self.rang[level as usize]) {
                continue;
            }
            let (news, more) = self.at(level)?.fetch()??;
            self.rang[level as usize] |= more;
            self.changes
                .extend(news.into_iter().map(|News { watch, change }| (Watch { level, id: watch }, change)));
        }
        Ok(!self.changes.is_empty())
    }

    /// Waits for the bell; false if it did not ring in time.
    fn ring(&mut self, timeout: Duration) -> Result<bool, NamesError> {
        match self.bell.recv(&mut self.message, Some(timeout)) {
            Ok(()) => self.note(),
            Err(RecvError::TimedOut) => return Ok(false),
            Err(why) => return Err(NamesError::Ended(why)),
        }
        self.hear()?;
        Ok(true)
    }

    /// Empties the bell's ring.
    fn hear(&mut self) -> Result<(), NamesError> {
        while self.bell.try_recv(&mut self.message).map_err(NamesError::Ended)? {
            self.note();
        }
        Ok(())
    }

    fn note(&mut self) {
        match self.message.kind {
            BELL_LOCAL => self.rang[0] = true,
            BELL_GLOBAL => self.rang[1] = true,
            _ => {}
        }
    }
}
