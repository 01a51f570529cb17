//! Links to the other nodes: any number of them over one transport, each with its own order, queue and end.
//!
//! [`Links`] owns a [`Transport`] and moves it in a thread of its own. A [`NodeLink`] is one end of a link, a [`Link`], over
//! which services of different nodes are called (in `atoll-channel`). One node opens a link with a number that tells its
//! purpose, and the other accepts it by that number. `wire.rs` defines the messages, `streams.rs` the rules that both sides
//! keep, `carrier.rs` the thread.
//!
//! No message is dropped: a sender waits for room in the other's queue for this link, which is bounded. A reader that is slow,
//! or stopped reading, delays neither other links nor the thread. A node that breaks the rules is cut.

mod carrier;
pub mod purpose;
mod streams;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use self::carrier::Carrier;
use self::streams::{LONGEST, NotSent, Streams};
use self::wire::{Frame, HEADER, StreamId, Word};
use super::{Transport, Waker};
use crate::Node;
use crate::channel::Message;
use crate::clock::{Deadline, LONG};
use crate::link::{Link, LinkError};

/// The data that users of links share with the thread that carries them.
struct Shared {
    state: Mutex<State>,
    /// Notified when another node opened a link, or a node is lost.
    opened: Condvar,
    waker: Waker,
    node: Node,
    longest: usize,
}

struct State {
    /// The streams with each node, by its number; `None` at this node's own place.
    nodes: Vec<Option<Streams>>,
    /// The frames that the thread has not taken yet, for all nodes: bounded, as each of them has room at the other end.
    out: VecDeque<Frame>,
    /// The condition variables at which users of a link wait.
    sleepers: HashMap<(Node, StreamId), Arc<Condvar>>,
    stop: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn streams(&mut self, node: Node) -> Option<&mut Streams> {
        self.nodes.get_mut(node.0 as usize)?.as_mut()
    }

    fn rouse(&self, node: Node, stream: StreamId) {
        if let Some(sleeper) = self.sleepers.get(&(node, stream)) {
            sleeper.notify_all();
        }
    }

    /// Ends all links to a node.
    fn lose(&mut self, node: Node, why: LinkError) {
        if let Some(streams) = self.streams(node) {
            streams.lose(why);
        }
        self.out.retain(|frame| frame.to != node);
        self.sleepers.iter().filter(|((of, _), _)| *of == node).for_each(|(_, one)| one.notify_all());
    }
}

