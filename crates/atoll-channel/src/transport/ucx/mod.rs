//! UCX: nodes with a network between them, over whatever it has: RDMA, TCP, or shared memory on one machine.
//!
//! Stands on Debian's `libucx`, loaded at run time (`library.rs`, `sys.rs`); the other transport is `shm/`. Each node has
//! one worker and one endpoint to each other node. Messages are UCX's active messages with a header (`wire.rs`), brought
//! into order again (`order.rs`); puts and gets are UCX's own.
//!
//! # What it protects from
//!
//! UCX listens on the devices of [`Settings::devices`] and nowhere else: on an interface's own address for TCP. It neither encrypts
//! nor signs. [`super::Proven`] keeps strangers' messages out: a message must bear a tag that only nodes know which have the
//! job's secret. But puts and gets are UCX's: over TCP they are messages of UCX's own that the target's UCX obeys, whoever sent them,
//! without asking for a key. So whoever can connect to the port can harm a node, and whoever can read the wire can read all and
//! pretend to be a node: use an interface that only the job's machines and users reach, such as a cluster's network, or `lo` on a
//! machine of one's own. And a node that has proven the secret is trusted with all registered memory of its peers.
//!
//! UCX is not made for `fork`: join after it, in the process that uses the transport. When it is loaded, its handlers for crashes
//! are not installed. Where a device needs it (RDMA cards), it patches `mmap` and its like in this process, to know when registered
//! memory goes away; `UCX_MEM_EVENTS=n` keeps it from that.

mod context;
mod deaths;
mod hub;
#[cfg(test)]
mod layout;
mod library;
mod order;
mod peer;
mod settings;
mod sys;
mod wire;

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use self::context::{Worker, check};
use self::deaths::{Deaths, Identity};
use self::hub::{Arrived, Data, HubPointer, Op, RemoteKey, What};
use self::peer::{AM_ID, Peer, fetch};
use self::wire::{Address, Class, Header};
use super::key::{Key, Kind};
use super::{
    Buffer, Event, KeyError, LostWhy, Memory, RESERVED_KINDS, Refused, Remote, Tags, Transport,
    TransportError, Waker,
};
use crate::Node;
use crate::clock::coarse;

pub use self::context::UcxError;
pub use self::library::LoadError;
pub use self::settings::Settings;

/// Callbacks into a busy worker in one `progress`.
const ROUNDS: usize = 64;

/// A node's way to the others over UCX.
pub struct Ucx {
    node: Node,
    settings: Settings,
    run: [u8; 16],
    /// None at this node's own place.
    peers: Vec<Option<Peer>>,
    remotes: HashMap<u32, Arc<RemoteKey>>,
    next_remote: u32,
    instance: u32,
    /// Memory that others may reach, with UCX's handle.
    registered: Vec<(Arc<Memory>, sys::Handle)>,
    ended: VecDeque<Ended>,
    /// Peers whose loss is to be told when nothing to them is under way any more.
    losing: Vec<u32>,
    /// Peers of which nothing more is told in this `progress`: see [`RESERVED_KINDS`].
    paused: Vec<u32>,
    hub: HubPointer,
    /// Taken when the transport is dropped.
    worker: Option<Worker>,
    wake: Arc<OwnedFd>,
    deaths: Deaths,
    /// When `beat` had its last turn.
    beaten: Duration,
    /// Messages that were thrown away as they bore no or a wrong tag.
    untagged: u64,
}

// SAFETY: UCX's handles and the hub may be used by any thread, one at a time: see `Worker`.
unsafe impl Send for Ucx {}

/// An operation that has ended and was not told yet.
struct Ended {
    token: u64,
    buffer: Option<Buffer>,
    result: Result<(), TransportError>,
}

