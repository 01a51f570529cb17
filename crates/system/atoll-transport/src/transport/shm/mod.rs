//! The shared-memory transport: its nodes are processes (or threads) of one machine.
//!
//! Stands on `channel/`, with one channel between every two nodes and all of a node's in one wait set; the other transport is
//! `ucx/`. Puts and gets are done at once, by this node alone (`reach.rs`): the other need not do anything.
//!
//! Only processes of the same user that reach the job's private directory, or inherit its sockets, can be nodes; the sender of
//! a message is known from its ring. A node trusts the others with its registered memory, and as they are the same user's
//! processes, with all of its memory.
//!
//! Source: the barrelfish paper, sections 5.5 and 6.7 (channels), 6.10 (who copies).

mod join;
mod parcels;
mod peer;
mod reach;

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use self::join::{Meeting, Met};
use self::peer::Peer;
use self::reach::{Direction, Reach};
use super::key::{Key, Kind};
use super::{
    Buffer, Doze, Event, KeyError, LostReason, Memory, Refused, Remote, Tags, Transport, TransportError,
    Waker,
};
use crate::Node;
use crate::channel::{self, Message, RecvError, Token, WaitSet};

pub use self::join::{Place, ShmError, mesh};

/// The settings; `lines` and `longest` must be the same on all nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The lines of 64 bytes of each ring, of which every two nodes have two: see [`crate::Settings::lines`].
    pub lines: u32,
    /// How often a waiting node checks before it sleeps.
    pub spins: u32,
    /// The bytes of the longest message, 64 to 1 GiB.
    pub longest: usize,
    /// The bytes of messages that may wait for room to one node before `Full`.
    pub queue: usize,
    /// How long a dropped transport waits for others to make room for what was sent.
    pub linger: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            lines: channel::DEFAULT_LINES,
            spins: channel::DEFAULT_SPINS,
            longest: 1 << 20,
            queue: 4 << 20,
            linger: Duration::from_secs(2),
        }
    }
}

impl Settings {
    /// The bytes of the largest part of a message, with its first byte: a ring whose lines were all read has room for it.
    fn part(&self) -> usize {
        (self.lines as usize / 2).max(1) * 56
    }

    /// The settings of the channels.
    fn channel(&self) -> channel::Settings {
        let longest = self.part().min(channel::MOST_LONGEST);
        channel::Settings { lines: self.lines, longest, spins: self.spins, ..channel::Settings::default() }
    }
}

/// The most messages that one `progress` takes from all channels.
const BUDGET: usize = 1024;
/// The time after which a sleeping node checks again whether there is room for waiting messages.
const RETRY: Duration = Duration::from_micros(100);

/// A node's transport to the others on its machine.
pub struct Shm {
    node: Node,
    settings: Settings,
    run: [u8; 16],
    /// The other nodes, by number; `None` at this node's own place.
    peers: Vec<Option<Peer>>,
    set: WaitSet,
    senders: HashMap<Token, u32>,
    waker: Waker,
    remotes: HashMap<u32, (Node, Reach)>,
    next_remote: u32,
    instance: u32,
    registered: Vec<Arc<Memory>>,
    ended: VecDeque<(u64, Option<Buffer>, Result<(), TransportError>)>,
    losses: VecDeque<(u32, LostReason)>,
    /// The peers with messages that wait for room.
    waiting: Vec<u32>,
    message: Message,
}

impl Shm {
    /// Joins as the node of one of the places of a [`mesh`]. Waits for the others for at most `timeout`.
    pub fn join(place: Place, settings: Settings, timeout: Duration) -> Result<Shm, ShmError> {
        let nodes = place.nodes();
        Shm::new(place.node, nodes, settings, timeout, |meeting| meeting.at(place))
    }

    /// Joins, as `node`, the `nodes` nodes that meet in `directory`, which must be this user's with mode 0700. Waits for the
    /// others for at most `timeout`.
    pub fn join_in(
        directory: &Path,
        node: Node,
        nodes: u32,
        settings: Settings,
        timeout: Duration,
    ) -> Result<Shm, ShmError> {
        Shm::new(node, nodes, settings, timeout, |meeting| meeting.in_directory(directory))
    }

