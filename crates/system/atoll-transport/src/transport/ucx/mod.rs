//! The UCX transport: nodes with a network between them, over whatever it offers: RDMA, TCP, or shared memory on one machine.
//!
//! Stands on Debian's `libucx`, loaded at run time (`library.rs`, `sys.rs`); the other transport is `shm/`. Each node has one
//! worker and one endpoint to each other node. Messages are UCX's active messages with a header (`wire.rs`), which `order.rs`
//! sorts; puts and gets are UCX's own. `operations.rs` starts operations, `events.rs` reports events.
//!
//! # What it protects from
//!
//! UCX listens only on the devices of [`Settings::devices`]: for TCP, on an interface's own address. It neither encrypts nor
//! signs. [`super::Proven`] keeps strangers' messages out: a message must bear a tag that only nodes with the job's secret
//! know. But puts and gets are UCX's: over TCP they are messages of its own that the target's UCX obeys, whoever sent them,
//! without asking for a key. So anybody who can connect to the port can harm a node, and anybody who can read the wire can read
//! everything and pretend to be a node. Use an interface that only the job's machines and users reach, such as a cluster's
//! network, or `lo` on a machine of your own. A node that has proven the secret is trusted with all registered memory of its
//! peers.
//!
//! UCX is not made for `fork`: join after it, in the process that uses the transport. UCX's handlers for crashes are not
//! installed. When it starts, over TCP too, UCX patches `mmap`, `munmap`, `madvise` and `brk` of libc in this process, to
//! notice when memory goes away that a card has registered. Only `UCX_MEM_EVENTS=n` in the environment before the process
//! starts prevents that, which is right where no RDMA is used, and wrong where it is.

mod apart;
mod context;
mod deaths;
mod events;
mod hub;
#[cfg(test)]
mod layout;
mod library;
mod operations;
mod order;
mod peer;
mod settings;
mod sys;
mod wire;

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use self::context::Worker;
use self::deaths::{Deaths, Identity};
use self::hub::{HubPointer, RemoteKey};
use self::peer::{AM_ID, Peer};
use self::wire::{Address, Class};
use super::{Buffer, LostReason, Memory, Transport, TransportError};
use crate::Node;
use crate::clock::coarse;

pub use self::context::UcxError;
use self::library::library;

pub use self::library::LoadError;
pub use self::settings::Settings;

/// A node's transport to the others over UCX.
pub struct Ucx {
    node: Node,
    settings: Settings,
    run: [u8; 16],
    /// The other nodes, by number; `None` at this node's own place.
    peers: Vec<Option<Peer>>,
    remotes: HashMap<u32, Arc<RemoteKey>>,
    next_remote: u32,
    instance: u32,
    /// Memory that others may reach, with UCX's handles.
    registered: Vec<(Arc<Memory>, sys::Handle)>,
    ended: VecDeque<Ended>,
    /// Peers whose loss is reported when all operations to them have ended.
    losing: Vec<u32>,
    /// Peers of which nothing more is reported in this `progress`: see [`RESERVED_KINDS`].
    paused: Vec<u32>,
    hub: HubPointer,
    /// The worker; taken out when the transport is dropped.
    worker: Option<Worker>,
    wake: Arc<OwnedFd>,
    deaths: Deaths,
    /// The time of the last `beat`.
    beaten: Duration,
    /// The number of messages that were dropped because they had no tag or a wrong one.
    untagged: u64,
}

// SAFETY: UCX's handles and the hub may be used by any thread, one at a time: see `Worker`.
unsafe impl Send for Ucx {}

/// An operation that has ended and was not reported yet.
struct Ended {
    token: u64,
    buffer: Option<Buffer>,
    result: Result<(), TransportError>,
}

