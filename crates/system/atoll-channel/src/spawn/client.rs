//! A process's connection to the spawning service of its node.
//!
//! `service.rs` is the other end. A client that waits for a process sleeps on the bell's channel.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::host::{Connected, DirectoryError, Lazy, NotConnected, connect, from_environment, visit};
use crate::service::{BindError, CallError};
use crate::spawn::interface::{Exit, ProcessError, SpawnError, SpawningClient, State};
use crate::spawn::order::{Capability, MOST_WORDS, Order, ProcessId};
use crate::spawn::service::SOCKET;
use atoll_transport::Node;
use atoll_transport::clock::Deadline;
use atoll_transport::{Channel, ConnectError, Message, Receiver, RecvError};

/// The longest time that the service may take for an answer; it may ask another node's, for half as long.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

/// The reasons why a request has no result.
#[derive(thiserror::Error, Debug)]
pub enum ClientError {
    /// The service's socket is not there, or cannot be trusted.
    #[error("the node's spawning service: {0}")]
    Directory(#[from] DirectoryError),
    /// The service does not make channels with this process.
    #[error("the node's spawning service: {0}")]
    Connect(#[from] ConnectError),
    /// The service does not answer, or has another interface.
    #[error("the node's spawning service: {0}")]
    Bind(#[from] BindError),
    /// The service does not tell which node this is.
    #[error("the node's spawning service does not say which node this is")]
    NoNode,
    /// A call was not answered.
    #[error("the node's spawning service: {0}")]
    Call(#[from] CallError),
    /// The service has ended.
    #[error("the node's spawning service: {0}")]
    Ended(RecvError),
    /// No process was started.
    #[error("{0}")]
    Spawn(#[from] SpawnError),
    /// The request for the process failed.
    #[error("{0}")]
    Process(#[from] ProcessError),
    /// The process still runs.
    #[error("{id} did not end within {within:?}")]
    TimedOut {
        /// The process.
        id: ProcessId,
        /// The time it was waited for.
        within: Duration,
    },
}

impl From<NotConnected> for ClientError {
    fn from(why: NotConnected) -> ClientError {
        match why {
            NotConnected::Connect(why) => why.into(),
            NotConnected::NoNode => ClientError::NoNode,
        }
    }
}

/// A connection to the node's spawning service. Dropping it kills all that was started through it; the same happens within a
/// second if this process dies.
pub struct SpawnClient {
    node: Node,
    /// The clients for processes of this node, and of others.
    here: SpawningClient<Channel>,
    away: Lazy<SpawningClient<Channel>>,
    bell: Receiver,
    message: Message,
}

impl SpawnClient {
    /// Connects to the service of the node that this process was started at
    /// ([`NODE_DIRECTORY`](crate::host::NODE_DIRECTORY)).
    pub fn from_environment() -> Result<SpawnClient, ClientError> {
        SpawnClient::connect(&from_environment()?)
    }

    /// Connects to the service whose socket lies in `directory`.
    pub fn connect(directory: &Path) -> Result<SpawnClient, ClientError> {
        SpawnClient::over(&visit(directory, SOCKET)?)
    }

    /// Connects to the service at the other end of `stream`.
    pub(super) fn over(stream: &UnixStream) -> Result<SpawnClient, ClientError> {
        let Connected { node, calls: [here, away], bell } = connect(stream)?;
        let here = SpawningClient::bind(here, PATIENCE)?;
        let away = Lazy::new(away, SpawningClient::bind, PATIENCE);
        let message = Message::default();
        Ok(SpawnClient { node, here, away, bell, message })
    }

    /// The number of this node.
    pub fn node(&self) -> Node {
        self.node
    }

    fn at(&mut self, node: Node) -> Result<&mut SpawningClient<Channel>, BindError> {
        if node == self.node { Ok(&mut self.here) } else { self.away.get() }
    }

    /// Starts the process of `order` on `node`. A worker is ready after the call, unless it waits for its capability
    /// ([`Capability::Later`]).
    pub fn spawn(&mut self, node: Node, order: &Order) -> Result<ProcessId, ClientError> {
        let bytes = order.bytes();
        if bytes > MOST_WORDS {
            return Err(SpawnError::LongOrder { bytes: bytes as u64 }.into());
        }
        let id = self.at(node)?.spawn(node, order.clone())??;
        if order.capability != Capability::Later
            && let Some(exit) = self.ready(id)?
        {
            return Err(SpawnError::DiedAtOnce { program: order.program_name(), node, exit }.into());
        }
        Ok(id)
    }

    /// Gives a process that was started with [`Capability::Later`] its capability; a worker is ready after the call.
    pub fn hand_over(&mut self, id: ProcessId, capability: &[u8]) -> Result<(), ClientError> {
        self.at(id.node)?.hand_over(id, capability)??;
        match self.ready(id)? {
            Some(exit) => Err(ProcessError::Ended { id, exit }.into()),
            None => Ok(()),
        }
    }

    /// Waits until a worker is ready; returns its exit if it ended before.
    fn ready(&mut self, id: ProcessId) -> Result<Option<Exit>, ClientError> {
        // The service limits the time.
        match self.until(id, None, |state| *state != State::Starting)? {
            Some(State::Ended { exit, ready: false }) => Ok(Some(exit)),
            _ => Ok(None),
        }
    }

    /// The state of a process.
    pub fn state(&mut self, id: ProcessId) -> Result<State, ClientError> {
        Ok(self.at(id.node)?.state(id)??)
    }

    /// Waits for a process's end, for at most `timeout` (`None`: for ever).
    pub fn wait(&mut self, id: ProcessId, timeout: Option<Duration>) -> Result<Exit, ClientError> {
        match self.until(id, timeout, |state| matches!(state, State::Ended { .. }))? {
            Some(State::Ended { exit, .. }) => Ok(exit),
            _ => Err(ClientError::TimedOut { id, within: timeout.unwrap_or(Duration::MAX) }),
        }
    }

    /// Sends a signal to a process and to those that it started.
    pub fn signal(&mut self, id: ProcessId, signal: i32) -> Result<(), ClientError> {
        Ok(self.at(id.node)?.signal(id, signal)??)
    }

    /// Kills a process and those that it started.
    pub fn kill(&mut self, id: ProcessId) -> Result<(), ClientError> {
        self.signal(id, rustix::process::Signal::KILL.as_raw())
    }

    /// Waits until `done` holds for the state; `None` if it does not in time.
    fn until(
        &mut self,
        id: ProcessId,
        timeout: Option<Duration>,
        done: impl Fn(&State) -> bool,
    ) -> Result<Option<State>, ClientError> {
        let mut deadline = Deadline::new(timeout);
        loop {
            // Earlier rings: the state that was read is newer.
            while self.bell.try_recv(&mut self.message).map_err(ClientError::Ended)? {}
            let state = self.state(id)?;
            if done(&state) {
                return Ok(Some(state));
            }
            let left = deadline.left(Duration::MAX).unwrap_or_default();
            if left.is_zero() {
                return Ok(None);
            }
            match self.bell.recv(&mut self.message, Some(left)) {
                Ok(()) => {}
                Err(RecvError::TimedOut) => return Ok(None),
                Err(why) => return Err(ClientError::Ended(why)),
            }
        }
    }
}
