//! Transports, through which nodes talk and move memory: messages, puts and gets behind one trait, over shared memory or UCX.
//!
//! [`Shm`] joins processes of one machine (over `channel/`), [`Ucx`] nodes with any network between them. [`Proven`] lets in
//! only nodes that know the job's secret, and [`Faulty`] makes faults for tests. One suite tests them all: `tests/transport/`.
//! [`Shared`] lets the bulk engines of `atoll-channel` use a transport beside its owner.
//!
//! Source: the barrelfish paper, chapters 5 and 6: messages over rings and bulk transfer between address spaces, which
//! may or may not share memory.
//!
//! # What a user of the trait can rely on
//!
//! - From one node to another, messages arrive whole, once and in the order in which they were sent. None is dropped: `send`
//!   returns [`TransportError::Full`] where there is no room.
//! - A put or get ends with one [`Event::Done`], which gives its buffer back; so does a flush. Those of a lost node end
//!   with an error, before its [`Event::Lost`].
//! - When a flush has ended, all puts to that node that were started before it are in its memory. The receiver of a message
//!   that is sent after that sees them.
//! - A node that dies is lost within seconds, and its `Lost` is its last event. Messages that it sent whole before may have
//!   come or not.
//!
//! # What a user must cope with
//!
//! - Delay, of anything and of any length: all calls but `wait` return at once, and nothing moves but in `progress`. That holds
//!   for one-sided operations, too: over TCP, UCX needs the target's `progress` to serve them.
//! - Any order between different nodes; any order of puts among themselves and relative to messages, unless there is a flush
//!   between them; any order of gets.
//! - Being declared lost by others, if it does not call `progress` for seconds: see [`UcxSettings::silence`].
//! - `Full`, at any time, for any length of time.
//! - The loss of a node at any time, with messages to it that it never saw.
//!
//! Duplicates are not among these: no transport makes them, and users of the trait need not cope with any.

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
pub use self::error::{KeyError, LostReason, Refused, TransportError};
pub use self::faulty::{Faults, Faulty};
pub use self::links::{Links, NodeLink, purpose};
pub use self::memory::{Memory, OutOfMemory, OutOfRange};
pub use self::proof::{JoinError, Proven, Secret};
pub use self::shared::{Ended, Shared, User, WeakShared};

pub use self::shm::{Place, Settings as ShmSettings, Shm, ShmError, mesh};
pub use self::ucx::{LoadError, Settings as UcxSettings, Ucx, UcxError};
use crate::Node;
use crate::ring::doze::Dozer;

/// The first kind of messages for layers that stand on a transport and are one themselves. After such a message a transport
/// that knows tags reports nothing more of its sender in the same `progress`, so that the layer can set the tags first.
pub const RESERVED_KINDS: u16 = 0xfff0;

/// A connection to the other nodes of a job. The module's documentation states its promises.
///
/// One thread at a time uses it; only its [`Waker`] may be used by others meanwhile.
pub trait Transport: Send {
    /// This node's number.
    fn node(&self) -> Node;

    /// The number of nodes of the job, this one among them.
    fn nodes(&self) -> u32;

    /// The bytes of the longest message.
    fn longest(&self) -> usize;

    /// Sends a message to another node, which gets it in its `progress`. The meaning of `kind`, below [`RESERVED_KINDS`], is up
    /// to the program.
    ///
    /// Never waits. A message that cannot leave at once is kept in a queue, of limited bytes for each node. If that is full the
    /// message is refused with [`TransportError::Full`] and nothing of it is sent; it can be sent again after some `progress`.
    /// A `wait` ends when there may be room.
    fn send(&mut self, to: Node, kind: u16, bytes: &[u8]) -> Result<(), TransportError>;

    /// Lets other nodes put to and get from `memory`. Returns its key, bytes to hand to them, which `attach` takes.
    ///
    /// The memory stays registered, and is kept, as long as the transport lives: a node that has the key can reach it at any
    /// time.
    fn register(&mut self, memory: Arc<Memory>) -> Result<Vec<u8>, TransportError>;

    /// Makes the memory of `owner`, another node, usable here by its `key`.
    fn attach(&mut self, owner: Node, key: &[u8]) -> Result<Remote, TransportError>;

    /// Gives up memory that `attach` returned. Operations under way end as usual.
    fn detach(&mut self, remote: Remote);

    /// Starts to write `from` to another node's memory at `offset`. The event of its end has `token` and gives the buffer back:
    /// by then the buffer was read, but only a flush tells that the memory was written.
    fn put(&mut self, to: Remote, offset: u64, from: Buffer, token: u64) -> Result<(), Refused>;

