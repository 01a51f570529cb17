//! Makes faults over any transport, from a seed: everything that users of the trait must cope with, and duplicates, with which
//! they need not.
//!
//! [`Faulty`] stands on a transport and is one itself; the suite (`tests/transport/`) runs over it as over the bare ones.
//! Delays, refusals, puts and gets in any order, and cuts are within what the trait allows (see `mod.rs`). Duplicates are not,
//! and are made only where asked for, to test layers against a stranger who repeats messages that he heard.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Buffer, Event, Memory, RESERVED_KINDS, Refused, Remote, Tags, Transport, TransportError, Waker};
use crate::Node;

/// The faults and how often each is made, in thousandths.
#[derive(Clone, Debug)]
pub struct Faults {
    /// The seed; two with the same seed make the same choices.
    pub seed: u64,
    /// Messages, puts and gets that are delayed for some time; messages to other nodes overtake them, and puts and gets
    /// overtake each other.
    pub delayed: u32,
    /// Messages and operations that are refused as if there were no room.
    pub full: u32,
    /// Messages that are sent twice, which the trait does not allow.
    pub duplicated: u32,
    /// The node that is cut, and the number of messages to it before that.
    pub cut: Option<(Node, u64)>,
}

/// A put or get that is delayed.
struct Kept {
    put: bool,
    remote: Remote,
    offset: u64,
    buffer: Buffer,
    token: u64,
}

/// The delayed operations and messages for one node.
#[derive(Default)]
struct Peer {
    messages: VecDeque<(u16, Vec<u8>)>,
    bytes: usize,
    operations: Vec<Kept>,
    /// Calls of `progress` until something delayed is sent.
    patience: u32,
    sent: u64,
    lost: bool,
}

/// A transport with faults.
pub struct Faulty<T: Transport> {
    inner: T,
    faults: Faults,
    state: u64,
    peers: Vec<Peer>,
    attached: HashSet<Remote>,
    /// Whether something was refused although there is room.
    refused: bool,
    /// The operations that ended in this layer.
    ended: VecDeque<(u64, Buffer, TransportError)>,
}

/// The most bytes that are delayed for a node.
const MOST_KEPT: usize = 1 << 20;
/// How long a dropped transport tries to send delayed messages.
const LINGER: Duration = Duration::from_secs(2);

impl<T: Transport> Faulty<T> {
    /// The transport `inner` with `faults`.
    pub fn new(inner: T, faults: Faults) -> Faulty<T> {
        let peers = (0..inner.nodes()).map(|_| Peer::default()).collect();
        let state = faults.seed ^ u64::from(inner.node().0) << 32;
        Faulty {
            inner,
            faults,
            state,
            peers,
            attached: HashSet::new(),
            refused: false,
            ended: VecDeque::new(),
        }
    }

    fn random(&mut self) -> u64 {
        // The generator is splitmix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.state;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn happens(&mut self, of_thousand: u32) -> bool {
        self.random() % 1000 < u64::from(of_thousand)
    }

    /// Decides whether to delay what comes next for `node`.
    fn delays(&mut self, node: Node) -> bool {
        let delayed = self.happens(self.faults.delayed);
        let patience = self.random() % 8;
        let peer = &mut self.peers[node.0 as usize];
        if delayed && peer.patience == 0 {
            peer.patience = patience as u32 + 1;
        }
        delayed
    }

    /// Sends delayed messages to `node`, in their order, until there is no room.
    fn send_kept(&mut self, node: Node) {
        let peer = &mut self.peers[node.0 as usize];
        while let Some((kind, bytes)) = peer.messages.front() {
            match self.inner.send(node, *kind, bytes) {
                Err(TransportError::Full(_)) => return,
                // The node is lost: nobody gets the message.
                _ => {
                    peer.bytes -= bytes.len();
                    peer.messages.pop_front();
                }
            }
        }
    }

