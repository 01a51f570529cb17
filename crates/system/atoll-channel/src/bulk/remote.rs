//! The engine for memory of other nodes: puts and gets of a transport.
//!
//! Stands on `transport/shared.rs` of `atoll-transport`, so that the transport's owner can receive meanwhile, in the same
//! thread or another. The local end is a mapping, which the transport reads or writes in place, without a buffer between.
//!
//! Source: the barrelfish paper, sections 5.4 (copies between address spaces that share nothing) and 6.9.1.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::bulk::engine::{Engine, Finished, Started};
use crate::bulk::error::CopyError;
use crate::bulk::memory::{Access, Memory};
use crate::bulk::transfer::Transfer;
use atoll_transport::Node;
use atoll_transport::transport::{
    self, Buffer, Ended, Piece, Refused, Remote, Shared, TransportError, User, WeakShared,
};

/// The most transfers under way.
const DEPTH: usize = 32;
/// The time after which the transport is asked again whether it has room.
const RETRY: Duration = Duration::from_micros(200);
/// The time that a dropped engine waits for transfers under way.
const LINGER: Duration = Duration::from_secs(2);

/// Memory of another node, attached until the last transfer and the last clone of the memory are gone.
struct Attached {
    shared: WeakShared,
    remote: Remote,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.shared.detach(self.remote);
    }
}

impl Memory {
    /// Memory of `owner`, another node, by the key that the owner got when it registered the memory with its transport. An
    /// engine ([`PutGet`]) of the same shared transport copies to and from it.
    pub fn of_node(
        shared: &Shared,
        owner: Node,
        key: &[u8],
        access: Access,
    ) -> Result<Memory, TransportError> {
        let remote = shared.attach(owner, key)?;
        let attached = Attached { shared: shared.weak(), remote };
        let memory = Memory::of_transport(Box::new(attached), remote.bytes(), access);
        memory.map_err(|why| TransportError::Failed { what: "attaching memory", why: why.to_string() })
    }
}

/// A transfer that was started.
struct UnderWay {
    number: u64,
    /// The local end, while the operation waits for room.
    waits: Option<Buffer>,
    put: bool,
    /// The remote end, which is kept.
    _memory: Memory,
    remote: Remote,
    offset: u64,
    /// Whether the put or get has ended.
    moved: bool,
    /// Whether a flush that covers it has ended; a get needs none.
    flushed: bool,
    outcome: Result<(), CopyError>,
}

/// The engine: copies between mappings and memory of other nodes by a transport's puts and gets.
///
/// A put is finished when a flush reports that it is in the other node's memory; one flush covers all puts that were started
/// before. If a node is lost, transfers to it end with [`CopyError::Lost`], or with [`CopyError::Transport`] if the operation
/// failed before the transport knew why. Over a network the other node must make progress in its own transport, or nothing
/// moves.
///
/// A dropped engine waits for its transfers for two seconds at most. Those of a node that does not answer in that time keep
/// their memory until they end, the node is lost, or the transport is dropped, as a late get may still write to it.
///
/// An engine cannot be used in the handler of its transport ([`Shared::new`]).
pub struct PutGet {
    name: &'static str,
    user: User,
    transfers: BTreeMap<u32, UnderWay>,
    /// The transfers that wait for room in the transport, in their order.
    waiting: VecDeque<u32>,
    /// The puts that were started and are not covered by a flush, by node.
    unflushed: BTreeMap<Node, Vec<u32>>,
    /// The flushes under way, and the puts that each covers.
    flushes: BTreeMap<u32, Vec<u32>>,
    next: u32,
    ended: Vec<Ended>,
}

fn failed(why: &TransportError) -> CopyError {
    match why {
        TransportError::Lost(node) => CopyError::Lost(*node),
        _ => CopyError::Transport,
    }
}

impl PutGet {
    /// The usual name of an engine over shared memory.
    pub const SHM: &'static str = "shm-put-get";
    /// The usual name of an engine over UCX.
    pub const UCX: &'static str = "ucx";

