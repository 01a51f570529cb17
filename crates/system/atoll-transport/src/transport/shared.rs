//! One transport that several users share, in one thread or more: its owner, who sends and receives, and engines that put and
//! get.
//!
//! [`Shared`] stands on any transport; the engine is `bulk/remote.rs` of `atoll-channel`. A user that moves the transport on
//! does so for all: the ends of an engine's operations are kept for that engine, and all other events go to the owner's handler
//! at once, in whichever thread that is, so messages are not kept here. One thread sleeps in the transport, the others until
//! that one has woken.
//!
//! Source: the barrelfish paper, sections 6.9.1 and 6.9.3 (one device, requests of many clients).

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use super::{Buffer, Event, Memory, Refused, Remote, Transport, TransportError, Waker};
use crate::Node;

/// A handle to a shared transport; clones are handles to the same one, which is dropped with the last of them and of the
/// engines that use it.
///
/// The handler is called while the transport is in use, so it cannot send or do anything else: as with a transport's own
/// `progress`, that has to be done afterwards. A handle that is used in a handler returns an error, and one that a handler owns
/// keeps the transport for ever.
pub struct Shared {
    hub: Arc<Hub>,
    /// The value of `news` at this handle's last `progress`.
    seen: AtomicU64,
}

/// An operation of an engine that has ended: its number, its buffer and its result.
pub type Ended = (u32, Option<Buffer>, Result<(), TransportError>);

pub(super) struct Hub {
    state: Mutex<State>,
    /// The number of threads that wait for the transport, to which a sleeping thread leaves it.
    wanting: AtomicUsize,
    waker: Waker,
    rest: Mutex<Rest>,
    changed: Condvar,
    node: Node,
    nodes: u32,
    longest: usize,
}

struct State {
    transport: Box<dyn Transport>,
    handler: Box<dyn FnMut(Event<'_>) + Send>,
    /// The operations that have ended, by engine.
    ended: HashMap<u32, Arc<Mutex<Vec<Ended>>>>,
    next: u32,
}

struct Rest {
    /// Whether a thread sleeps in the transport.
    asleep: bool,
    /// A number that changes whenever an event was reported, or somebody used a waker.
    news: u64,
}

thread_local! {
    /// Whether a handler is running in this thread.
    static HANDLING: Cell<bool> = const { Cell::new(false) };
}

/// A guard that lives while a handler runs.
struct Handling;

impl Handling {
    fn begin() -> Handling {
        HANDLING.set(true);
        Handling
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        HANDLING.set(false);
    }
}

/// A guard that lives while this thread sleeps in the transport.
struct Asleep<'a>(&'a Hub);

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        lock(&self.0.rest).asleep = false;
        self.0.changed.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks that this thread does not use the transport already.
fn outside_handlers() -> Result<(), TransportError> {
    let why = "a handler of events cannot use a shared transport";
    if HANDLING.get() {
        return Err(TransportError::Failed { what: "using the transport", why: why.into() });
    }
    Ok(())
}

/// An engine's token, as the transport carries it.
fn token(user: u32, number: u32) -> u64 {
    u64::from(user) << 32 | u64::from(number)
}

impl State {
    /// Moves everything on; buffers of engines that are gone are added to `orphans`.
    fn progress(&mut self, orphans: &mut Vec<Buffer>) -> Result<usize, TransportError> {
        let State { transport, handler, ended, .. } = self;
        let _handling = Handling::begin();
        transport.progress(&mut |event| match event {
            Event::Done { token, buffer, result } => match ended.get(&((token >> 32) as u32)) {
                Some(ended) => lock(ended).push((token as u32, buffer, result)),
                None => orphans.extend(buffer),
            },
            event => handler(event),
        })
    }
}