    /// Starts delayed puts and gets, in any order, until there is no room.
    fn start_kept(&mut self, node: Node) {
        loop {
            let count = self.peers[node.0 as usize].operations.len();
            if count == 0 {
                return;
            }
            let at = (self.random() % count as u64) as usize;
            let peer = &mut self.peers[node.0 as usize];
            let Kept { put, remote, offset, buffer, token } = peer.operations.swap_remove(at);
            let started = match put {
                true => self.inner.put(remote, offset, buffer, token),
                false => self.inner.get(remote, offset, buffer, token),
            };
            match started {
                Ok(()) => {}
                Err(Refused { why: TransportError::Full(_), buffer }) => {
                    return peer.operations.push(Kept { put, remote, offset, buffer, token });
                }
                Err(Refused { why, buffer }) => self.ended.push_back((token, buffer, why)),
            }
        }
    }

    /// Decides whether to delay an operation, after all checks that can be made at once.
    fn keeps(&mut self, remote: Remote, offset: u64, length: usize) -> Result<bool, TransportError> {
        let peer = self.peers.get(remote.owner.0 as usize);
        let certain = peer.is_some_and(|peer| !peer.lost)
            && self.attached.contains(&remote)
            && remote.check(offset, length).is_ok();
        if !certain {
            return Ok(false);
        }
        if self.happens(self.faults.full) {
            self.refused = true;
            return Err(TransportError::Full(remote.owner));
        }
        Ok(self.delays(remote.owner))
    }

    fn one_sided(&mut self, operation: Kept) -> Result<(), Refused> {
        match self.keeps(operation.remote, operation.offset, operation.buffer.len()) {
            Ok(false) => {
                let Kept { put, remote, offset, buffer, token } = operation;
                if put {
                    self.inner.put(remote, offset, buffer, token)
                } else {
                    self.inner.get(remote, offset, buffer, token)
                }
            }
            Ok(true) => {
                self.peers[operation.remote.owner.0 as usize].operations.push(operation);
                Ok(())
            }
            Err(why) => Err(Refused { why, buffer: operation.buffer }),
        }
    }

    /// Whether nothing is delayed.
    fn nothing_kept(&self) -> bool {
        self.peers.iter().all(|peer| peer.messages.is_empty() && peer.operations.is_empty())
    }

    fn count(&mut self, to: Node) {
        let peer = &mut self.peers[to.0 as usize];
        peer.sent += 1;
        if self.faults.cut.is_some_and(|(node, after)| node == to && after == peer.sent) {
            self.inner.cut(to);
        }
    }
}

impl<T: Transport> Transport for Faulty<T> {
    fn node(&self) -> Node {
        self.inner.node()
    }

    fn nodes(&self) -> u32 {
        self.inner.nodes()
    }

    fn longest(&self) -> usize {
        self.inner.longest()
    }

    fn send(&mut self, to: Node, kind: u16, bytes: &[u8]) -> Result<(), TransportError> {
        let certain = self.peers.get(to.0 as usize).is_some_and(|peer| !peer.lost)
            && to != self.inner.node()
            && bytes.len() <= self.inner.longest();
        if !certain {
            return self.inner.send(to, kind, bytes);
        }
        if self.happens(self.faults.full) {
            self.refused = true;
            return Err(TransportError::Full(to));
        }
        let delayed = self.delays(to);
        let twice = self.happens(self.faults.duplicated);
        let peer = &mut self.peers[to.0 as usize];
        if delayed || !peer.messages.is_empty() {
            if peer.bytes > MOST_KEPT {
                return Err(TransportError::Full(to));
            }
            peer.bytes += bytes.len();
            peer.messages.push_back((kind, bytes.to_vec()));
        } else {
            self.inner.send(to, kind, bytes)?;
        }
        let peer = &mut self.peers[to.0 as usize];
        if twice {
            peer.bytes += bytes.len();
            peer.messages.push_back((kind, bytes.to_vec()));
        }
        if kind < RESERVED_KINDS {
            self.count(to);
        }
        Ok(())
    }

