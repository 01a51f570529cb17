//! What nodes talk and move memory through: messages, puts and gets behind one trait, over shared memory or UCX.
//!
//! [`Shm`] joins processes of one machine (over `channel/`), [`Ucx`] whatever a network lies between; [`Proven`] lets
//! nobody in who does not know the job's secret, and [`Faulty`] makes trouble for tests. One suite tests them all:
//! `tests/transport/`. [`Shared`] lets engines of `bulk/` use a transport beside its owner.
//!
//! Source: the barrelfish paper, chapters 5 and 6: messages over rings and bulk transfer between address spaces, which
//! may or may not share memory.
//!
//! # What a user of the trait can rely on
//!
//! - From one node to another, messages arrive whole, once and in the order in which they were sent. None is dropped: `send`
//!   says [`TransportError::Full`] where there is no room.
//! - A put or get ends with one [`Event::Done`], which gives its buffer back; so does a flush. Those of a lost node end
//!   with an error, before its [`Event::Lost`].
//! - When a flush has ended, all puts to that node that were started before it are in its memory. A message that is sent
//!   then is received by somebody who sees them.
//! - A node that dies is lost within seconds, and its `Lost` is the last event of it. What it sent whole before may
//!   have come or not.
//!
//! # What a user must cope with
//!
//! - Delay, of anything and of any length: all but `wait` return at once, and nothing moves but in `progress`. That holds
//!   for one-sided operations too: over TCP, UCX needs the target's `progress` to serve them.
//! - Any order between different nodes; any order of puts among themselves and against messages, unless there is a flush
//!   between them; any order of gets.
//! - Being taken for lost by others, where it does not call `progress` for seconds: see [`UcxSettings::silence`].
//! - `Full`, at any time, for any length of time.
//! - The loss of a node at any time, with messages to it that it never saw.
//!
//! Duplicates are none of these: no transport makes them, and the trait's users need not cope with any.

mod buffer;
mod error;
mod faulty;
mod key;
mod links;
mod memory;
mod proof;
mod shared;
mod shm;
mod ucx;

use std::sync::Arc;
use std::time::Duration;

pub use self::buffer::{Buffer, Piece};
pub use self::error::{KeyError, LostWhy, Refused, TransportError};
pub use self::faulty::{Faults, Faulty};
pub use self::links::{Links, NodeLink, purpose};
pub use self::memory::{Memory, OutOfMemory, OutOfRange};
pub use self::proof::{JoinError, Proven, Secret};
pub use self::shared::{Ended, Shared, User, WeakShared};

pub use self::shm::{Place, Settings as ShmSettings, Shm, ShmError, mesh};
pub use self::ucx::{LoadError, Settings as UcxSettings, Ucx, UcxError};
use crate::Node;
use crate::ring::doze::Dozer;

/// Kinds of messages from this on are for layers that stand on a transport and are one themselves. After such a message a transport
/// that knows tags tells nothing more of its sender in the same `progress`, so that the layer can set them first.
pub const RESERVED_KINDS: u16 = 0xfff0;

/// A way to the other nodes of a job. See the module's documentation for what it promises.
///
/// One thread at a time uses it; only its [`Waker`] may be used by others beside.
pub trait Transport: Send {
    /// This node.
    fn node(&self) -> Node;

    /// How many nodes the job has, this one among them.
    fn nodes(&self) -> u32;

    /// Bytes of the longest message.
    fn longest(&self) -> usize;

    /// Sends a message to another node, which gets it in its `progress`. `kind`, below [`RESERVED_KINDS`], is what its receiver makes of it.
    ///
    /// Never waits. What cannot leave at once is kept in a queue, of limited bytes for each node; where that is full the
    /// message is refused with [`TransportError::Full`], nothing of it is sent, and it is to be sent again after some `progress`;
    /// a `wait` before ends when there may be room.
    fn send(&mut self, to: Node, kind: u16, bytes: &[u8]) -> Result<(), TransportError>;