impl Hub {
    /// Locks the transport, which a thread that sleeps in it gives up.
    fn state(&self) -> Result<MutexGuard<'_, State>, TransportError> {
        outside_handlers()?;
        match self.state.try_lock() {
            Ok(state) => return Ok(state),
            Err(TryLockError::Poisoned(state)) => return Ok(state.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
        self.wanting.fetch_add(1, Ordering::SeqCst);
        self.waker.wake();
        let state = lock(&self.state);
        self.wanting.fetch_sub(1, Ordering::SeqCst);
        Ok(state)
    }

    /// Moves everything on, unless a thread sleeps: then nothing has happened, and that thread wakes if something does.
    fn progress(&self) -> Result<usize, TransportError> {
        if lock(&self.rest).asleep {
            return Ok(0);
        }
        if self.wanting.load(Ordering::SeqCst) > 0 {
            // A thread that checks repeatedly would keep the others out.
            std::thread::yield_now();
        }
        let mut orphans = Vec::new();
        let told = self.state()?.progress(&mut orphans);
        if told != Ok(0) {
            self.tell();
        }
        told
    }

    fn news(&self) -> u64 {
        lock(&self.rest).news
    }

    fn tell(&self) {
        let mut rest = lock(&self.rest);
        rest.news = rest.news.wrapping_add(1);
        self.changed.notify_all();
    }

    /// Sleeps until there may be something to do, unless there was news since `seen`.
    fn wait(&self, seen: u64, timeout: Option<Duration>) -> Result<(), TransportError> {
        outside_handlers()?;
        let mut rest = lock(&self.rest);
        if rest.news != seen {
            return Ok(());
        }
        if rest.asleep {
            match timeout {
                Some(timeout) => drop(self.changed.wait_timeout(rest, timeout)),
                None => drop(self.changed.wait(rest)),
            }
            return Ok(());
        }
        rest.asleep = true;
        drop(rest);
        let _asleep = Asleep(self);
        // Threads that have just ended a sleep to get the transport go first.
        while self.wanting.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        let mut state = self.state()?;
        // A thread that wants the transport from here on uses the waker.
        state.transport.wait(timeout)
    }
}

impl Shared {
    /// Shares `transport`. All events but the ends of engines' operations go to `handler`.
    pub fn new(
        transport: impl Transport + 'static,
        handler: impl FnMut(Event<'_>) + Send + 'static,
    ) -> Shared {
        let (node, nodes, longest) = (transport.node(), transport.nodes(), transport.longest());
        let waker = transport.waker();
        let state = State {
            transport: Box::new(transport),
            handler: Box::new(handler),
            ended: HashMap::new(),
            next: 0,
        };
        let hub = Hub {
            state: Mutex::new(state),
            wanting: AtomicUsize::new(0),
            waker,
            rest: Mutex::new(Rest { asleep: false, news: 0 }),
            changed: Condvar::new(),
            node,
            nodes,
            longest,
        };
        Shared { hub: Arc::new(hub), seen: AtomicU64::new(0) }
    }

    /// This node's number.
    pub fn node(&self) -> Node {
        self.hub.node
    }

    /// The number of nodes of the job, this one among them.
    pub fn nodes(&self) -> u32 {
        self.hub.nodes
    }

    /// The bytes of the longest message.
    pub fn longest(&self) -> usize {
        self.hub.longest
    }

    /// Sends a message as [`Transport::send`] does.
    pub fn send(&self, to: Node, kind: u16, bytes: &[u8]) -> Result<(), TransportError> {
        self.hub.state()?.transport.send(to, kind, bytes)
    }

    /// Registers memory as [`Transport::register`] does.
    pub fn register(&self, memory: Arc<Memory>) -> Result<Vec<u8>, TransportError> {
        self.hub.state()?.transport.register(memory)
    }

    /// Declares a node lost as [`Transport::cut`] does.
    pub fn cut(&self, node: Node) -> Result<(), TransportError> {
        self.hub.state()?.transport.cut(node);
        Ok(())
    }

    /// Moves everything on, and reports events to the handler. Never waits, except for other users of the transport. Returns
    /// the number of events in this call.
    pub fn progress(&self) -> Result<usize, TransportError> {
        self.seen.store(self.hub.news(), Ordering::Relaxed);
        self.hub.progress()
    }

    /// Sleeps until `progress` may have something to do, an event was reported since this handle's last `progress`, somebody
    /// used the waker, or `timeout` is over (`None`: without limit). May return without a reason.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<(), TransportError> {
        self.hub.wait(self.seen.load(Ordering::Relaxed), timeout)
    }

