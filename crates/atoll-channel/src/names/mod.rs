//! Names: how a process finds a service of its own node or of any, waits until there is one, and sees it go.
//!
//! Two levels: entries of one node, which never leave it, and global ones, which are kept at node 0. `registry.rs` is
//! what either level does, without clock or system call; `name.rs` and `pattern.rs` are what it is asked for. A node's
//! processes reach both through [`NameClient`] and their node's [`NameService`], which at any other node than 0 hands
//! global requests on (`forward.rs`).
//!
//! A name's node is where its owner runs, and nobody can register one for another node. What a process registered goes
//! when it does, and what a node's processes registered globally when the node does.
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