/// A node's links to all others. Dropping it sends what was sent over them, as far as the others take it, and closes them all.
pub struct Links {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Links {
    /// Starts links over `transport`, of which no event was handled yet. A [`Proven`](super::Proven) one may still be joining.
    pub fn start(transport: impl Transport + 'static) -> std::io::Result<Links> {
        let node = transport.node();
        let nodes = (0..transport.nodes()).map(|number| (Node(number) != node).then(Streams::default));
        let state =
            State { nodes: nodes.collect(), out: VecDeque::new(), sleepers: HashMap::new(), stop: false };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            opened: Condvar::new(),
            waker: transport.waker(),
            node,
            longest: LONGEST.min(transport.longest().saturating_sub(HEADER)),
        });
        let carrier = Carrier::new(shared.clone(), Box::new(transport));
        let thread = Builder::new().name("atoll links".into()).spawn(move || carrier.run())?;
        Ok(Links { shared, thread: Some(thread) })
    }

    /// This node's number.
    pub fn node(&self) -> Node {
        self.shared.node
    }

    /// The bytes of the longest message.
    pub fn longest(&self) -> usize {
        self.shared.longest
    }

    /// Opens a link to another node, which accepts it by the same `purpose`: one of [`purpose`], or a number from
    /// [`purpose::FIRST_FREE`] on. Returns at once; messages wait until it is accepted.
    ///
    /// Two nodes have at most 256 links that are not closed by both; a link that nobody accepts counts.
    pub fn open(&self, to: Node, purpose: u16) -> Result<NodeLink, LinkError> {
        let mut state = self.shared.lock();
        let (stream, word) = streams(&mut state, to)?.open(purpose)?;
        state.out.push_back(word.write(to));
        let link = self.link(&mut state, to, stream);
        drop(state);
        self.shared.waker.wake();
        Ok(link)
    }

    /// Accepts the next link that `from` opened for `purpose`. Waits for it for at most `timeout` (`None`: for ever, or until
    /// the node is lost).
    pub fn accept(&self, from: Node, purpose: u16, timeout: Option<Duration>) -> Result<NodeLink, LinkError> {
        let mut deadline = Deadline::new(timeout);
        let mut state = self.shared.lock();
        loop {
            if let Some(stream) = streams(&mut state, from)?.accept(purpose)? {
                return Ok(self.link(&mut state, from, stream));
            }
            state = sleep(&self.shared.opened, state, &mut deadline)?;
        }
    }

    fn link(&self, state: &mut State, node: Node, stream: StreamId) -> NodeLink {
        let sleeper = Arc::new(Condvar::new());
        state.sleepers.insert((node, stream), sleeper.clone());
        NodeLink { shared: self.shared.clone(), node, stream, sleeper }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The streams with another node of the job.
fn streams(state: &mut State, node: Node) -> Result<&mut Streams, LinkError> {
    state.streams(node).ok_or_else(|| LinkError::Broken(format!("{node} is not one of the other nodes")))
}

/// Waits for `sleeper` until the deadline.
fn sleep<'a>(
    sleeper: &Condvar,
    state: MutexGuard<'a, State>,
    deadline: &mut Deadline,
) -> Result<MutexGuard<'a, State>, LinkError> {
    let left = deadline.left(LONG).ok_or(LinkError::TimedOut)?;
    Ok(sleeper.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0)
}

/// One end of a link to another node. Dropping it closes it, after what was sent.
pub struct NodeLink {
    shared: Arc<Shared>,
    node: Node,
    stream: StreamId,
    sleeper: Arc<Condvar>,
}

impl NodeLink {
    /// The node at the other end.
    pub fn node(&self) -> Node {
        self.node
    }

    /// Hands a word to the thread and frees the lock.
    fn say(&self, mut state: MutexGuard<'_, State>, word: Word<'_>) {
        state.out.push_back(word.write(self.node));
        drop(state);
        self.shared.waker.wake();
    }
}

impl std::fmt::Debug for NodeLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "link {:?} to {}", self.stream, self.node)
    }
}

impl Link for NodeLink {
    fn send(&mut self, kind: u16, bytes: &[u8], timeout: Option<Duration>) -> Result<(), LinkError> {
        let longest = self.shared.longest;
        if bytes.len() > longest {
            return Err(LinkError::TooLong { length: bytes.len(), longest });
        }
        let mut deadline = Deadline::new(timeout);
        let mut state = self.shared.lock();
        loop {
            match streams(&mut state, self.node)?.send(self.stream, kind, bytes) {
                Ok(word) => {
                    self.say(state, word);
                    return Ok(());
                }
                Err(NotSent::Never(why)) => return Err(why),
                Err(NotSent::Full) => state = sleep(&self.sleeper, state, &mut deadline)?,
            }
        }
    }

    fn recv(&mut self, message: &mut Message, timeout: Option<Duration>) -> Result<(), LinkError> {
        let mut deadline = Deadline::new(timeout);
        let mut state = self.shared.lock();
        loop {
            if let Some((next, word)) = streams(&mut state, self.node)?.recv(self.stream)? {
                *message = next;
                if let Some(word) = word {
                    self.say(state, word);
                }
                return Ok(());
            }
            state = sleep(&self.sleeper, state, &mut deadline)?;
        }
    }
}

impl Drop for NodeLink {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.sleepers.remove(&(self.node, self.stream));
        let word = state.streams(self.node).and_then(|streams| streams.close(self.stream));
        if let Some(word) = word {
            self.say(state, word);
        }
    }
}
