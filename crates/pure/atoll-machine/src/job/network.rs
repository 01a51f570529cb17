//! Carries messages between simulated nodes: each pair has a link in each direction.
//!
//! It puts the agents' messages in order of arrival. The order between two nodes is kept, as the agents need it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use atoll_coherence::agent::Message;

use crate::describe::Machine;

/// The bytes of a message without a page: the line of a channel.
const LINE: u64 = 64;
/// The bytes of a page.
const PAGE: u64 = 4096;
/// The average bytes of a diff, a quarter of a page: the trace does not say which bytes were written.
const DIFF: u64 = PAGE / 4;
/// The bytes of a page's number in a list.
const NUMBER: u64 = 8;

type Said = Message<(), ()>;

/// A message that arrives.
pub(super) struct Arrival {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) clock: u64,
    pub(super) message: Said,
}

/// The links and what is on them.
pub(super) struct Network {
    nodes: usize,
    latency: u64,
    /// The picoseconds of a byte.
    byte: f64,
    /// The time at which each link is free: from `f` to `t` at `f * nodes + t`.
    free: Vec<u64>,
    /// The messages on their way, by arrival, then by number, which keeps the order of a link.
    waiting: BinaryHeap<Reverse<(u64, u64)>>,
    /// The sender, receiver and content of each message, by number; removed when it arrives.
    messages_by_number: std::collections::BTreeMap<u64, (usize, usize, Said)>,
    next: u64,
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

impl Network {
    /// Makes the network of `machine`'s link. A machine of one node gets the link of shared memory between its processes.
    pub(super) fn new(machine: &Machine, nodes: u8) -> Self {
        let nodes = usize::from(nodes);
        let link = machine.link.as_ref();
        let latency = link.map_or(200.0, |link| *link.latency_ns);
        let bandwidth = link.map_or_else(|| *machine.node().far.gb_per_s, |link| *link.gb_per_s);
        Self {
            nodes,
            latency: (latency * 1e3) as u64,
            byte: 1e3 / bandwidth,
            free: vec![0; nodes * nodes],
            waiting: BinaryHeap::new(),
            messages_by_number: std::collections::BTreeMap::new(),
            next: 0,
            messages: 0,
            bytes: 0,
        }
    }

    /// Sends the messages of node `from` at `clock`.
    pub(super) fn send(&mut self, from: usize, outbox: Vec<(u8, Said)>, clock: u64) {
        for (to, message) in outbox {
            let to = usize::from(to);
            let bytes = match &message {
                Message::Data(..) => LINE + PAGE,
                Message::Diff(..) => LINE + DIFF,
                Message::Written(pages) => LINE + NUMBER * pages.len() as u64,
                Message::Merge(orders) => {
                    let pages = orders.invalidations() + orders.keep.len() + orders.merge.len();
                    LINE + NUMBER * pages as u64
                }
                _ => LINE,
            };
            let free = &mut self.free[from * self.nodes + to];
            *free = clock.max(*free) + (bytes as f64 * self.byte) as u64;
            self.waiting.push(Reverse((*free + self.latency, self.next)));
            self.messages_by_number.insert(self.next, (from, to, message));
            self.next += 1;
            self.messages += 1;
            self.bytes += bytes;
        }
    }

    /// Returns the message that arrives next.
    pub(super) fn next(&mut self) -> Option<Arrival> {
        let Reverse((clock, number)) = self.waiting.pop()?;
        let (from, to, message) = self.messages_by_number.remove(&number)?;
        Some(Arrival { from, to, clock, message })
    }
}