    /// Lets other nodes put to and get from `memory`. Returns its key: bytes to hand to them, which `attach` takes.
    ///
    /// It stays registered, and is kept, as long as the transport lives: whoever has the key can reach it at any time.
    fn register(&mut self, memory: Arc<Memory>) -> Result<Vec<u8>, TransportError>;

    /// Makes `key` of the memory of `owner`, another node, usable here.
    fn attach(&mut self, owner: Node, key: &[u8]) -> Result<Remote, TransportError>;

    /// Gives up what `attach` gave. Operations under way end as usual.
    fn detach(&mut self, remote: Remote);

    /// Starts to write `from` to another node's memory, `offset` bytes behind its start. The event of its end bears `token`
    /// and gives the buffer back: it was read then, but only a flush says that it has been written.
    fn put(&mut self, to: Remote, offset: u64, from: Buffer, token: u64) -> Result<(), Refused>;

    /// Starts to read from another node's memory, `offset` bytes behind its start, as many bytes as `into` has. The event
    /// of its end bears `token` and gives the buffer back, filled.
    fn get(&mut self, from: Remote, offset: u64, into: Buffer, token: u64) -> Result<(), Refused>;

    /// Starts a flush: its event comes when all puts to `node` before it are in that node's memory.
    fn flush(&mut self, node: Node, token: u64) -> Result<(), TransportError>;

    /// Moves everything on that can be moved and tells `handler` what has happened. Never waits. Returns how many events
    /// there were; an error is this node's own, and leaves no hope for any transport.
    fn progress(&mut self, handler: &mut dyn FnMut(Event<'_>)) -> Result<usize, TransportError>;

    /// Sleeps until `progress` may have something to do, somebody used the waker, or `timeout` is over (none: however long
    /// it takes). May return without a reason.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), TransportError>;

    /// Ends a `wait` from another thread.
    fn waker(&self) -> Waker;

    /// For threads, or processes that inherited this one's memory, that take turns in using the transport by a lock of theirs: lets
    /// one of them sleep for it without the lock. None where a `wait` must be by whoever uses it.
    fn doze(&self) -> Option<Doze> {
        None
    }

    /// Does something that was sent wait for room, so that somebody must call `progress` soon?
    fn is_behind(&self) -> bool {
        true
    }

    /// Takes `node` for lost from now on: nothing from it is believed any more. Its `Lost` event comes as usual.
    fn cut(&mut self, node: Node);

    /// From the next message on, those to `node` bear one tag, and from it only those that bear the other are let in.
    ///
    /// For transports to which anybody can speak who finds their address. Where the sender is known without, this does nothing.
    fn tag(&mut self, node: Node, tags: Tags);
}

impl<T: Transport + ?Sized> Transport for Box<T> {
    fn node(&self) -> Node {
        (**self).node()
    }
    fn nodes(&self) -> u32 {
        (**self).nodes()
    }
    fn longest(&self) -> usize {
        (**self).longest()
    }
    fn send(&mut self, to: Node, kind: u16, bytes: &[u8]) -> Result<(), TransportError> {
        (**self).send(to, kind, bytes)
    }
    fn register(&mut self, memory: Arc<Memory>) -> Result<Vec<u8>, TransportError> {
        (**self).register(memory)
    }
    fn attach(&mut self, owner: Node, key: &[u8]) -> Result<Remote, TransportError> {
        (**self).attach(owner, key)
    }
    fn detach(&mut self, remote: Remote) {
        (**self).detach(remote);
    }
    fn put(&mut self, to: Remote, offset: u64, from: Buffer, token: u64) -> Result<(), Refused> {
        (**self).put(to, offset, from, token)
    }
    fn get(&mut self, from: Remote, offset: u64, into: Buffer, token: u64) -> Result<(), Refused> {
        (**self).get(from, offset, into, token)
    }
    fn flush(&mut self, node: Node, token: u64) -> Result<(), TransportError> {
        (**self).flush(node, token)
    }
    fn progress(&mut self, handler: &mut dyn FnMut(Event<'_>)) -> Result<usize, TransportError> {
        (**self).progress(handler)
    }
    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), TransportError> {
        (**self).wait(timeout)
    }
    fn waker(&self) -> Waker {
        (**self).waker()
    }
    fn doze(&self) -> Option<Doze> {
        (**self).doze()
    }
    fn is_behind(&self) -> bool {
        (**self).is_behind()
    }
    fn cut(&mut self, node: Node) {
        (**self).cut(node);
    }
    fn tag(&mut self, node: Node, tags: Tags) {
        (**self).tag(node, tags);
    }
}

/// What both ends of a proof know and nobody else: see [`Transport::tag`].
#[derive(Clone, Copy, Default)]
pub struct Tags {
    /// On messages to the peer; none leaves it as it was.
    pub outgoing: Option<[u8; 16]>,
    /// On messages from the peer; none leaves it as it was.
    pub incoming: Option<[u8; 16]>,
}

/// What `progress` tells.
#[derive(Debug)]
pub enum Event<'a> {
    /// A message came.
    Message {
        /// Its sender.
        from: Node,
        /// As given to `send`.
        kind: u16,
        /// As given to `send`; copy what is to stay.
        bytes: &'a [u8],
    },
    /// A put, get or flush has ended.
    Done {
        /// As given when it was started.
        token: u64,
        /// The buffer of a put or get. None is a flush's, or that of an operation to a lost node which the network does not give back.
        buffer: Option<Buffer>,
        /// Whether it was done. After an error the buffer holds anything.
        result: Result<(), TransportError>,
    },
    /// A node knows the job's secret: messages and keys pass from now on. Only [`Proven`] tells this.
    Joined(Node),
    /// A node is gone, for good. The last event of it.
    Lost {
        /// Which.
        node: Node,
        /// Why.
        why: LostWhy,
    },
}

/// Memory of another node that this one may put to and get from, as the transport knows it that gave it out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Remote {
    /// Whose.
    owner: Node,
    /// How long.
    bytes: u64,
    /// Which transport's, and which of its own.
    transport: u32,
    number: u32,
}

