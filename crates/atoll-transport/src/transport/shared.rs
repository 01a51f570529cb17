//! One transport that several use, in one thread or more: its owner, who sends and receives, and engines that put and get.
//!
//! [`Shared`] stands on any transport; `bulk/remote.rs` is the engine. Whoever lets the transport go on does so for all: the ends of an
//! engine's operations are kept for that engine, everything else is told to the owner's handler at once, in whichever thread that is, so
//! nothing that others send is kept here. One thread sleeps in the transport, the others until that one has woken.
//!
//! Source: the barrelfish paper, sections 6.9.1 and 6.9.3 (one device, requests of many clients).

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use super::{Buffer, Event, Memory, Refused, Remote, Transport, TransportError, Waker};
use crate::Node;

/// A handle to a transport that is shared; clones are handles to the same one, which is dropped with the last of them and of the
/// engines that use it.
///
/// The handler is called while the transport is in use, so it can neither send nor anything else: as with a transport's own
/// `progress`, what it wants is done behind. A handle that is used in a handler answers with an error, and one that a handler owns keeps
/// the transport for ever.
pub struct Shared {
    hub: Arc<Hub>,
    /// The news at this handle's last `progress`.
    seen: AtomicU64,
}

/// An operation of an engine that has ended: its number, and how.
pub type Ended = (u32, Option<Buffer>, Result<(), TransportError>);

pub(super) struct Hub {
    state: Mutex<State>,
    /// Threads that wait for the transport, which a sleeping thread leaves to them.
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
    /// What has ended, by engine.
    ended: HashMap<u32, Arc<Mutex<Vec<Ended>>>>,
    next: u32,
}

struct Rest {
    /// A thread sleeps in the transport.
    asleep: bool,
    /// Changes whenever something was told, or somebody used a waker.
    news: u64,
}

thread_local! {
    /// A handler is running in this thread.
    static HANDLING: Cell<bool> = const { Cell::new(false) };
}

/// As long as a handler runs.
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

/// As long as this thread sleeps in the transport.
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

/// This thread does not have the transport already.
fn outside_handlers() -> Result<(), TransportError> {
    let why = "a handler of events cannot use a shared transport";
    if HANDLING.get() {
        return Err(TransportError::Failed { what: "using the transport", why: why.into() });
    }
    Ok(())
}

/// An engine's token, as the transport bears it.
fn token(user: u32, number: u32) -> u64 {
    u64::from(user) << 32 | u64::from(number)
}

impl State {
    /// Lets everything go on; buffers of engines that are gone are put to `orphans`.
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
    /// The transport, which a thread that sleeps in it gives up.
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

    /// Lets everything go on, unless a thread sleeps: then nothing has happened, and if something does, that thread wakes.
    fn progress(&self) -> Result<usize, TransportError> {
        if lock(&self.rest).asleep {
            return Ok(0);
        }
        if self.wanting.load(Ordering::SeqCst) > 0 {
            // Who looks again and again would keep the others out.
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
        // Those first who have just ended somebody's sleep for it.
        while self.wanting.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        let mut state = self.state()?;
        // Who wants it from here on uses the waker.
        state.transport.wait(timeout)
    }
}

impl Shared {
    /// Shares `transport`. All that happens but the ends of engines' operations is told to `handler`.
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

    /// This node.
    pub fn node(&self) -> Node {
        self.hub.node
    }

    /// How many nodes the job has, this one among them.
    pub fn nodes(&self) -> u32 {
        self.hub.nodes
    }

    /// Bytes of the longest message.
    pub fn longest(&self) -> usize {
        self.hub.longest
    }

    /// See [`Transport::send`].
    pub fn send(&self, to: Node, kind: u16, bytes: &[u8]) -> Result<(), TransportError> {
        self.hub.state()?.transport.send(to, kind, bytes)
    }

    /// See [`Transport::register`].
    pub fn register(&self, memory: Arc<Memory>) -> Result<Vec<u8>, TransportError> {
        self.hub.state()?.transport.register(memory)
    }

    /// See [`Transport::cut`].
    pub fn cut(&self, node: Node) -> Result<(), TransportError> {
        self.hub.state()?.transport.cut(node);
        Ok(())
    }

    /// Lets everything go on, and tells the handler what has happened. Never waits, but for others that use the transport now. Returns
    /// how many events there were here.
    pub fn progress(&self) -> Result<usize, TransportError> {
        self.seen.store(self.hub.news(), Ordering::Relaxed);
        self.hub.progress()
    }

    /// Sleeps until `progress` may have something to do, something was told to the handler since this handle's last `progress`,
    /// somebody used the waker, or `timeout` is over (none: however long it takes). May return without a reason.
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

    /// See [`Transport::attach`]; whoever has it detaches it.
    pub fn attach(&self, owner: Node, key: &[u8]) -> Result<Remote, TransportError> {
        self.hub.state()?.transport.attach(owner, key)
    }

    /// What does not keep the transport.
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

/// Which shared transport it was, whether or not it is still there.
#[derive(Clone)]
pub struct WeakShared(Weak<Hub>);

impl WeakShared {
    /// Gives memory up, if the transport is still there; in a handler it stays attached as long as the transport lives.
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
    /// Taken from without the transport, in which another thread may sleep.
    ended: Arc<Mutex<Vec<Ended>>>,
}

/// The transport, in use by an engine: its operations bear numbers of its own.
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
    /// It is this transport.
    pub fn is(&self, shared: &WeakShared) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.hub), shared.0.as_ptr())
    }

    /// To start something.
    pub fn turn(&self) -> Result<Turn<'_>, TransportError> {
        Ok(Turn { state: self.hub.state()?, user: self.user })
    }

    /// Lets everything go on and puts what has ended to `ended`.
    pub fn progress(&self, ended: &mut Vec<Ended>) -> Result<(), TransportError> {
        let told = self.hub.progress();
        ended.append(&mut lock(&self.ended));
        told.map(drop)
    }

    /// What was told so far.
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
        // In a handler the place stays, and what ends there with it.
        let left = self.hub.state().ok().and_then(|mut state| state.ended.remove(&self.user));
        drop(left);
    }
}