    /// Ends the `wait` of all handles, from any thread.
    pub fn waker(&self) -> Waker {
        let hub = Arc::downgrade(&self.hub);
        Waker::new(move || {
            if let Some(hub) = hub.upgrade() {
                hub.tell();
                hub.waker.wake();
            }
        })
    }

    /// Attaches memory as [`Transport::attach`] does; the caller detaches it.
    pub fn attach(&self, owner: Node, key: &[u8]) -> Result<Remote, TransportError> {
        self.hub.state()?.transport.attach(owner, key)
    }

    /// A handle that does not keep the transport.
    pub fn weak(&self) -> WeakShared {
        WeakShared(Arc::downgrade(&self.hub))
    }

    /// A place for an engine's operations.
    pub fn user(&self) -> Result<User, TransportError> {
        let mut state = self.hub.state()?;
        while state.ended.contains_key(&state.next) {
            state.next = state.next.wrapping_add(1);
        }
        let user = state.next;
        state.next = state.next.wrapping_add(1);
        let ended = Arc::new(Mutex::new(Vec::new()));
        state.ended.insert(user, ended.clone());
        Ok(User { hub: self.hub.clone(), user, ended })
    }
}

impl Clone for Shared {
    fn clone(&self) -> Shared {
        Shared { hub: self.hub.clone(), seen: AtomicU64::new(self.hub.news()) }
    }
}

/// A shared transport that may already have been dropped.
#[derive(Clone)]
pub struct WeakShared(Weak<Hub>);

impl WeakShared {
    /// Detaches memory, if the transport is still there; in a handler the memory stays attached as long as the transport lives.
    pub fn detach(&self, remote: Remote) {
        if let Some(hub) = self.0.upgrade()
            && let Ok(mut state) = hub.state()
        {
            state.transport.detach(remote);
        }
    }
}

/// An engine's place at a shared transport.
pub struct User {
    hub: Arc<Hub>,
    user: u32,
    /// The operations that ended, taken without the transport, in which another thread may sleep.
    ended: Arc<Mutex<Vec<Ended>>>,
}

/// The transport, in use by an engine, whose operations have numbers of their own.
pub struct Turn<'a> {
    state: MutexGuard<'a, State>,
    user: u32,
}

impl Turn<'_> {
    pub fn put(&mut self, to: Remote, offset: u64, from: Buffer, number: u32) -> Result<(), Refused> {
        self.state.transport.put(to, offset, from, token(self.user, number))
    }

    pub fn get(&mut self, from: Remote, offset: u64, into: Buffer, number: u32) -> Result<(), Refused> {
        self.state.transport.get(from, offset, into, token(self.user, number))
    }

    pub fn flush(&mut self, node: Node, number: u32) -> Result<(), TransportError> {
        self.state.transport.flush(node, token(self.user, number))
    }
}

impl User {
    /// Whether it is this transport.
    pub fn is(&self, shared: &WeakShared) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.hub), shared.0.as_ptr())
    }

    /// Takes the transport, to start operations.
    pub fn turn(&self) -> Result<Turn<'_>, TransportError> {
        Ok(Turn { state: self.hub.state()?, user: self.user })
    }

    /// Moves everything on and adds operations that have ended to `ended`.
    pub fn progress(&self, ended: &mut Vec<Ended>) -> Result<(), TransportError> {
        let told = self.hub.progress();
        ended.append(&mut lock(&self.ended));
        told.map(drop)
    }

    /// The number of the news so far.
    pub fn seen(&self) -> u64 {
        self.hub.news()
    }

    /// Sleeps until there may be something to do, unless there was news since `seen`.
    pub fn wait(&self, seen: u64, timeout: Duration) -> Result<(), TransportError> {
        self.hub.wait(seen, Some(timeout))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // In a handler the place stays, and operations that end there with it.
        let left = self.hub.state().ok().and_then(|mut state| state.ended.remove(&self.user));
        drop(left);
    }
}