impl Remote {
    /// The node whose memory it is.
    pub fn owner(&self) -> Node {
        self.owner
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// These bytes are all in it.
    fn check(&self, offset: u64, length: usize) -> Result<(), TransportError> {
        let length = length as u64;
        match offset.checked_add(length) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => {
                let Remote { owner, bytes, .. } = *self;
                Err(TransportError::OutOfRange { owner, offset, length, bytes })
            }
        }
    }
}

/// How soon somebody must look who is gone.
const LOOK: Duration = Duration::from_millis(200);

/// Sleeps in the place of who uses a transport: see [`Transport::doze`].
///
/// Whoever used the transport last called `progress` until there was nothing, and gives its lock back before anybody sleeps. Each
/// sleep ends after a fifth of a second at the latest: somebody must call `progress` then, to see who is gone.
#[derive(Clone)]
pub struct Doze(Dozer);

impl Doze {
    pub(crate) fn new(dozer: Dozer) -> Doze {
        Doze(dozer)
    }

    /// Sleeps until something comes, somebody uses the waker, `longest` is over, or a fifth of a second.
    pub fn sleep(&self, longest: Duration) {
        self.0.doze(longest.min(LOOK));
    }

    /// Whoever sleeps is not woken by what comes from now on: the caller looks itself.
    pub fn hush(&self) {
        self.0.hush();
    }

    /// Takes [`hush`](Doze::hush) back. True if something has come that `progress` was not called for: then whoever sleeps must be
    /// woken.
    #[must_use]
    pub fn unhush(&self) -> bool {
        self.0.unhush()
    }
}

/// Ends a transport's `wait` from any thread; if there is none now, the next one.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    pub(crate) fn new(wake: impl Fn() + Send + Sync + 'static) -> Waker {
        Waker(Arc::new(wake))
    }

    /// Does it.
    pub fn wake(&self) {
        (self.0)();
    }
}