    /// Starts to read as many bytes as `into` has from another node's memory at `offset`. The event of its end has `token` and
    /// gives the buffer back, filled.
    fn get(&mut self, from: Remote, offset: u64, into: Buffer, token: u64) -> Result<(), Refused>;

    /// Starts a flush: its event comes when all puts to `node` before it are in that node's memory.
    fn flush(&mut self, node: Node, token: u64) -> Result<(), TransportError>;

    /// Moves everything on that can be moved and reports events to `handler`. Never waits. Returns the number of events; an
    /// error is this node's own, after which the transport is of no use.
    fn progress(&mut self, handler: &mut dyn FnMut(Event<'_>)) -> Result<usize, TransportError>;

    /// Sleeps until `progress` may have something to do, somebody used the waker, or `timeout` is over (`None`: without limit).
    /// May return without a reason.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), TransportError>;

    /// Ends a `wait` from another thread.
    fn waker(&self) -> Waker;

    /// A handle by which one of several threads, or processes that inherited this one's memory, can sleep for the transport
    /// without the lock under which they take turns in using it. `None` if only the thread that uses the transport can `wait`.
    fn doze(&self) -> Option<Doze> {
        None
    }

    /// Whether something that was sent waits for room, so that somebody must call `progress` soon.
    fn is_behind(&self) -> bool {
        true
    }

    /// Declares `node` lost from now on: nothing from it is believed any more. Its `Lost` event comes as usual.
    fn cut(&mut self, node: Node);

    /// Sets tags: from the next message on, messages to `node` have one tag, and from it only those with the other tag are let
    /// in.
    ///
    /// For transports that anybody can send to who finds their address. Where the sender is known otherwise, this does nothing.
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

/// The tags that both ends of a proof know and nobody else: see [`Transport::tag`].
#[derive(Clone, Copy, Default)]
pub struct Tags {
    /// The tag of messages to the peer; `None` leaves it as it was.
    pub outgoing: Option<[u8; 16]>,
    /// The tag of messages from the peer; `None` leaves it as it was.
    pub incoming: Option<[u8; 16]>,
}

/// The events that `progress` reports.
#[derive(Debug)]
pub enum Event<'a> {
    /// A message came.
    Message {
        /// The message's sender.
        from: Node,
        /// The kind that was given to `send`.
        kind: u16,
        /// The bytes that were given to `send`, valid during the call.
        bytes: &'a [u8],
    },
    /// A put, get or flush has ended.
    Done {
        /// The token that was given when it was started.
        token: u64,
        /// The buffer of a put or get. `None` for a flush, or for an operation to a lost node if the network does not give the
        /// buffer back.
        buffer: Option<Buffer>,
        /// The result. After an error the buffer may hold anything.
        result: Result<(), TransportError>,
    },
    /// A node has proven the job's secret: messages and keys pass from now on. Only [`Proven`] reports this.
    Joined(Node),
    /// A node is lost for good. This is its last event.
    Lost {
        /// The node.
        node: Node,
        /// The reason.
        why: LostReason,
    },
}

/// Memory of another node that this one may put to and get from, as known by the transport that returned it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Remote {
    /// The memory's owner.
    owner: Node,
    /// The memory's length.
    bytes: u64,
    /// The transport's number, and the memory's number in the transport.
    transport: u32,
    number: u32,
}

impl Remote {
    /// The node whose memory it is.
    pub fn owner(&self) -> Node {
        self.owner
    }

    /// The memory's length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Checks that these bytes are all in the memory.
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

/// The longest time until somebody must check which nodes are lost.
const LOOK: Duration = Duration::from_millis(200);

/// Sleeps for the users of a transport: see [`Transport::doze`].
///
/// The last user of the transport called `progress` until there was nothing more to do, and freed its lock before anybody
/// sleeps. Each sleep ends after a fifth of a second at the latest: somebody must then call `progress`, to notice lost nodes.
#[derive(Clone)]
pub struct Doze(Dozer);

impl Doze {
    pub(crate) fn new(dozer: Dozer) -> Doze {
        Doze(dozer)
    }

    /// Sleeps until a message comes, somebody uses the waker, `longest` is over, or a fifth of a second has passed.
    pub fn sleep(&self, longest: Duration) {
        self.0.doze(longest.min(LOOK));
    }

    /// Makes later messages not wake the sleeper, because the caller handles them.
    pub fn hush(&self) {
        self.0.hush();
    }

    /// Takes [`hush`](Doze::hush) back. Returns true if something has come for which `progress` was not called: then the
    /// sleeper must be woken.
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

    /// Ends the wait.
    pub fn wake(&self) {
        (self.0)();
    }
}