    fn new(
        node: Node,
        nodes: u32,
        settings: Settings,
        timeout: Duration,
        meet: impl FnOnce(&Meeting<'_>) -> Result<Vec<Option<Met>>, ShmError>,
    ) -> Result<Shm, ShmError> {
        if node.0 >= nodes {
            return Err(ShmError::Setting(format!("{node} cannot be one of {nodes} nodes")));
        }
        if !(64..=channel::MOST_LONGEST).contains(&settings.longest) {
            let longest = settings.longest;
            return Err(ShmError::Setting(format!("a longest message of {longest} bytes is not possible")));
        }
        let run = crate::random::bytes().map_err(|e| ShmError::Os("getrandom", e))?;
        let mut set = WaitSet::new(nodes)?;
        set.set_spins(settings.spins);
        let interrupter = set.interrupter();
        let waker = Waker::new(move || interrupter.interrupt());
        let end = Instant::now() + timeout.min(Duration::from_secs(1 << 30));
        let met = meet(&Meeting { node, nodes, run, settings: &settings, set: &set, end })?;
        let mut senders = HashMap::new();
        let mut peers = Vec::new();
        for (number, met) in (0..).zip(met) {
            let Some(Met { channel, run, parcels }) = met else {
                peers.push(None);
                continue;
            };
            let token = add(&mut set, channel.receiver)?;
            senders.insert(token, number);
            peers.push(Some(Peer::new(channel.sender, token, run, parcels, settings.part())));
        }
        static INSTANCES: AtomicU32 = AtomicU32::new(1 << 31);
        Ok(Shm {
            node,
            settings,
            run,
            peers,
            set,
            senders,
            waker,
            remotes: HashMap::new(),
            next_remote: 0,
            instance: INSTANCES.fetch_add(1, Ordering::Relaxed),
            registered: Vec::new(),
            ended: VecDeque::new(),
            losses: VecDeque::new(),
            waiting: Vec::new(),
            message: Message::default(),
        })
    }

    fn peer(&mut self, node: Node) -> Result<&mut Peer, TransportError> {
        let nodes = self.peers.len() as u32;
        match self.peers.get_mut(node.0 as usize).and_then(Option::as_mut) {
            None => Err(TransportError::NoSuchNode { node, nodes }),
            Some(peer) if peer.lost.is_some() => Err(TransportError::Lost(node)),
            Some(peer) => Ok(peer),
        }
    }

    fn lose(&mut self, node: u32, why: LostReason) {
        if let Some(Some(peer)) = self.peers.get_mut(node as usize)
            && peer.lost.is_none()
        {
            peer.lost = Some(why.clone());
            peer.close();
            drop(self.set.remove(peer.token));
            self.senders.remove(&peer.token);
            self.losses.push_back((node, why));
        }
    }

    /// Receives from the channel that is ready, and reports the message if it is whole.
    fn receive(&mut self, token: Token, handler: &mut dyn FnMut(Event<'_>)) -> usize {
        let Some(receiver) = self.set.get(token) else { return 0 };
        let received = receiver.try_recv(&mut self.message);
        let Some(&from) = self.senders.get(&token) else { return 0 };
        let Some(Some(peer)) = self.peers.get_mut(from as usize) else { return 0 };
        let Message { kind, bytes } = &mut self.message;
        let why = match received {
            Ok(false) => return 0,
            Ok(true) => match peer.take(*kind, bytes, self.settings.longest) {
                Ok(false) => return 0,
                Ok(true) => {
                    handler(Event::Message { from: Node(from), kind: *kind, bytes: &bytes[1..] });
                    return 1;
                }
                Err(why) => why,
            },
            Err(RecvError::Closed) => LostReason::Closed,
            Err(RecvError::PeerDied) => LostReason::Died("its process has ended".into()),
            Err(_) => LostReason::Broken("its channel contains bytes that no sender writes"),
        };
        self.lose(from, why);
        0
    }

    /// Sends waiting messages, as far as there is room.
    fn pump(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|node| {
            let Some(Some(peer)) = self.peers.get_mut(*node as usize) else { return false };
            match peer.pump() {
                Ok(()) => peer.waits(),
                Err(why) => {
                    self.lose(*node, why);
                    false
                }
            }
        });
        self.waiting = waiting;
    }

    fn one_sided(
        &mut self,
        remote: Remote,
        offset: u64,
        mut buffer: Buffer,
        token: u64,
        direction: Direction,
    ) -> Result<(), Refused> {
        let ready = self.peer(remote.owner).map(|peer| peer.process.clone()).and_then(|process| {
            remote.check(offset, buffer.len())?;
            Ok(process)
        });
        let reach = self.remotes.get(&remote.number).filter(|_| remote.transport == self.instance);
        let (process, (_, reach)) = match (ready, reach) {
            (Ok(process), Some(reach)) => (process, reach),
            (Ok(_), None) => return Err(Refused { why: TransportError::NotAttached(remote.owner), buffer }),
            (Err(why), _) => return Err(Refused { why, buffer }),
        };
        // Once the process has ended, its number may stand for another process.
        if matches!(reach, Reach::Process(..)) && process.died() {
            return Err(Refused { why: TransportError::Lost(remote.owner), buffer });
        }
        let (local, length) = (buffer.base(), buffer.len());
        // SAFETY: the buffer is valid for as many bytes as it has, and the range was checked against the memory's length.
        let done = unsafe { reach.copy(offset, local, length, direction) };
        let what = if direction == Direction::Put { "a put" } else { "a get" };
        let result = done.map_err(|e| TransportError::Failed { what, why: e.to_string() });
        self.ended.push_back((token, Some(buffer), result));
        Ok(())
    }
}

impl Place {
    /// The number of nodes.
    pub fn nodes(&self) -> u32 {
        self.len()
    }
}

fn add(set: &mut WaitSet, receiver: channel::Receiver) -> Result<Token, ShmError> {
    set.add(receiver).map_err(|e| ShmError::Os("the wait set", std::io::Error::other(e.to_string())))
}

impl Transport for Shm {
    fn node(&self) -> Node {
        self.node
    }

