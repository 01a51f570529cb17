//! Names, by which a process finds a service of its own node or of any, waits until there is one, and sees it go.
//!
//! There are two levels: entries of one node, which never leave it, and global ones, which are kept at node 0. `registry.rs`
//! implements a level, without clock or system call; `name.rs` and `pattern.rs` are its keys. A node's processes reach both
//! levels through [`NameClient`] and their node's [`NameService`], which at any other node than 0 passes global requests on
//! (`forward.rs`).
//!
//! A name's node is the one on which its owner runs, and nobody can register a name for another node. A process's entries go
//! with the process; the global entries of a node's processes go with the node.
//!
//! Source: the barrelfish paper, sections 3.3.2 and 6.8.2, figure 6.3.

mod client;
mod entry;
mod forward;
mod interface;
mod kept;
mod level;
mod limits;
#[cfg(test)]
mod model;
mod name;
mod outbox;
mod pattern;
mod registry;
mod service;

pub use self::{
    client::{JoinError, Level, NameClient, NamesError, Search, Watch},
    entry::{Change, Entry, News, Owner, WaiterId, WatchId},
    interface::GlobalLost,
    limits::{Limits, MOST_SERVICE, MOST_VALUE},
    name::{Name, NameError, Problem},
    pattern::{Number, Pattern, Service},
    registry::{LimitError, NoSuchWaiter, Page, RegisterError, Registry, UnregisterError, Wait},
    service::{NameService, NodeLinkError, StartError},
};