impl Ucx {
    /// Joins a job of `nodes` nodes as `node`. `exchange` is given this node's address and returns those of all nodes, in
    /// their order; it is how the nodes find each other, so whatever starts the job provides it. All of them are believed as to
    /// which node is where.
    pub fn join(
        node: Node,
        nodes: u32,
        settings: Settings,
        exchange: impl FnOnce(Vec<u8>) -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error + Send + Sync>>,
    ) -> Result<Ucx, UcxError> {
        if node.0 >= nodes {
            return Err(UcxError::Setting(format!("{node} cannot be one of {nodes} nodes")));
        }
        if !(64..=1 << 30).contains(&settings.longest) || settings.queue > 1 << 40 {
            let longest = settings.longest;
            return Err(UcxError::Setting(format!("a longest message of {longest} bytes is not possible")));
        }
        if settings.silence.is_some_and(|silence| silence < Duration::from_millis(100)) {
            return Err(UcxError::Setting("`silence` cannot be shorter than 100 ms".into()));
        }
        let mut run = [0; 16];
        rustix::rand::getrandom(&mut run, rustix::rand::GetRandomFlags::empty())
            .map_err(|e| UcxError::Os("getrandom", e.into()))?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| UcxError::Os("eventfd", e.into()))?;
        let deaths = Deaths::new().map_err(|e| UcxError::Os("epoll_create", e))?;
        static INSTANCES: AtomicU32 = AtomicU32::new(0);
        let mut worker = Worker::new(&settings, nodes)?;
        let hub = HubPointer::new(node.0, settings.longest);
        // SAFETY: the hub is freed after the worker has ended.
        let receiving = unsafe { worker.receive(AM_ID, hub::arrived, hub.pointer()) };
        let mut this = Ucx {
            node,
            run,
            peers: Vec::new(),
            remotes: HashMap::new(),
            next_remote: 0,
            instance: INSTANCES.fetch_add(1, Ordering::Relaxed),
            registered: Vec::new(),
            ended: VecDeque::new(),
            losing: Vec::new(),
            paused: Vec::new(),
            hub,
            worker: Some(worker),
            wake: Arc::new(wake),
            deaths,
            beaten: coarse(),
            untagged: 0,
            settings,
        };
        receiving?;
        this.connect(nodes, exchange)?;
        Ok(this)
    }

    fn connect(
        &mut self,
        nodes: u32,
        exchange: impl FnOnce(Vec<u8>) -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error + Send + Sync>>,
    ) -> Result<(), UcxError> {
        let Some(worker) = self.worker.as_mut() else { return Ok(()) };
        let mine = Address {
            node: self.node.0,
            nodes,
            longest: self.settings.longest as u64,
            queue: self.settings.queue as u64,
            run: self.run,
            process: Identity::this(),
            worker: worker.address()?,
        };
        let all = exchange(mine.encode()).map_err(UcxError::Exchange)?;
        if all.len() != nodes as usize {
            let count = format!("{} addresses came for {nodes} nodes", all.len());
            return Err(UcxError::Exchange(count.into()));
        }
        let most_held = 2 * (self.settings.queue + self.settings.longest);
        for (number, bytes) in (0..).zip(&all) {
            if number == self.node.0 {
                self.peers.push(None);
                continue;
            }
            let unusable = |why: &str| UcxError::Address { node: number, why: why.to_owned() };
            let theirs = Address::decode(bytes).map_err(unusable)?;
            if (theirs.node, theirs.nodes) != (number, nodes) {
                return Err(unusable("it is another node's or another job's"));
            }
            if (theirs.longest, theirs.queue) != (mine.longest, mine.queue) {
                return Err(unusable("its settings `longest` and `queue` are not the same as here"));
            }
            let peer = Peer::connect(worker, self.hub, number, theirs.run, &theirs.worker, most_held)?;
            self.peers.push(Some(peer));
            self.deaths.watch(number, theirs.process, &mine.process);
        }
        for peer in self.peers.iter_mut().flatten() {
            peer.send(worker, self.node.0, Class::Hello, 0, &[]);
        }
        Ok(())
    }

    /// The version of UCX in use: major, minor, release.
    pub fn version(&self) -> (u32, u32, u32) {
        self.worker.as_ref().map_or((0, 0, 0), |worker| worker.ucx.version)
    }

    /// Messages that were thrown away as they did not bear their sender's tag: somebody else sent them.
    pub fn untagged(&self) -> u64 {
        self.untagged
    }

    /// The peer of that number with the worker, if it is not lost.
    fn peer(&mut self, node: Node) -> Result<(&mut Peer, &Worker), TransportError> {
        let nodes = self.peers.len() as u32;
        let peer = self.peers.get_mut(node.0 as usize).and_then(Option::as_mut);
        let (Some(peer), Some(worker)) = (peer, self.worker.as_ref()) else {
            return Err(TransportError::NoSuchNode { node, nodes });
        };
        if peer.lost.is_some() {
            return Err(TransportError::Lost(node));
        }
        Ok((peer, worker))
    }

    /// The memory behind `remote`, if it has these bytes and another operation may be started.
    fn reach(&self, remote: Remote, offset: u64, length: usize) -> Result<Arc<RemoteKey>, TransportError> {
        let key = self.remotes.get(&remote.number).filter(|_| remote.transport == self.instance);
        let key = key.ok_or(TransportError::NotAttached(remote.owner))?;
        remote.check(offset, length)?;
        Ok(key.clone())
    }

    fn one_sided(
        &mut self,
        name: &'static str,
        remote: Remote,
        offset: u64,
        buffer: Buffer,
        token: u64,
    ) -> Result<(), Refused> {
        let operations = self.settings.operations;
        let key = match self.reach(remote, offset, buffer.len()) {
            Ok(key) => key,
            Err(why) => return Err(Refused { why, buffer }),
        };
        let (peer, worker) = match self.peer(remote.owner) {
            Ok(found) => found,
            Err(why) => return Err(Refused { why, buffer }),
        };
        if peer.tokens.len() >= operations {
            return Err(Refused { why: TransportError::Full(remote.owner), buffer });
        }
        let Some(endpoint) = peer.endpoint() else {
            return Err(Refused { why: TransportError::Lost(remote.owner), buffer });
        };
        if buffer.is_empty() {
            self.ended.push_back(Ended { token, buffer: Some(buffer), result: Ok(()) });
            return Ok(());
        }
        let put = name == PUT;
        let id = peer.note(token);
        peer.start(worker, What::OneSided { id, name, buffer, remote: key }, |what, param| {
            let What::OneSided { buffer, remote, .. } = what else { return std::ptr::null_mut() };
            let (base, length) = (buffer.base().cast(), buffer.len());
            let (address, rkey) = (remote.address + offset, remote.handle);
            // SAFETY: an endpoint that was not closed and a key unpacked for it; the buffer is the operation's own,
            // and the remote range was checked against the key's.
            unsafe {
                if put {
                    (worker.ucx.call.put_nbx)(endpoint, base, length, address, rkey, param)
                } else {
                    (worker.ucx.call.get_nbx)(endpoint, base, length, address, rkey, param)
                }
            }
        });
        Ok(())
    }

    /// Takes a peer for lost: closes its endpoint, and tells of it when everything to it has ended.
    fn lose(&mut self, node: u32, why: LostWhy) {
        let (Some(Some(peer)), Some(worker)) = (self.peers.get_mut(node as usize), self.worker.as_ref())
        else {
            return;
        };
        if peer.lost.is_none() {
            let gone = matches!(why, LostWhy::Died(_) | LostWhy::CutByPeer);
            if !gone && why != LostWhy::Closed {
                peer.send(worker, self.node.0, Class::Cut, 0, &[]);
            }
            // The answer to a bye, or the word that it is cut, is still to come out, unless the peer holds that up.
            let stuck = why != LostWhy::Closed && peer.under_way > 0;
            peer.close(worker, gone || stuck);
            peer.lost = Some(why);
            self.losing.push(node);
            self.deaths.forget(node);
        }
    }

    /// Takes a message that UCX gave: tells it, holds it, or throws it away. Returns whether it was told.
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
                // SAFETY: a descriptor that came with this worker, given back once.
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
            self.lose(header.from, LostWhy::Broken(what));
            return 0;
        }
        self.tell_held(header.from, handler)
    }

    /// Tells all messages of a peer whose turn has come.
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

    /// Tells a message, or does what it asks the transport for.
    fn tell(&mut self, header: Header, bytes: &[u8], handler: &mut dyn FnMut(Event<'_>)) -> usize {
        let (Some(Some(peer)), Some(worker)) =
            (self.peers.get_mut(header.from as usize), self.worker.as_ref())
        else {
            return 0;
        };
        // One that was held may have come before its sender's tag was known.
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
                self.lose(header.from, LostWhy::Closed);
                0
            }
            Class::ByeSeen => {
                peer.bye_seen = true;
                0
            }
            Class::Cut => {
                self.lose(header.from, LostWhy::CutByPeer);
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
                    self.lose(op.node, LostWhy::Died(ucx.say(status)));
                }
            }
            What::Fetch { header, bytes } => {
                if status == sys::OK {
                    peer.order.here(header, bytes);
                } else {
                    self.lose(op.node, LostWhy::Died(ucx.say(status)));
                }
            }
            // One that is not noted was told as lost already.
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

    /// Everything that UCX has noted, and what follows from it.
    fn step(&mut self, handler: &mut dyn FnMut(Event<'_>)) -> usize {
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
                // Fetches that ended at once may have brought more; else the vector is used again.
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
            self.lose(node, LostWhy::Died(why));
        }
        self.beat();
        for node in self.deaths.look() {
            self.lose(node, LostWhy::Died("its process has ended".into()));
        }
        while let Some(Ended { token, buffer, result }) = self.ended.pop_front() {
            handler(Event::Done { token, buffer, result });
            told += 1;
        }
        told + self.tell_losses(handler)
    }

    /// Says to all that this node is there, and takes those for lost that have been silent for too long.
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
                // This node was away: what they said meanwhile is still to be read.
                peer.heard = now;
            }
            if now.saturating_sub(peer.heard) > silence {
                silent.push(peer.node);
            } else if now.saturating_sub(peer.spoke) >= silence / 4 && peer.sends == 0 {
                peer.send(worker, self.node.0, Class::Alive, 0, &[]);
            }
        }
        for node in silent {
            self.lose(node, LostWhy::Died(format!("nothing was heard from it for {silence:?}")));
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

    /// There is something to tell without any call into UCX.
    fn pending(&self) -> bool {
        // SAFETY: no call into UCX.
        let noted = unsafe {
            self.hub.with(|hub| !hub.arrived.is_empty() || !hub.finished.is_empty() || !hub.failed.is_empty())
        };
        noted || !self.ended.is_empty() || !self.paused.is_empty()
    }
}