    fn nodes(&self) -> u32 {
        self.peers.len() as u32
    }

    fn longest(&self) -> usize {
        self.settings.longest
    }

    fn send(&mut self, to: Node, kind: u16, bytes: &[u8]) -> Result<(), TransportError> {
        let (longest, queue) = (self.settings.longest, self.settings.queue);
        if bytes.len() > longest {
            return Err(TransportError::TooLong { length: bytes.len(), longest });
        }
        let peer = self.peer(to)?;
        let waited = peer.waits();
        if waited && peer.queued + bytes.len() > queue {
            return Err(TransportError::Full(to));
        }
        if let Err(why) = peer.send(kind, bytes) {
            self.lose(to.0, why);
            return Err(TransportError::Lost(to));
        }
        if !waited && peer.waits() {
            self.waiting.push(to.0);
        }
        Ok(())
    }

    fn register(&mut self, memory: Arc<Memory>) -> Result<Vec<u8>, TransportError> {
        let key = reach::key(&memory, self.node, self.run);
        self.registered.push(memory);
        Ok(key)
    }

    fn attach(&mut self, owner: Node, key: &[u8]) -> Result<Remote, TransportError> {
        let peer = self.peer(owner)?;
        let reached = Key::decode(key, Kind::Shm, owner, &peer.run)
            .and_then(|key| Ok((key.bytes, reach::reach(&key, &peer.process)?)));
        let (bytes, reach) = match reached {
            Ok(reached) => reached,
            Err(KeyError::Unreachable(_)) if peer.process.died() => return Err(TransportError::Lost(owner)),
            Err(why) => return Err(TransportError::Key { owner, why }),
        };
        while self.remotes.contains_key(&self.next_remote) {
            self.next_remote = self.next_remote.wrapping_add(1);
        }
        let number = self.next_remote;
        self.next_remote = self.next_remote.wrapping_add(1);
        self.remotes.insert(number, (owner, reach));
        Ok(Remote { owner, bytes, transport: self.instance, number })
    }

    fn detach(&mut self, remote: Remote) {
        if remote.transport == self.instance {
            self.remotes.remove(&remote.number);
        }
    }

    fn put(&mut self, to: Remote, offset: u64, from: Buffer, token: u64) -> Result<(), Refused> {
        self.one_sided(to, offset, from, token, Direction::Put)
    }

    fn get(&mut self, from: Remote, offset: u64, into: Buffer, token: u64) -> Result<(), Refused> {
        self.one_sided(from, offset, into, token, Direction::Get)
    }

    fn flush(&mut self, node: Node, token: u64) -> Result<(), TransportError> {
        self.peer(node)?;
        // Puts are in memory when they have been started, before anything that this thread writes later.
        std::sync::atomic::fence(Ordering::SeqCst);
        self.ended.push_back((token, None, Ok(())));
        Ok(())
    }

    fn progress(&mut self, handler: &mut dyn FnMut(Event<'_>)) -> Result<usize, TransportError> {
        self.pump();
        let mut told = 0;
        for _ in 0..BUDGET {
            let Some(token) = self.set.wait(Some(Duration::ZERO)) else { break };
            told += self.receive(token, handler);
        }
        while let Some((token, buffer, result)) = self.ended.pop_front() {
            handler(Event::Done { token, buffer, result });
            told += 1;
        }
        while let Some((node, why)) = self.losses.pop_front() {
            handler(Event::Lost { node: Node(node), why });
            told += 1;
        }
        Ok(told)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), TransportError> {
        if !self.ended.is_empty() || !self.losses.is_empty() {
            return Ok(());
        }
        let timeout =
            if self.waiting.is_empty() { timeout } else { Some(timeout.unwrap_or(RETRY).min(RETRY)) };
        // A ready channel stays ready for `progress`.
        self.set.wait(timeout);
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn doze(&self) -> Option<Doze> {
        Some(Doze::new(self.set.dozer()))
    }

    fn is_behind(&self) -> bool {
        !self.waiting.is_empty() || !self.ended.is_empty() || !self.losses.is_empty()
    }

    fn cut(&mut self, node: Node) {
        self.lose(node.0, LostReason::Cut);
    }

    /// Does nothing, as the ring tells the sender.
    fn tag(&mut self, _node: Node, _tags: Tags) {}
}

impl Drop for Shm {
    /// Waits for room for what was sent; then the others see this node close.
    fn drop(&mut self) {
        let end = Instant::now() + self.settings.linger;
        while !self.waiting.is_empty() && Instant::now() < end {
            let _ = self.progress(&mut |_| ());
            let _ = self.wait(Some(RETRY));
        }
    }
}
