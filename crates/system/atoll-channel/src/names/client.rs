//! A process's connection to the name service of its node.
//!
//! `service.rs` is the other end. A waiting client sleeps on the bell's channel and fetches when it rings; nothing is polled.
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

/// The longest time that the service may take for an answer.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));

/// The level of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Level {
    /// The entry is known at this node alone.
    Local,
    /// The entry is kept at node 0 and known everywhere.
    Global,
}

/// The levels to search.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Search {
    /// Only this node.
    Local,
    /// Only node 0.
    Global,
    /// This node first, then node 0.
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

/// The reasons why there is no connection to the name service.
#[derive(thiserror::Error, Debug)]
pub enum JoinError {
    /// The service's socket is not there, or cannot be trusted.
    #[error("the node's name service: {0}")]
    Directory(#[from] DirectoryError),
    /// The service does not make channels with this process.
    #[error("the node's name service: {0}")]
    Connect(#[from] ConnectError),
    /// The service does not answer, or has another interface.
    #[error("the node's name service: {0}")]
    Bind(#[from] BindError),
    /// The service does not tell which node this is.
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

/// The reasons why a request has no result.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum NamesError {
    /// The name was not registered.
    #[error("{0}")]
    Register(#[from] RegisterError),
    /// The name was not unregistered.
    #[error("{0}")]
    Unregister(#[from] UnregisterError),
    /// This process has reached a limit.
    #[error("{0}")]
    Limit(#[from] LimitError),
    /// No entry was registered in time.
    #[error("nothing that matches {pattern} was registered within {within:?}")]
    TimedOut {
        /// The pattern that was waited for.
        pattern: Pattern,
        /// The time waited.
        within: Duration,
    },
    /// Global names cannot be reached. Those of the node can.
    #[error("{0}")]
    GlobalLost(#[from] GlobalLost),
    /// The node's own name service does not answer.
    #[error("the node's name service: {0}")]
    Service(#[from] CallError),
    /// The service's global level has another interface, or does not answer.
    #[error("the node's name service: {0}")]
    Bind(#[from] BindError),
    /// The service has ended, and with it all names of this node.
    #[error("the node's name service: {0}")]
    Ended(RecvError),
    /// The service lost what this process waits for, which no correct one does.
    #[error("the node's name service: {0}")]
    Forgotten(#[from] NoSuchWaiter),
}

/// A watch of this connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Watch {
    level: Level,
    id: WatchId,
}

/// A connection to the node's name service. Dropping it unregisters its names and ends its watches; the same happens within a
/// second if the process dies.
pub struct NameClient {
    node: Node,
    local: NamesClient<Channel>,
    global: Lazy<NamesClient<Channel>>,
    bell: Receiver,
    message: Message,
    /// The changes that were fetched and not handed out; at most those of one answer.
    changes: VecDeque<(Watch, Change)>,
    /// Whether the bell rang for changes since they were fetched: local, global.
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

    /// The number of this node.
    pub fn node(&self) -> Node {
        self.node
    }

    fn at(&mut self, level: Level) -> Result<&mut NamesClient<Channel>, BindError> {
        match level {
            Level::Local => Ok(&mut self.local),
            Level::Global => self.global.get(),
        }
    }

    /// Registers `name`, which must be of this node, with `value`, until it is unregistered or this connection is dropped.
    /// Returns the change's number.
    pub fn register(&mut self, level: Level, name: &Name, value: &[u8]) -> Result<u64, NamesError> {
        Ok(self.at(level)?.register(name.clone(), value)???)
    }

    /// Unregisters a name of this connection. Returns the change's number.
    pub fn unregister(&mut self, level: Level, name: &Name) -> Result<u64, NamesError> {
        Ok(self.at(level)?.unregister(name.clone())???)
    }

    /// The first entry that matches, by service, node, instance; with `Either`, a local one if there is any.
    pub fn look_up(&mut self, search: Search, pattern: &Pattern) -> Result<Option<Entry>, NamesError> {
        for level in search.levels() {
            if let Some(entry) = self.at(*level)?.look_up(pattern.clone())?? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// All entries of a level that match, by service, node, instance, and the number of the level's last change before the
    /// answer. A watch that began earlier may skip its changes up to that one.
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

    /// Looks up as `look_up` does; if nothing matches, waits until something does, for at most `timeout` (`None`: for ever). If
    /// global names cannot be reached, fails at once, with `Either`, too.
    pub fn wait_for(
        &mut self,
        search: Search,
        pattern: &Pattern,
        timeout: Option<Duration>,
    ) -> Result<Entry, NamesError> {
        let mut waiters = Vec::new();
        let found = self.wait_at(search, pattern, timeout, &mut waiters);
        // The other waits are cancelled, or all if the search failed. One that was answered in the last moment counts.
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

    /// Starts a watch: [`next_change`](NameClient::next_change) then reports every change of a matching entry. Also returns the
    /// number of the last change before.
    pub fn watch(&mut self, level: Level, pattern: &Pattern) -> Result<(Watch, u64), NamesError> {
        let (id, serial) = self.at(level)?.watch(pattern.clone())???;
        Ok((Watch { level, id }, serial))
    }

    /// Ends a watch; changes that were not handed out are dropped.
    pub fn unwatch(&mut self, watch: Watch) -> Result<(), NamesError> {
        self.changes.retain(|(of, _)| *of != watch);
        self.at(watch.level)?.unwatch(watch.id)??;
        Ok(())
    }

    /// The next change of any watch, in the order in which they happened at a level. Waits for it for at most `timeout`
    /// (`None`: for ever); returns `None` if none came in time.
    pub fn next_change(&mut self, timeout: Option<Duration>) -> Result<Option<(Watch, Change)>, NamesError> {
        let mut deadline = Deadline::new(timeout);
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Ok(Some(change));
            }
            // Hears earlier rings, without waiting.
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

    /// Fetches changes of the levels whose bell rang; returns whether there are any.
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

    /// Waits for the bell; returns false if it did not ring in time.
    fn ring(&mut self, timeout: Duration) -> Result<bool, NamesError> {
        match self.bell.recv(&mut self.message, Some(timeout)) {
            Ok(()) => self.note(),
            Err(RecvError::TimedOut) => return Ok(false),
            Err(why) => return Err(NamesError::Ended(why)),
        }
        self.hear()?;
        Ok(true)
    }

    /// Takes all rings of the bell.
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
