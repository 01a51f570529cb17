//! A page's directory entry at its home: which nodes have copies, whose request is being served, and which nodes wait.
//!
//! `copy.rs` is the other side. The home serves one request for a page at a time, from the first message to the requester's
//! last, so that the messages of two requests never meet; requests for different pages do not wait for each other.
//!
//! Source: the Popcorn paper, section 2; serving requests in turn is added here.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::nodes::{Node, Nodes};
use crate::table::{self, Impossible, Row, names, rows};

names! {
    /// The states of an entry.
    State {
        /// One node has the page and may write it.
        Owned,
        /// Some nodes have the page to read.
        Shared,
        /// A copy to read is on its way.
        Reading,
        /// Copies are being dropped.
        Collecting,
        /// A copy to write, or permission to write, is on its way.
        Writing,
    }
}

names! {
    /// The events of an entry. A request is one of several events, depending on the requester.
    Event {
        /// A node without a copy reads.
        Read,
        /// The one node that has a copy writes.
        WriteAlone,
        /// A node that has a copy, as others have, writes.
        WriteAmong,
        /// A node without a copy writes, and one node has it.
        Write,
        /// A node without a copy writes, and several have it.
        WriteMany,
        /// A node asks while another's request is served.
        Busy,
        /// A copy was dropped, others not yet.
        Dropped,
        /// The last copy was dropped, and the requester has one.
        AllDroppedOfHolder,
        /// The last copy was dropped, and the requester has none.
        AllDroppedOfOther,
        /// The requester has received what it asked for.
        Installed,
        /// The requester, which asked to read, has received the only copy.
        InstalledAlone,
    }
}

names! {
    /// The actions of the home.
    Action {
        /// Order a node that has a copy to send one to read to the requester: the owner, else the home itself, else the first.
        ForwardRead,
        /// Order the only node that has a copy to send it to the requester and drop it.
        ForwardWrite,
        /// Give the requester permission to write its copy.
        Grant,
        /// Order all to drop their copies, except the requester; if it has none, except the home or the first node, which then
        /// sends its copy.
        InvalidateOthers,
        /// Put the request at the end of the queue.
        Queue,
        /// Make the requester one of the readers.
        AddReader,
        /// Make the requester the owner.
        SetOwner,
        /// Serve the request that waits longest.
        Next,
    }
}

/// The complete table of an entry's events.
pub static TABLE: &[Row<State, Event, Action>] = rows![
    Owned + Read => Reading [ForwardRead];
    Owned + Write => Writing [ForwardWrite];
    // The node gave up its permission to write, to look for races.
    Owned + WriteAlone => Writing [Grant];
    Shared + Read => Reading [ForwardRead];
    Shared + WriteAlone => Writing [Grant];
    Shared + WriteAmong => Collecting [InvalidateOthers];
    Shared + Write => Writing [ForwardWrite];
    Shared + WriteMany => Collecting [InvalidateOthers];

    Reading + Busy => Reading [Queue];
    Collecting + Busy => Collecting [Queue];
    Writing + Busy => Writing [Queue];

    Collecting + Dropped => Collecting [];
    Collecting + AllDroppedOfHolder => Writing [Grant];
    Collecting + AllDroppedOfOther => Writing [ForwardWrite];

    Reading + Installed => Shared [AddReader, Next];
    Reading + InstalledAlone => Owned [SetOwner, Next];
    Writing + Installed => Owned [SetOwner, Next];
];

/// The kinds of requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Want {
    /// A copy to read.
    Read,
    /// A copy to write, or permission to write.
    Write,
}

/// A message from the home to a node, about the entry's page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Order {
    /// `to` is to drop its copy and tell the home.
    Invalidate {
        /// The node that has the copy.
        to: Node,
    },
    /// `from` is to send a copy to `to`.
    Forward {
        /// The node that has a copy.
        from: Node,
        /// The node that asked.
        to: Node,
        /// The kind of request.
        want: Want,
    },
    /// `to` may write its copy.
    Grant {
        /// The node that asked.
        to: Node,
    },
}

/// A page's entry at its home.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    state: State,
    holders: Nodes,
    /// The node whose request is served; meaningless in `Owned` and `Shared`.
    requester: Node,
    /// The nodes that were told to drop their copies and have not confirmed it yet.
    dropping: Nodes,
    waiting: VecDeque<(Node, Want)>,
}

impl Entry {
    /// The entry of a page that only `owner` has.
    #[must_use]
    pub fn owned(owner: Node) -> Self {
        let holders = Nodes::one(owner);
        Self {
            state: State::Owned,
            holders,
            requester: owner,
            dropping: Nodes::NONE,
            waiting: VecDeque::new(),
        }
    }

    /// The entry's state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// The nodes that have a copy, as far as the home was told.
    #[must_use]
    pub fn holders(&self) -> Nodes {
        self.holders
    }

    /// Whether only `node` has the page, and nobody waits for it.
    #[must_use]
    pub fn is_owned_by(&self, node: Node) -> bool {
        self.state == State::Owned && self.holders == Nodes::one(node)
    }

    /// Whether `node` has one of several copies, or the only one without permission to write.
    #[must_use]
    pub fn is_shared_by(&self, node: Node) -> bool {
        self.state == State::Shared && self.holders.has(node)
    }