    /// An engine over `shared`, with the name by which a manager knows it: one for each transport.
    pub fn new(name: &'static str, shared: &Shared) -> Result<PutGet, TransportError> {
        Ok(PutGet {
            name,
            user: shared.user()?,
            transfers: BTreeMap::new(),
            waiting: VecDeque::new(),
            unflushed: BTreeMap::new(),
            flushes: BTreeMap::new(),
            next: 0,
            ended: Vec::new(),
        })
    }

    /// The remote memory, if it is of this engine's transport.
    fn remote(&self, memory: &Memory) -> Option<Remote> {
        let attached: &Attached = memory.remote()?;
        self.user.is(&attached.shared).then_some(attached.remote)
    }

    /// A number that nothing under way has.
    fn number(&mut self) -> u32 {
        loop {
            let number = self.next;
            self.next = self.next.wrapping_add(1);
            if !self.transfers.contains_key(&number) && !self.flushes.contains_key(&number) {
                return number;
            }
        }
    }

    /// Starts the transfers that wait for room, as far as there is room.
    fn launch(&mut self) -> Result<(), TransportError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let mut turn = self.user.turn()?;
        let mut full: Vec<Node> = Vec::new();
        // Dropped when the transport is no longer in use, because memory is released with them.
        let mut refused = Vec::new();
        let (transfers, unflushed) = (&mut self.transfers, &mut self.unflushed);
        self.waiting.retain(|number| {
            let Some(transfer) = transfers.get_mut(number) else { return false };
            let node = transfer.remote.owner();
            if full.contains(&node) {
                return true;
            }
            let Some(buffer) = transfer.waits.take() else { return false };
            let (remote, offset) = (transfer.remote, transfer.offset);
            let started = match transfer.put {
                true => turn.put(remote, offset, buffer, *number),
                false => turn.get(remote, offset, buffer, *number),
            };
            match started {
                Ok(()) if transfer.put => unflushed.entry(node).or_default().push(*number),
                Ok(()) => {}
                Err(Refused { why: TransportError::Full(_), buffer }) => {
                    transfer.waits = Some(buffer);
                    full.push(node);
                    return true;
                }
                Err(why) => refused.push((*number, why)),
            }
            false
        });
        drop(turn);
        for (number, Refused { why, .. }) in refused {
            self.end(number, Err(failed(&why)));
        }
        Ok(())
    }

    /// Starts a flush for puts that have none, as far as there is room.
    fn flush(&mut self) -> Result<(), TransportError> {
        let nodes: Vec<Node> = self.unflushed.keys().copied().collect();
        for node in nodes {
            let number = self.number();
            let flushed = self.user.turn()?.flush(node, number);
            if matches!(flushed, Err(TransportError::Full(_))) {
                continue;
            }
            let puts = self.unflushed.remove(&node).unwrap_or_default();
            match flushed {
                Ok(()) => drop(self.flushes.insert(number, puts)),
                // The puts' own ends come as well, as for a lost node.
                Err(why) => puts.into_iter().for_each(|put| self.flushed(put, Err(failed(&why)))),
            }
        }
        Ok(())
    }

    /// Notes that a put is in the other node's memory, or that this will never be known.
    fn flushed(&mut self, number: u32, outcome: Result<(), CopyError>) {
        if let Some(transfer) = self.transfers.get_mut(&number) {
            transfer.flushed = true;
            transfer.outcome = transfer.outcome.and(outcome);
        }
    }

    /// Ends a transfer, of which nothing comes any more.
    fn end(&mut self, number: u32, outcome: Result<(), CopyError>) {
        self.flushed(number, outcome);
        if let Some(transfer) = self.transfers.get_mut(&number) {
            transfer.moved = true;
        }
    }

    /// Moves everything on, and appends finished transfers.
    fn step(&mut self, finished: &mut Vec<Finished>) {
        let mut ended = std::mem::take(&mut self.ended);
        let gone = self.launch().and_then(|()| self.flush()).and_then(|()| self.user.progress(&mut ended));
        for (number, _, result) in ended.drain(..) {
            let outcome = result.map_err(|why| failed(&why));
            if let Some(puts) = self.flushes.remove(&number) {
                puts.into_iter().for_each(|put| self.flushed(put, outcome));
            } else if let Some(transfer) = self.transfers.get_mut(&number) {
                transfer.moved = true;
                transfer.outcome = transfer.outcome.and(outcome);
            }
        }
        self.ended = ended;
        if let Err(why) = gone {
            // The transport of this node has failed, so nothing will come.
            let all: Vec<u32> = self.transfers.keys().copied().collect();
            all.into_iter().for_each(|number| self.end(number, Err(failed(&why))));
        }
        self.transfers.retain(|_, transfer| {
            let over = transfer.moved && transfer.flushed;
            if over {
                finished.push((transfer.number, transfer.outcome));
            }
            !over
        });
    }
}