const PUT: &str = "a put";
const GET: &str = "a get";

/// Compares tags in a time that tells nothing about where they differ.
fn same(a: &[u8; 16], b: &[u8; 16]) -> bool {
    std::hint::black_box(u128::from_le_bytes(*a) ^ u128::from_le_bytes(*b)) == 0
}

impl Transport for Ucx {
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
        let (from, longest, queue) = (self.node.0, self.settings.longest, self.settings.queue);
        if bytes.len() > longest {
            return Err(TransportError::TooLong { length: bytes.len(), longest });
        }
        let (peer, worker) = self.peer(to)?;
        if peer.sends > 0 && (peer.queued + bytes.len() > queue || peer.sends >= MOST_SENDS) {
            return Err(TransportError::Full(to));
        }
        peer.send(worker, from, Class::Message, kind, bytes);
        Ok(())
    }

    fn register(&mut self, memory: Arc<Memory>) -> Result<Vec<u8>, TransportError> {
        let failed = |why: String| TransportError::Failed { what: "registering memory", why };
        let Some(worker) = &self.worker else { return Err(failed("closed".into())) };
        let ucx = worker.ucx;
        let params = sys::MemMapParams {
            field_mask: sys::MEM_MAP_ADDRESS | sys::MEM_MAP_LENGTH,
            address: memory.base().cast(),
            length: memory.len(),
            flags: 0,
            prot: 0,
            memory_type: 0,
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: a context that lives, and memory that is kept until it was unmapped again.
        let status = unsafe { (ucx.call.mem_map)(worker.context, &raw const params, &raw mut handle) };
        check(ucx, "ucp_mem_map", status).map_err(|e| failed(e.to_string()))?;
        let (bytes, address) = (memory.len() as u64, memory.base().addr() as u64);
        self.registered.push((memory, handle));
        let (mut packed, mut length) = (std::ptr::null_mut(), 0);
        // SAFETY: the memory that was mapped above; a pointer and a length to write to.
        let status =
            unsafe { (ucx.call.rkey_pack)(worker.context, handle, &raw mut packed, &raw mut length) };
        check(ucx, "ucp_rkey_pack", status).map_err(|e| failed(e.to_string()))?;
        // SAFETY: UCX wrote that many bytes, which are its until they are released below.
        let extra = unsafe { std::slice::from_raw_parts(packed, length) }.to_vec();
        // SAFETY: as above, once.
        unsafe { (ucx.call.rkey_buffer_release)(packed) };
        Ok(Key { kind: Kind::Ucx, owner: self.node, run: self.run, bytes, address, extra }.encode())
    }

    fn attach(&mut self, owner: Node, key: &[u8]) -> Result<Remote, TransportError> {
        let (peer, worker) = self.peer(owner)?;
        let key = Key::decode(key, Kind::Ucx, owner, &peer.run);
        let unpacked = key.and_then(|key| {
            let handle = peer.unpack(worker, &key.extra).map_err(KeyError::Unreachable)?;
            Ok((key.bytes, RemoteKey { ucx: worker.ucx, handle, address: key.address }))
        });
        let (bytes, key) = unpacked.map_err(|why| TransportError::Key { owner, why })?;
        while self.remotes.contains_key(&self.next_remote) {
            self.next_remote = self.next_remote.wrapping_add(1);
        }
        let number = self.next_remote;
        self.next_remote = self.next_remote.wrapping_add(1);
        self.remotes.insert(number, Arc::new(key));
        Ok(Remote { owner, bytes, transport: self.instance, number })
    }

    fn detach(&mut self, remote: Remote) {
        if remote.transport == self.instance {
            self.remotes.remove(&remote.number);
        }
    }

    fn put(&mut self, to: Remote, offset: u64, from: Buffer, token: u64) -> Result<(), Refused> {
        self.one_sided(PUT, to, offset, from, token)
    }

    fn get(&mut self, from: Remote, offset: u64, into: Buffer, token: u64) -> Result<(), Refused> {
        self.one_sided(GET, from, offset, into, token)
    }

    fn flush(&mut self, node: Node, token: u64) -> Result<(), TransportError> {
        let operations = self.settings.operations;
        let (peer, worker) = self.peer(node)?;
        if peer.tokens.len() >= operations {
            return Err(TransportError::Full(node));
        }
        peer.flush(worker, token);
        Ok(())
    }

    fn progress(&mut self, handler: &mut dyn FnMut(Event<'_>)) -> Result<usize, TransportError> {
        Ok(self.step(handler))
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), TransportError> {
        let failed = |why: String| TransportError::Failed { what: "waiting", why };
        if self.pending() {
            return Ok(());
        }
        let Some(worker) = self.worker.as_mut() else { return Ok(()) };
        if !worker.arm().map_err(failed)? {
            return Ok(());
        }
        let event = worker.event();
        let input = PollFlags::IN;
        let mut fds = [
            PollFd::new(&event, input),
            PollFd::new(&self.wake, input),
            PollFd::new(self.deaths.event(), input),
        ];
        let losing = (!self.losing.is_empty()).then_some(PATIENCE / 10);
        let beat = self.settings.silence.map(|silence| silence / 8);
        let timeout = timeout.into_iter().chain(losing).chain(beat).min().map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) if !fds[2].revents().is_empty() => self.deaths.hurry(),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(failed(e.to_string())),
        }
        // Empty is as good.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        Ok(())
    }

    fn waker(&self) -> Waker {
        let wake = self.wake.clone();
        Waker::new(move || {
            // An error: it is full of wakes already.
            let _ = rustix::io::write(&wake, &1u64.to_ne_bytes());
        })
    }

    fn cut(&mut self, node: Node) {
        self.lose(node.0, LostWhy::Cut);
    }

    fn tag(&mut self, node: Node, tags: Tags) {
        if let Ok((peer, _)) = self.peer(node) {
            peer.outgoing_tag = tags.outgoing.unwrap_or(peer.outgoing_tag);
            peer.incoming_tag = tags.incoming.unwrap_or(peer.incoming_tag);
        }
    }
}