    fn register(&mut self, memory: Arc<Memory>) -> Result<Vec<u8>, TransportError> {
        self.inner.register(memory)
    }

    fn attach(&mut self, owner: Node, key: &[u8]) -> Result<Remote, TransportError> {
        let remote = self.inner.attach(owner, key)?;
        self.attached.insert(remote);
        Ok(remote)
    }

    fn detach(&mut self, remote: Remote) {
        if self.attached.remove(&remote) {
            // Operations that were started go on.
            self.start_kept(remote.owner);
        }
        self.inner.detach(remote);
    }

    fn put(&mut self, to: Remote, offset: u64, from: Buffer, token: u64) -> Result<(), Refused> {
        self.one_sided(Kept { put: true, remote: to, offset, buffer: from, token })
    }

    fn get(&mut self, from: Remote, offset: u64, into: Buffer, token: u64) -> Result<(), Refused> {
        self.one_sided(Kept { put: false, remote: from, offset, buffer: into, token })
    }

    fn flush(&mut self, node: Node, token: u64) -> Result<(), TransportError> {
        if self.peers.get(node.0 as usize).is_some() {
            // A flush is for all puts before it.
            self.start_kept(node);
            if !self.peers[node.0 as usize].operations.is_empty() {
                return Err(TransportError::Full(node));
            }
        }
        self.inner.flush(node, token)
    }

    fn progress(&mut self, handler: &mut dyn FnMut(Event<'_>)) -> Result<usize, TransportError> {
        for number in 0..self.peers.len() {
            let peer = &mut self.peers[number];
            peer.patience = peer.patience.saturating_sub(1);
            if peer.patience == 0 {
                let messages_first = self.happens(500);
                if messages_first {
                    self.send_kept(Node(number as u32));
                }
                self.start_kept(Node(number as u32));
                self.send_kept(Node(number as u32));
            }
        }
        let (peers, ended) = (&mut self.peers, &mut self.ended);
        let mut told = 0;
        let mut inner = self.inner.progress(&mut |event| {
            if let Event::Lost { node, .. } = &event
                && let Some(peer) = peers.get_mut(node.0 as usize)
            {
                // The loss is the last event of a node.
                for Kept { buffer, token, .. } in peer.operations.drain(..) {
                    ended.push_back((token, buffer, TransportError::Lost(*node)));
                }
                while let Some((token, buffer, why)) = ended.pop_front() {
                    told += 1;
                    handler(Event::Done { token, buffer: Some(buffer), result: Err(why) });
                }
                *peer = Peer { lost: true, ..Peer::default() };
            }
            handler(event);
        })?;
        inner += told;
        while let Some((token, buffer, why)) = self.ended.pop_front() {
            inner += 1;
            handler(Event::Done { token, buffer: Some(buffer), result: Err(why) });
        }
        Ok(inner)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), TransportError> {
        let soon = Duration::from_micros(200);
        let sleeps = self.nothing_kept() && !std::mem::take(&mut self.refused);
        let timeout = if sleeps { timeout } else { Some(timeout.unwrap_or(soon).min(soon)) };
        self.inner.wait(timeout)
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn cut(&mut self, node: Node) {
        self.inner.cut(node);
    }

    fn tag(&mut self, node: Node, tags: Tags) {
        // A tag applies to messages from now on, so earlier ones are sent first.
        while self.peers.get(node.0 as usize).is_some_and(|peer| !peer.messages.is_empty()) {
            let before = self.peers[node.0 as usize].messages.len();
            self.send_kept(node);
            if self.peers[node.0 as usize].messages.len() == before {
                break;
            }
        }
        self.inner.tag(node, tags);
    }
}

impl<T: Transport> Drop for Faulty<T> {
    /// Sends what was delayed.
    fn drop(&mut self) {
        let end = Instant::now() + LINGER;
        while !self.nothing_kept() && Instant::now() < end {
            for peer in &mut self.peers {
                peer.patience = 0;
            }
            if self.progress(&mut |_| ()).is_err() {
                break;
            }
        }
    }
}
