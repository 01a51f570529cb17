//! The interfaces of a name service: for its clients, and, at node 0, for the name services of other nodes.
//!
//! Both have plain requests that are answered at once. A client that waits or watches is told over another channel, the *bell*,
//! that there is something to fetch. A ring may be dropped if the bell's channel is full, since one that was not heard yet says
//! the same.

use serde::{Deserialize, Serialize};

use crate::interface;
use crate::names::entry::{Entry, News, WaiterId, WatchId};
use crate::names::limits::{MOST_SERVICE, MOST_VALUE};
use crate::names::name::Name;
use crate::names::pattern::Pattern;
use crate::names::registry::{LimitError, NoSuchWaiter, Page, RegisterError, UnregisterError, Wait};
use atoll_transport::DEFAULT_LINES;

/// The bytes of an answer's entries or changes. Whole answers fit into an empty ring of a default channel, three quarters of
/// which a sender certainly has: a service never waits for a client to take one.
pub(super) const PAGE: usize = 2300;

const _: () =
    assert!(PAGE > MOST_VALUE + MOST_SERVICE + 100 && PAGE + 100 < DEFAULT_LINES as usize * 56 * 3 / 4);

/// The kind of a bell's message about names of the node.
pub(super) const BELL_LOCAL: u16 = 1;
/// The kind of a bell's message about global names.
pub(super) const BELL_GLOBAL: u16 = 2;

/// The most clients in one answer: 15 bytes each at most, so that the answer fits as well.
pub(super) const MOST_ROUSED: usize = PAGE / 15;

/// The error that global names cannot be reached, while those of the node can.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[error("the global names, kept at node 0, cannot be reached: {why}")]
pub struct GlobalLost {
    /// The reason why the link is not there.
    pub why: String,
}

/// The result of a request: always an answer for the node's names, but for global ones possibly none.
pub(super) type Reached<T> = Result<T, GlobalLost>;

/// A client of another node: see [`Owner`](super::Owner).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub(super) struct Remote {
    pub(super) process: u32,
    pub(super) connection: u64,
}

/// The requests of a client to either level, as [`Registry`](super::Registry) has them.
#[interface(version = 1)]
pub(super) trait Names {
    fn register(&mut self, name: Name, value: &[u8]) -> Reached<Result<u64, RegisterError>>;
    fn unregister(&mut self, name: Name) -> Reached<Result<u64, UnregisterError>>;
    fn look_up(&mut self, pattern: Pattern) -> Reached<Option<Entry>>;
    fn look_up_all(&mut self, pattern: Pattern, after: Option<Name>) -> Reached<Page>;
    fn wait(&mut self, pattern: Pattern) -> Reached<Result<Wait, LimitError>>;
    fn answer(&mut self, waiter: WaiterId) -> Reached<Result<Option<Entry>, NoSuchWaiter>>;
    fn cancel(&mut self, waiter: WaiterId) -> Reached<Option<Entry>>;
    fn watch(&mut self, pattern: Pattern) -> Reached<Result<(WatchId, u64), LimitError>>;
    fn unwatch(&mut self, watch: WatchId) -> Reached<bool>;
    fn fetch(&mut self) -> Reached<(Vec<News>, bool)>;
}

/// The requests of another node's name service to that of node 0, for its clients.
#[interface(version = 1)]
pub(super) trait NodeNames {
    fn register(&mut self, of: Remote, name: Name, value: &[u8]) -> Result<u64, RegisterError>;
    fn unregister(&mut self, of: Remote, name: Name) -> Result<u64, UnregisterError>;
    fn look_up(&mut self, pattern: Pattern) -> Option<Entry>;
    fn look_up_all(&mut self, pattern: Pattern, after: Option<Name>) -> Page;
    fn wait(&mut self, of: Remote, pattern: Pattern) -> Result<Wait, LimitError>;
    fn answer(&mut self, of: Remote, waiter: WaiterId) -> Result<Option<Entry>, NoSuchWaiter>;
    fn cancel(&mut self, of: Remote, waiter: WaiterId) -> Option<Entry>;
    fn watch(&mut self, of: Remote, pattern: Pattern) -> Result<(WatchId, u64), LimitError>;
    fn unwatch(&mut self, of: Remote, watch: WatchId) -> bool;
    fn fetch(&mut self, of: Remote) -> (Vec<News>, bool);

    /// Some of the node's clients that have had something to fetch since the last call, and whether there are more.
    fn roused(&mut self) -> (Vec<Remote>, bool);

    /// Tells that a client is gone.
    #[oneway]
    fn gone(&mut self, of: Remote);
}