impl Ucx {
    /// Joins a job of `nodes` nodes as `node`. `exchange` gets this node's address and returns those of all nodes, in their
    /// order; the job's starter provides it, since the nodes find each other by it. The addresses are believed.
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
        let run = crate::random::bytes().map_err(|e| UcxError::Os("getrandom", e))?;
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
        library::is_complete();
        Ok(this)
    }

    /// Joins a job of two nodes with a socket between them, over which they exchange addresses.
    pub fn join_pair(node: Node, settings: Settings, mut stream: UnixStream) -> Result<Ucx, UcxError> {
        Ucx::join(node, 2, settings, |mine| {
            stream.write_all(&u32::try_from(mine.len())?.to_le_bytes())?;
            stream.write_all(&mine)?;
            let mut length = [0; 4];
            stream.read_exact(&mut length)?;
            let mut theirs = vec![0; u32::from_le_bytes(length) as usize];
            stream.read_exact(&mut theirs)?;
            Ok(if node.0 == 0 { vec![mine, theirs] } else { vec![theirs, mine] })
        })
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

    /// Loads UCX and returns its version: major, minor, release.
    pub fn available() -> Result<(u32, u32, u32), LoadError> {
        Ok(library()?.version)
    }

    /// Loads UCX apart from the process's own libraries, with a libc of its own, if it was not loaded yet. For a process whose
    /// `malloc`, system calls or libraries are not libc's own. [`Ucx::join`] then uses that library. Each thread that is going
    /// to use the transport calls [`Ucx::enter_thread`] first.
    pub fn load_apart() -> Result<(u32, u32, u32), LoadError> {
        Ok(library::load_apart()?.version)
    }

    /// Prepares this thread for a library that [`Ucx::load_apart`] loaded; does nothing otherwise.
    pub fn enter_thread() {
        library::enter();
    }

    /// The version of UCX in use: major, minor, release.
    pub fn version(&self) -> (u32, u32, u32) {
        self.worker.as_ref().map_or((0, 0, 0), |worker| worker.ucx.version)
    }

    /// The number of messages that were dropped because they did not have their sender's tag: somebody else sent them.
    pub fn untagged(&self) -> u64 {
        self.untagged
    }
    /// The peer of that number, and the worker, if the peer is not lost.
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

    /// Declares a peer lost: closes its endpoint, and reports the loss when all operations to it have ended.
    fn lose(&mut self, node: u32, why: LostReason) {
        let (Some(Some(peer)), Some(worker)) = (self.peers.get_mut(node as usize), self.worker.as_ref())
        else {
            return;
        };
        if peer.lost.is_none() {
            let gone = matches!(why, LostReason::Died(_) | LostReason::CutByPeer);
            if !gone && why != LostReason::Closed {
                peer.send(worker, self.node.0, Class::Cut, 0, &[]);
            }
            // The answer to a bye, or the message that the peer is cut, has still to be sent, unless the peer blocks that.
            let stuck = why != LostReason::Closed && peer.under_way > 0;
            peer.close(worker, gone || stuck);
            peer.lost = Some(why);
            self.losing.push(node);
            self.deaths.forget(node);
        }
    }
}

impl Drop for Ucx {
    /// Says goodbye: waits for the others to take what was sent, and ends all that UCX holds.
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
        // Done while the endpoints still exist.
        self.remotes.clear();
        if let Some(worker) = &self.worker {
            for peer in self.peers.iter_mut().flatten() {
                let force = !peer.bye_seen;
                peer.close(worker, force);
            }
        }
        deadline = deadline.max(Instant::now() + CLOSING);
        // Operations to a peer whose loss was reported are not waited for any more.
        self.work_until(deadline, |this| {
            this.peers.iter().flatten().all(|peer| peer.under_way == 0 || peer.told)
        });
        let ended = self.peers.iter().flatten().all(|peer| peer.under_way == 0);
        let Some(worker) = self.worker.take() else { return };
        if !ended {
            // UCX may still write to memory that it was given, so that memory stays for ever.
            std::mem::forget(std::mem::take(&mut self.registered));
            std::mem::forget(worker);
            return;
        }
        for (memory, handle) in self.registered.drain(..) {
            // SAFETY: mapped by `register`, unmapped once; the memory is freed after this.
            unsafe { (worker.ucx.call.mem_unmap)(worker.context, handle) };
            drop(memory);
        }
        drop(worker);
        for peer in self.peers.drain(..).flatten() {
            // SAFETY: the worker has ended.
            unsafe { peer.free() };
        }
        // SAFETY: the worker has ended, so nobody uses the hub any more.
        unsafe { self.hub.free() };
    }
}

/// The time that endpoints may take to close.
const CLOSING: Duration = Duration::from_secs(1);

impl Ucx {
    /// Works, without reporting events, until the condition holds or the time is over.
    fn work_until(&mut self, deadline: Instant, mut so: impl FnMut(&Ucx) -> bool) {
        loop {
            self.step(&mut |_| ());
            let left = deadline.saturating_duration_since(Instant::now());
            if so(self) || left.is_zero() || self.wait(Some(left)).is_err() {
                return;
            }
        }
    }
}