    /// Handles a request of `by` at the home `home`. Orders go out in order.
    pub fn ask(
        &mut self,
        home: Node,
        by: Node,
        want: Want,
        orders: &mut Vec<Order>,
    ) -> Result<(), Impossible> {
        let busy = !matches!(self.state, State::Owned | State::Shared);
        if busy {
            self.step(home, Event::Busy, (by, want), orders)
        } else {
            self.requester = by;
            let holds = self.holders.has(by);
            let event = match (want, holds, self.holders.count()) {
                (Want::Read, _, _) => Event::Read,
                (Want::Write, true, 1) => Event::WriteAlone,
                (Want::Write, true, _) => Event::WriteAmong,
                (Want::Write, false, 1) => Event::Write,
                (Want::Write, false, _) => Event::WriteMany,
            };
            if want == Want::Read && holds {
                // The node has a copy, so it would not ask.
                return Err(self.impossible(Event::Read));
            }
            self.step(home, event, (by, want), orders)
        }
    }

    /// Notes that `by` dropped its copy, as ordered.
    pub fn dropped(&mut self, home: Node, by: Node, orders: &mut Vec<Order>) -> Result<(), Impossible> {
        if !self.dropping.has(by) {
            return Err(self.impossible(Event::Dropped));
        }
        self.dropping = self.dropping.without(by);
        self.holders = self.holders.without(by);
        let event = match (self.dropping.is_empty(), self.holders.has(self.requester)) {
            (false, _) => Event::Dropped,
            (true, true) => Event::AllDroppedOfHolder,
            (true, false) => Event::AllDroppedOfOther,
        };
        self.step(home, event, (self.requester, Want::Write), orders)
    }

    /// Notes that `by` has received what it asked for; `alone`: it asked to read, and no other node has a copy any more.
    pub fn installed(
        &mut self,
        home: Node,
        by: Node,
        alone: bool,
        orders: &mut Vec<Order>,
    ) -> Result<(), Impossible> {
        let event = if alone { Event::InstalledAlone } else { Event::Installed };
        if by != self.requester {
            return Err(self.impossible(event));
        }
        self.step(home, event, (by, Want::Read), orders)
    }

    /// What is wrong with an event that cannot happen now.
    fn impossible(&self, event: Event) -> Impossible {
        Impossible { state: self.state.name(), event: event.name() }
    }

    /// Makes `owner` the only node with the page after a barrier; the plan is made in `merge.rs`.
    pub(crate) fn merged(&mut self, owner: Node) {
        self.state = State::Owned;
        self.holders = Nodes::one(owner);
    }

    fn step(
        &mut self,
        home: Node,
        event: Event,
        (by, want): (Node, Want),
        orders: &mut Vec<Order>,
    ) -> Result<(), Impossible> {
        let row = table::find(TABLE, &self.state, &event);
        let row = row.ok_or_else(|| self.impossible(event))?;
        self.state = row.next;
        for action in row.actions {
            match action {
                Action::ForwardRead => {
                    let from = self.source(home);
                    orders.extend(from.map(|from| Order::Forward { from, to: by, want: Want::Read }));
                }
                Action::ForwardWrite => {
                    let from = self.source(home);
                    orders.extend(from.map(|from| Order::Forward { from, to: by, want: Want::Write }));
                }
                Action::Grant => orders.push(Order::Grant { to: by }),
                Action::InvalidateOthers => {
                    let keeps = if self.holders.has(by) { Some(by) } else { self.source(home) };
                    self.dropping = self.holders.minus(keeps.into_iter().collect());
                    orders.extend(self.dropping.iter().map(|to| Order::Invalidate { to }));
                }
                Action::Queue => self.waiting.push_back((by, want)),
                Action::AddReader => self.holders = self.holders.with(by),
                Action::SetOwner => self.holders = Nodes::one(by),
                Action::Next => {
                    if let Some((by, want)) = self.waiting.pop_front() {
                        self.ask(home, by, want, orders)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The node that sends the page: the home if it has a copy, as it needs no message to itself.
    fn source(&self, home: Node) -> Option<Node> {
        if self.holders.has(home) { Some(home) } else { self.holders.first() }
    }
}

/// The table as `docs/coherence.md` prints it.
#[must_use]
pub fn markdown() -> String {
    table::markdown(TABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_and_an_event_have_one_row_at_most() {
        for &state in State::ALL {
            for &event in Event::ALL {
                let rows = TABLE.iter().filter(|row| row.state == state && row.event == event).count();
                assert!(rows <= 1, "{state:?} + {event:?}");
            }
        }
    }

    #[test]
    fn a_writer_waits_until_every_reader_dropped_its_copy() {
        let mut entry = Entry::owned(0);
        let mut orders = Vec::new();
        for reader in [1, 2] {
            entry.ask(0, reader, Want::Read, &mut orders).unwrap();
            assert_eq!(orders, [Order::Forward { from: 0, to: reader, want: Want::Read }]);
            orders.clear();
            entry.installed(0, reader, false, &mut orders).unwrap();
        }
        entry.ask(0, 2, Want::Write, &mut orders).unwrap();
        assert_eq!(orders, [Order::Invalidate { to: 0 }, Order::Invalidate { to: 1 }]);
        orders.clear();
        // Another node's request waits its turn.
        entry.ask(0, 3, Want::Read, &mut orders).unwrap();
        entry.dropped(0, 1, &mut orders).unwrap();
        assert!(orders.is_empty());
        entry.dropped(0, 0, &mut orders).unwrap();
        assert_eq!(orders, [Order::Grant { to: 2 }]);
        orders.clear();
        entry.installed(0, 2, false, &mut orders).unwrap();
        assert_eq!(orders, [Order::Forward { from: 2, to: 3, want: Want::Read }]);
    }

    #[test]
    fn what_nobody_asked_for_is_refused() {
        let mut entry = Entry::owned(0);
        let mut orders = Vec::new();
        assert!(entry.dropped(0, 1, &mut orders).is_err());
        assert!(entry.installed(0, 0, false, &mut orders).is_err());
        assert!(entry.ask(0, 0, Want::Read, &mut orders).is_err());
    }
}
