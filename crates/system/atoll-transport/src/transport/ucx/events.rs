//! Turns UCX's notes into the transport's events: messages in order, ends of operations, losses.
//!
//! `hub.rs` has the notes of UCX's callbacks; `mod.rs` has the state, `operations.rs` the operations that the user starts.

use std::time::{Duration, Instant};

use super::hub::{Arrived, Data, Op, What};
use super::peer::fetch;
use super::wire::{Class, Header};
use super::{Ended, Ucx, sys};
use crate::Node;
use crate::clock::coarse;
use crate::transport::{Event, LostReason, RESERVED_KINDS, TransportError};

/// The most calls into a busy worker in one `progress`.
const ROUNDS: usize = 64;
/// The time that the loss of a node waits for operations under way to it. UCX 1.13 does not end operations over shared memory
/// whose queue is full when its reader dies.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

impl Ucx {
    /// Handles a message that UCX delivered: reports it, holds it, or drops it. Returns the number of messages reported.
    fn take(&mut self, arrived: Arrived, handler: &mut dyn FnMut(Event<'_>)) -> usize {
        let Arrived { header, data } = arrived;
        let Some(worker) = self.worker.as_ref() else { return 0 };
        let peer = self.peers.get_mut(header.from as usize).and_then(Option::as_mut);
        let wanted = peer.filter(|peer| peer.lost.is_none());
        let tagged = wanted.as_ref().is_some_and(|peer| same(&peer.incoming_tag, &header.tag));
        let untagged_yet = wanted.as_ref().is_some_and(|peer| peer.incoming_tag == [0; 16]);
        let Some(peer) = wanted.filter(|_| tagged || untagged_yet) else {
            self.untagged += 1;
            if let Data::There(descriptor, _) = data {
                // SAFETY: a descriptor that came with this worker, released once.
                unsafe { (worker.ucx.call.am_data_release)(worker.worker, descriptor) };
            }
            return 0;
        };
        peer.heard = coarse();
        let broken = match data {
            Data::TooLong => Some("it sent a message longer than its longest"),
            Data::Here(bytes) => {
                if !peer.paused && peer.order.pass(&header) {
                    let told = self.tell(header, &bytes, handler);
                    // SAFETY: no call into UCX.
                    unsafe { self.hub.with(|hub| hub.recycle(bytes)) };
                    return told;
                }
                match peer.order.coming(header.number, bytes.len()) {
                    Ok(()) => {
                        peer.order.here(header, bytes);
                        None
                    }
                    Err(_) => Some("it numbered its messages as no node does"),
                }
            }
            Data::There(descriptor, length) => match peer.order.coming(header.number, length) {
                Ok(()) => {
                    fetch(worker, peer, header, descriptor, vec![0; length]);
                    None
                }
                Err(_) => {
                    // SAFETY: as above.
                    unsafe { (worker.ucx.call.am_data_release)(worker.worker, descriptor) };
                    Some("it numbered its messages as no node does")
                }
            },
        };
        if let Some(what) = broken {
            self.lose(header.from, LostReason::Broken(what));
            return 0;
        }
        self.tell_held(header.from, handler)
    }

    /// Reports all messages of a peer whose turn has come.
    fn tell_held(&mut self, node: u32, handler: &mut dyn FnMut(Event<'_>)) -> usize {
        let mut told = 0;
        while let Some(Some(peer)) = self.peers.get_mut(node as usize)
            && peer.lost.is_none()
            && !peer.paused
            && let Some((header, bytes)) = peer.order.next()
        {
            told += self.tell(header, &bytes, handler);
        }
        told
    }

    /// Reports a message, or does what it asks the transport to do.
    fn tell(&mut self, header: Header, bytes: &[u8], handler: &mut dyn FnMut(Event<'_>)) -> usize {
        let (Some(Some(peer)), Some(worker)) =
            (self.peers.get_mut(header.from as usize), self.worker.as_ref())
        else {
            return 0;
        };
        // A message that was held may have come before its sender's tag was known.
        if peer.incoming_tag != [0; 16] && !same(&peer.incoming_tag, &header.tag) {
            self.untagged += 1;
            return 0;
        }
        match header.class {
            Class::Hello | Class::Alive => 0,
            Class::Message => {
                if header.kind >= RESERVED_KINDS {
                    peer.paused = true;
                    self.paused.push(header.from);
                }
                handler(Event::Message { from: Node(header.from), kind: header.kind, bytes });
                1
            }
            Class::Bye => {
                peer.send(worker, self.node.0, Class::ByeSeen, 0, &[]);
                self.lose(header.from, LostReason::Closed);
                0
            }
            Class::ByeSeen => {
                peer.bye_seen = true;
                0
            }
            Class::Cut => {
                self.lose(header.from, LostReason::CutByPeer);
                0
            }
        }
    }

    /// Notes the end of an operation.
    fn finish(&mut self, op: Op, status: sys::Status) {
        let Some(ucx) = self.worker.as_ref().map(|worker| worker.ucx) else { return };
        let Some(Some(peer)) = self.peers.get_mut(op.node as usize) else { return };
        peer.under_way -= 1;
        let lost = peer.lost.is_some();
        let node = Node(op.node);
        let result = |what| match status {
            sys::OK => Ok(()),
            _ if lost => Err(TransportError::Lost(node)),
            _ => Err(TransportError::Failed { what, why: ucx.say(status) }),
        };
        match op.what {
            What::Close { .. } => {}
            What::Send { bytes, .. } => {
                peer.sends -= 1;
                if peer.sends == 0 {
                    peer.queued = 0;
                }
                // SAFETY: no call into UCX.
                unsafe { self.hub.with(|hub| hub.recycle(bytes)) };
                if status != sys::OK {
                    self.lose(op.node, LostReason::Died(ucx.say(status)));
                }
            }
            What::Fetch { header, bytes } => {
                if status == sys::OK {
                    peer.order.here(header, bytes);
                } else {
                    self.lose(op.node, LostReason::Died(ucx.say(status)));
                }
            }
            // An operation that is not noted was reported as lost already.
            What::OneSided { id, name, buffer, .. } => {
                let token = peer.tokens.remove(&id);
                let ended = |token| Ended { token, buffer: Some(buffer), result: result(name) };
                self.ended.extend(token.map(ended));
            }
            What::Flush { id } => {
                let token = peer.tokens.remove(&id);
                let ended = |token| Ended { token, buffer: None, result: result("a flush") };
                self.ended.extend(token.map(ended));
            }
        }
    }

    /// Handles everything that UCX has noted, and its consequences.
    pub(super) fn step(&mut self, handler: &mut dyn FnMut(Event<'_>)) -> usize {
        let Some(worker) = self.worker.as_mut() else { return 0 };
        for _ in 0..ROUNDS {
            if !worker.progress() {
                break;
            }
        }
        let mut told = 0;
        for node in std::mem::take(&mut self.paused) {
            if let Some(Some(peer)) = self.peers.get_mut(node as usize) {
                peer.paused = false;
            }
            told += self.tell_held(node, handler);
        }
        let hub = self.hub;
        // SAFETY: no call into UCX.
        let mut arrived = unsafe { hub.with(|hub| std::mem::take(&mut hub.arrived)) };
        for message in arrived.drain(..) {
            told += self.take(message, handler);
        }
        // SAFETY: no call into UCX.
        unsafe {
            hub.with(|hub| {
                // Fetches that ended at once may have brought more; if not, the vector is used again.
                if hub.arrived.is_empty() {
                    hub.arrived = arrived;
                }
            });
        }
        // SAFETY: no call into UCX.
        let failed = unsafe { hub.with(|hub| std::mem::take(&mut hub.failed)) };
        // SAFETY: no call into UCX.
        let mut finished = unsafe { hub.with(|hub| std::mem::take(&mut hub.finished)) };
        for (op, status) in finished.drain(..) {
            let fetched = matches!(op.what, What::Fetch { .. }).then_some(op.node);
            self.finish(*op, status);
            if let Some(node) = fetched {
                told += self.tell_held(node, handler);
            }
        }
        for (node, status) in failed {
            let Some(worker) = &self.worker else { break };
            let why = worker.ucx.say(status);
            self.lose(node, LostReason::Died(why));
        }
        self.beat();
        for node in self.deaths.look() {
            self.lose(node, LostReason::Died("its process has ended".into()));
        }
        while let Some(Ended { token, buffer, result }) = self.ended.pop_front() {
            handler(Event::Done { token, buffer, result });
            told += 1;
        }
        told + self.tell_losses(handler)
    }

    /// Tells all peers that this node is there, and declares those lost that have been silent for too long.
    fn beat(&mut self) {
        let (Some(silence), Some(worker)) = (self.settings.silence, self.worker.as_ref()) else { return };
        let now = coarse();
        let since = now.saturating_sub(self.beaten);
        if since < silence / 8 {
            return;
        }
        self.beaten = now;
        let mut silent = Vec::new();
        for peer in self.peers.iter_mut().flatten().filter(|peer| peer.lost.is_none()) {
            if since >= silence / 2 {
                // This node was away, so the peers' earlier messages are still to be read.
                peer.heard = now;
            }
            if now.saturating_sub(peer.heard) > silence {
                silent.push(peer.node);
            } else if now.saturating_sub(peer.spoke) >= silence / 4 && peer.sends == 0 {
                peer.send(worker, self.node.0, Class::Alive, 0, &[]);
            }
        }
        for node in silent {
            self.lose(node, LostReason::Died(format!("nothing was heard from it for {silence:?}")));
        }
    }

    fn tell_losses(&mut self, handler: &mut dyn FnMut(Event<'_>)) -> usize {
        let mut told = 0;
        let peers = &mut self.peers;
        self.losing.retain(|node| {
            let Some(Some(peer)) = peers.get_mut(*node as usize) else { return false };
            let now = Instant::now();
            if peer.under_way > 0 && now < *peer.patience.get_or_insert(now + PATIENCE) {
                return true;
            }
            // UCX does not give these back, and keeps their buffers.
            for (_, token) in peer.tokens.drain() {
                let result = Err(TransportError::Lost(Node(*node)));
                handler(Event::Done { token, buffer: None, result });
                told += 1;
            }
            if let (Some(why), false) = (&peer.lost, peer.told) {
                handler(Event::Lost { node: Node(*node), why: why.clone() });
                peer.told = true;
                told += 1;
            }
            false
        });
        told
    }

    /// Whether there is something to report without any call into UCX.
    pub(super) fn pending(&self) -> bool {
        // SAFETY: no call into UCX.
        let noted = unsafe {
            self.hub.with(|hub| !hub.arrived.is_empty() || !hub.finished.is_empty() || !hub.failed.is_empty())
        };
        noted || !self.ended.is_empty() || !self.paused.is_empty()
    }
}

/// Compares tags in a time that does not tell where they differ.
fn same(a: &[u8; 16], b: &[u8; 16]) -> bool {
    std::hint::black_box(u128::from_le_bytes(*a) ^ u128::from_le_bytes(*b)) == 0
}