impl Engine for PutGet {
    fn name(&self) -> &'static str {
        self.name
    }

    fn reaches(&self, to: &Memory, from: &Memory) -> bool {
        (to.mapped_at().is_some() && self.remote(from).is_some())
            || (from.mapped_at().is_some() && self.remote(to).is_some())
    }

    fn depth(&self) -> usize {
        DEPTH
    }

    fn start(&mut self, transfer: &Transfer<'_>, number: u64) -> Result<Started, CopyError> {
        let ends = transfer.ends().and_then(|ends| Some((self.remote(ends.far)?, ends)));
        let Some((remote, ends)) = ends else { return Err(CopyError::unreachable(transfer)) };
        if transfer.bytes() == 0 {
            return Ok(Started::Done);
        }
        if self.transfers.len() >= DEPTH {
            return Err(CopyError::Full);
        }
        let bytes = transfer.bytes() as usize;
        // SAFETY: a checked transfer: the range is inside the mapping, and writable if it is written. The mapping's memory is
        // the keeper, and nobody has references into it.
        let piece = unsafe { transport::Memory::kept(ends.address, bytes, Box::new(ends.near.clone())) };
        let piece = Piece::new(Arc::new(piece), 0, bytes).map_err(|_| CopyError::Transport)?;
        let under_way = UnderWay {
            number,
            waits: Some(Buffer::Piece(piece)),
            put: !ends.reading,
            _memory: ends.far.clone(),
            remote,
            offset: ends.far_offset,
            moved: false,
            flushed: ends.reading,
            outcome: Ok(()),
        };
        let own = self.number();
        self.transfers.insert(own, under_way);
        self.waiting.push_back(own);
        let launched = self.launch().map_err(|why| failed(&why));
        let refused = self.transfers.get(&own).map_or(Ok(()), |under_way| under_way.outcome);
        if let Err(why) = launched.and(refused) {
            self.waiting.retain(|number| *number != own);
            self.transfers.remove(&own);
            return Err(why);
        }
        Ok(Started::Pending)
    }

    fn progress(&mut self, finished: &mut Vec<Finished>, wait: Duration) {
        let before = finished.len();
        let end = Instant::now().checked_add(wait);
        loop {
            let seen = self.user.seen();
            self.step(finished);
            if finished.len() > before || self.transfers.is_empty() || wait.is_zero() {
                return;
            }
            let left = end.map_or(wait, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return;
            }
            let room = self.waiting.is_empty() && self.unflushed.is_empty();
            let left = if room { left } else { left.min(RETRY) };
            // The error comes again in the next step.
            let _ = self.user.wait(seen, left);
        }
    }
}

impl Drop for PutGet {
    fn drop(&mut self) {
        let end = Instant::now() + LINGER;
        let mut finished = Vec::new();
        // Transfers that wait for room are not begun any more.
        for number in std::mem::take(&mut self.waiting) {
            self.transfers.remove(&number);
        }
        while !self.transfers.is_empty() && Instant::now() < end {
            self.progress(&mut finished, end.saturating_duration_since(Instant::now()));
        }
    }
}