/// Messages under way to one node, however short.
const MOST_SENDS: usize = 16 << 10;

impl Drop for Ucx {
    /// Says goodbye: waits for the others to take what was sent, and ends everything that UCX holds.
    fn drop(&mut self) {
        let mut deadline = Instant::now() + self.settings.linger;
        for peer in self.peers.iter_mut().flatten() {
            if let Some(worker) = &self.worker {
                peer.send(worker, self.node.0, Class::Bye, 0, &[]);
            }
        }
        self.work_until(deadline, |this| {
            this.peers.iter().flatten().all(|peer| peer.lost.is_some() || peer.bye_seen)
        });
        // While the endpoints are there.
        self.remotes.clear();
        if let Some(worker) = &self.worker {
            for peer in self.peers.iter_mut().flatten() {
                let force = !peer.bye_seen;
                peer.close(worker, force);
            }
        }
        deadline = deadline.max(Instant::now() + CLOSING);
        let ended =
            self.work_until(deadline, |this| this.peers.iter().flatten().all(|peer| peer.under_way == 0));
        let Some(worker) = self.worker.take() else { return };
        if !ended {
            // UCX may still write to what it was given: that stays, for ever.
            std::mem::forget(std::mem::take(&mut self.registered));
            std::mem::forget(worker);
            return;
        }
        for (memory, handle) in self.registered.drain(..) {
            // SAFETY: mapped by `register`, unmapped once; the memory is freed behind it.
            unsafe { (worker.ucx.call.mem_unmap)(worker.context, handle) };
            drop(memory);
        }
        drop(worker);
        for peer in self.peers.drain(..).flatten() {
            // SAFETY: the worker has ended.
            unsafe { peer.free() };
        }
        // SAFETY: the worker has ended, so nobody knows the hub any more.
        unsafe { self.hub.free() };
    }
}

/// How long the loss of a node waits for what is under way to it. UCX 1.13 does not end operations over shared memory whose queue is full
/// when its reader dies.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long endpoints may take to close.
const CLOSING: Duration = Duration::from_secs(1);

impl Ucx {
    /// Works, with nobody to tell events to, until something is so; false if that was not in time.
    fn work_until(&mut self, deadline: Instant, mut so: impl FnMut(&Ucx) -> bool) -> bool {
        loop {
            self.step(&mut |_| ());
            if so(self) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.wait(Some(left)).is_err() {
                return false;
            }
        }
    }
}
