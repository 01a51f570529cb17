//! The other nodes' agents: what is said to them, gathered into few messages, and what they say.
//!
//! `agent` speaks through it, over a `messenger`; `wire` has the words.

use std::collections::VecDeque;
use std::mem;
use std::time::{Duration, Instant};

use atoll_memory::control::{EXIT_NODE, NodeCount, NodeFigures};
use atoll_memory::ending::give_up;
use atoll_transport::Node;
use atoll_transport::transport::{Doze, Event, TransportError, Waker};

use crate::messenger::Messenger;
use crate::wire::{self, Packet};

/// Packets in one message at most.
const TOGETHER: usize = 64;
/// Bytes of a sent message's memory that are kept for the next one at most: a message of 4K pages fits, one of large pages is freed.
const MOST_ROOM: usize = 1 << 20;

/// A node that is gone, and why.
pub(crate) type Lost = (Node, String);

/// The other nodes' agents.
pub(crate) struct Peers {
    messenger: Messenger,
    /// The packets for each node in this round.
    saying: Vec<Vec<Packet>>,
    /// The messages for each node that had no room.
    outgoing: Vec<VecDeque<Vec<u8>>>,
    incoming: VecDeque<(Node, Packet)>,
    lost: VecDeque<Lost>,
    /// The memory of the last message that was sent, for the next one.
    room: Vec<u8>,
    counts: &'static NodeFigures,
}

impl Peers {
    pub(crate) fn new(messenger: Messenger, counts: &'static NodeFigures) -> Peers {
        let nodes = messenger.nodes();
        Peers {
            messenger,
            saying: (0..nodes).map(|_| Vec::new()).collect(),
            outgoing: (0..nodes).map(|_| VecDeque::new()).collect(),
            incoming: VecDeque::new(),
            lost: VecDeque::new(),
            room: Vec::new(),
            counts,
        }
    }

    /// The number of this node.
    pub(crate) fn me(&self) -> u32 {
        self.messenger.node().0
    }

    /// The number of nodes.
    pub(crate) fn nodes(&self) -> u32 {
        self.messenger.nodes()
    }

    pub(crate) fn waker(&self) -> Waker {
        self.messenger.waker()
    }

    /// The bell at which a thread sleeps while others use the peers, where there is one.
    pub(crate) fn doze(&self) -> Option<Doze> {
        self.messenger.doze()
    }

    /// Takes in what has come; returns how many messages that were.
    pub(crate) fn receive(&mut self) -> usize {
        let (incoming, lost) = (&mut self.incoming, &mut self.lost);
        // A node's first trouble counts: what comes behind it, such as that the node has ended, is only what follows.
        let mut lose = |node, why| {
            if !lost.iter().any(|(other, _)| *other == node) {
                lost.push_back((node, why));
            }
        };
        let moved = self.messenger.progress(&mut |event| match event {
            Event::Message { from, bytes, .. } => match wire::decode(bytes) {
                Some(packets) => incoming.extend(packets.into_iter().map(|packet| (from, packet))),
                None => lose(from, "it says what makes no sense".to_owned()),
            },
            Event::Lost { node, why } => lose(node, why.to_string()),
            Event::Done { .. } | Event::Joined(_) => {}
        });
        moved.unwrap_or_else(|e| no_way(&e))
    }

    /// The next of what has come.
    pub(crate) fn next(&mut self) -> Option<(Node, Packet)> {
        self.incoming.pop_front()
    }

    /// Puts `packet` back in front: its turn has not come.
    pub(crate) fn put_back(&mut self, from: Node, packet: Packet) {
        self.incoming.push_front((from, packet));
    }

    /// A node that is gone: told once.
    pub(crate) fn take_lost(&mut self) -> Option<Lost> {
        self.lost.pop_front()
    }

    /// Would `take_lost` tell something?
    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Sleeps until something comes, somebody uses the waker, or `timeout` is over.
    pub(crate) fn wait(&mut self, timeout: Duration) {
        if let Err(e) = self.messenger.wait(Some(timeout)) {
            no_way(&e);
        }
    }

    pub(crate) fn broadcast(&mut self, packet: impl Fn() -> Packet) {
        for to in 0..self.nodes() {
            if to != self.me() {
                self.send(to, packet());
            }
        }
    }

    /// Says `packet` to node `to`, with the next [`Self::flush`].
    pub(crate) fn send(&mut self, to: u32, packet: Packet) {
        if let Some(saying) = self.saying.get_mut(to as usize) {
            saying.push(packet);
        }
    }

    /// Are there packets enough for a message?
    pub(crate) fn has_enough(&self) -> bool {
        self.saying.iter().any(|saying| saying.len() >= TOGETHER)
    }

    /// Sends what is to be said to node `to`, or keeps it until there is room.
    fn say(&mut self, to: u32) {
        let (Some(saying), Some(queue)) =
            (self.saying.get_mut(to as usize), self.outgoing.get_mut(to as usize))
        else {
            return;
        };
        for packets in saying.chunks(TOGETHER) {
            let bytes = wire::encode(packets, mem::take(&mut self.room));
            self.counts.add(NodeCount::Messages, 1);
            self.counts.add(NodeCount::MessageBytes, bytes.len() as u64);
            if !queue.is_empty() || !leaves(&mut self.messenger, to, &bytes) {
                queue.push_back(bytes);
            } else if bytes.capacity() <= MOST_ROOM {
                self.room = bytes;
            }
        }
        saying.clear();
    }

    /// Sends what is to be said and what had no room; returns how much of this that was.
    pub(crate) fn flush(&mut self) -> usize {
        let mut sent = 0;
        for to in 0..self.nodes() {
            self.say(to);
        }
        for (to, queue) in (0..).zip(&mut self.outgoing) {
            while queue.front().is_some_and(|bytes| leaves(&mut self.messenger, to, bytes)) {
                queue.pop_front();
                sent += 1;
            }
        }
        sent
    }

    /// Does a message wait for room?
    pub(crate) fn is_behind(&self) -> bool {
        self.messenger.is_behind() || self.outgoing.iter().any(|queue| !queue.is_empty())
    }

    /// Waits until all that was said is on its way, at most `timeout`.
    pub(crate) fn deliver(&mut self, timeout: Duration) {
        let until = Instant::now() + timeout;
        while self.flush() > 0 || self.outgoing.iter().any(|queue| !queue.is_empty()) {
            if Instant::now() > until {
                return;
            }
            self.receive();
        }
    }

    /// Waits for the others' end, as [`Messenger::outlast`].
    pub(crate) fn outlast(&mut self, timeout: Duration) {
        self.messenger.outlast(timeout);
    }
}

/// Sends `bytes`; `false` if there is no room now.
fn leaves(messenger: &mut Messenger, to: u32, bytes: &[u8]) -> bool {
    match messenger.send(Node(to), bytes) {
        Err(TransportError::Full(_)) => false,
        // A lost node is told of by its event.
        Ok(()) | Err(TransportError::Lost(_)) => true,
        Err(e) => give_up(EXIT_NODE, &format!("cannot talk to node {to}: {e}")),
    }
}

fn no_way(why: &TransportError) -> ! {
    give_up(EXIT_NODE, &format!("this node cannot talk to the others: {why}"))
}
