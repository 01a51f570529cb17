//! Names: how a process finds a service of its own node or of any, waits until there is one, and sees it go.
//!
//! Two levels: entries of one node, which never leave it, and global ones, which are kept at node 0. `registry.rs` is
//! what either level does, without clock or system call; `name.rs` and `pattern.rs` are what it is asked for.
//!
//! Source: the barrelfish paper, sections 3.3.2 and 6.8.2, figure 6.3.

mod entry;
mod limits;
#[cfg(test)]
mod model;
mod name;
mod outbox;
mod pattern;
mod registry;

pub use self::{
    entry::{Change, Entry, News, Owner, WaiterId, WatchId},
    limits::{Limits, MOST_SERVICE, MOST_VALUE},
    name::{Name, NameError, Problem},
    pattern::{Number, Pattern, Service},
    registry::{LimitError, NoSuchWaiter, Page, RegisterError, Registry, UnregisterError, Wait},
};
