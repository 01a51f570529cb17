//! A registry that is kept here, as the interface of its clients: each request is made for the client it comes from.
//!
//! The loop is `level.rs`; `forward.rs` answers the same requests from another node's registry.

use std::collections::BTreeSet;

use crate::names::entry::{Entry, News, Owner, WaiterId, WatchId};
use crate::names::interface::{MOST_ROUSED, Names, NodeNames, PAGE, Reached, Remote};
use crate::names::name::Name;
use crate::names::pattern::Pattern;
use crate::names::registry::{
    LimitError, NoSuchWaiter, Page, RegisterError, Registry, UnregisterError, Wait,
};
use atoll_transport::Node;

/// A registry, and the process of the node that asks.
pub(super) struct Kept<'a> {
    pub(super) registry: &'a mut Registry,
    pub(super) owner: Owner,
}

impl Names for Kept<'_> {
    fn register(&mut self, name: Name, value: &[u8]) -> Reached<Result<u64, RegisterError>> {
        Ok(self.registry.register(self.owner, name, value.to_owned()))
    }

    fn unregister(&mut self, name: Name) -> Reached<Result<u64, UnregisterError>> {
        Ok(self.registry.unregister(self.owner, &name))
    }

    fn look_up(&mut self, pattern: Pattern) -> Reached<Option<Entry>> {
        Ok(self.registry.look_up(&pattern).cloned())
    }

    fn look_up_all(&mut self, pattern: Pattern, after: Option<Name>) -> Reached<Page> {
        Ok(self.registry.look_up_all(&pattern, after.as_ref(), PAGE))
    }

    fn wait(&mut self, pattern: Pattern) -> Reached<Result<Wait, LimitError>> {
        Ok(self.registry.wait(self.owner, pattern))
    }

    fn answer(&mut self, waiter: WaiterId) -> Reached<Result<Option<Entry>, NoSuchWaiter>> {
        Ok(self.registry.answer(self.owner, waiter))
    }

    fn cancel(&mut self, waiter: WaiterId) -> Reached<Option<Entry>> {
        Ok(self.registry.cancel(self.owner, waiter))
    }

    fn watch(&mut self, pattern: Pattern) -> Reached<Result<(WatchId, u64), LimitError>> {
        Ok(self.registry.watch(self.owner, pattern))
    }

    fn unwatch(&mut self, watch: WatchId) -> Reached<bool> {
        Ok(self.registry.unwatch(self.owner, watch))
    }

    fn fetch(&mut self) -> Reached<(Vec<News>, bool)> {
        Ok(self.registry.fetch(self.owner, PAGE))
    }
}

/// The global registry, and the other node that asks: it can ask for its own processes only, whatever it claims.
pub(super) struct KeptForNode<'a> {
    pub(super) registry: &'a mut Registry,
    pub(super) node: Node,
    /// The node's processes that have something to fetch.
    pub(super) roused: &'a mut BTreeSet<Remote>,
}

impl KeptForNode<'_> {
    fn owner(&self, of: Remote) -> Owner {
        Owner { node: self.node, process: of.process, connection: of.connection }
    }
}

impl NodeNames for KeptForNode<'_> {
    fn register(&mut self, of: Remote, name: Name, value: &[u8]) -> Result<u64, RegisterError> {
        self.registry.register(self.owner(of), name, value.to_owned())
    }

    fn unregister(&mut self, of: Remote, name: Name) -> Result<u64, UnregisterError> {
        self.registry.unregister(self.owner(of), &name)
    }

    fn look_up(&mut self, pattern: Pattern) -> Option<Entry> {
        self.registry.look_up(&pattern).cloned()
    }

    fn look_up_all(&mut self, pattern: Pattern, after: Option<Name>) -> Page {
        self.registry.look_up_all(&pattern, after.as_ref(), PAGE)
    }

    fn wait(&mut self, of: Remote, pattern: Pattern) -> Result<Wait, LimitError> {
        self.registry.wait(self.owner(of), pattern)
    }

    fn answer(&mut self, of: Remote, waiter: WaiterId) -> Result<Option<Entry>, NoSuchWaiter> {
        self.registry.answer(self.owner(of), waiter)
    }

    fn cancel(&mut self, of: Remote, waiter: WaiterId) -> Option<Entry> {
        self.registry.cancel(self.owner(of), waiter)
    }

    fn watch(&mut self, of: Remote, pattern: Pattern) -> Result<(WatchId, u64), LimitError> {
        self.registry.watch(self.owner(of), pattern)
    }

    fn unwatch(&mut self, of: Remote, watch: WatchId) -> bool {
        self.registry.unwatch(self.owner(of), watch)
    }

    fn fetch(&mut self, of: Remote) -> (Vec<News>, bool) {
        self.registry.fetch(self.owner(of), PAGE)
    }

    fn roused(&mut self) -> (Vec<Remote>, bool) {
        let some: Vec<Remote> = std::iter::from_fn(|| self.roused.pop_first()).take(MOST_ROUSED).collect();
        (some, !self.roused.is_empty())
    }

    fn gone(&mut self, of: Remote) {
        self.roused.remove(&of);
        self.registry.owner_gone(self.owner(of));
    }
}
