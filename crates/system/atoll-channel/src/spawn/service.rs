//! The spawning service of a node: a door for the node's processes and for other nodes, and two loops.
//!
//! The loops are `here.rs` and `away.rs`; clients are `client.rs`. A process gets three channels over one socket: one for each
//! loop, and its bell.
//!
//! Source: the barrelfish paper, section 6.8.1.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::{Builder, JoinHandle};

use crate::host::{
    Admitted, AnyLink, Bell, DirectoryError, Door, Inlet, SET_UP, Serving, admit, bell_settings, client_set,
    inlet,
};
use crate::spawn::away::{Away, ToAway};
use crate::spawn::here::{Here, ToHere};
use atoll_transport::Link;
use atoll_transport::Node;
use atoll_transport::{Channel, ConnectError, CreateError, Settings};

/// The socket's name in the node's directory.
pub(super) const SOCKET: &str = "spawn";

/// The reasons why a spawning service does not start.
#[derive(thiserror::Error, Debug)]
pub enum StartError {
    /// The directory for its socket cannot be used.
    #[error("the spawning service's socket: {0}")]
    Directory(#[from] DirectoryError),
    /// The set of its clients cannot be made.
    #[error("the spawning service's clients: {0}")]
    Clients(#[from] CreateError),
    /// The system refuses a thread, or memory.
    #[error("the spawning service's threads: {0}")]
    Os(#[from] io::Error),
}

/// The reasons why two nodes' spawning services are not linked.
#[derive(thiserror::Error, Debug)]
pub enum SpawnLinkError {
    /// The channel was not made.
    #[error("linking the spawning services: {0}")]
    Connect(#[from] ConnectError),
    /// The node is this one.
    #[error("the spawning service of {0} cannot be linked to itself")]
    Itself(Node),
    /// All places are taken, or the service has ended.
    #[error("the spawning service takes no more clients")]
    Full,
}

/// A node's spawning service. It runs in threads of this process until it is dropped. All that it started is killed then, or
/// when this process dies.
///
/// This process must not wait for children that it does not know (`waitpid(-1)`).
pub struct SpawnService {
    node: Node,
    /// Dropped first, so that nobody comes in any more.
    door: Option<Door>,
    here: Inlet<ToHere>,
    away: Inlet<ToAway>,
    loops: Vec<JoinHandle<()>>,
}

impl SpawnService {
    /// Starts the service of node `node`, for at most some `clients` processes of it, workers included, with its socket in
    /// `directory`.
    pub fn start(node: Node, directory: &Path, clients: u32) -> Result<SpawnService, StartError> {
        let (here, here_outlet) = inlet(client_set(clients)?)?;
        let (away, away_outlet) = inlet(client_set(clients)?)?;
        let mut loops = Vec::new();
        let to_others = Away::new(away_outlet);
        loops.push(Builder::new().name("atoll spawn away".into()).spawn(move || to_others.run())?);
        let own = Here::new(node, directory.as_os_str().to_owned(), here_outlet, away.clone())?;
        loops.push(Builder::new().name("atoll spawn".into()).spawn(move || own.run())?);

        let mut service = SpawnService { node, door: None, here, away, loops };
        let (here, away) = (service.here.clone(), service.away.clone());
        service.door = Some(Door::open(directory, SOCKET, move |stream, _| {
            // A visitor that is not admitted notices by its socket, and has to come again.
            let admitted = admit(stream, node, [&|| here.seat(), &|| away.seat()], SET_UP);
            if let Some(Admitted { calls: [calls, theirs], bell }) = admitted {
                // An error means that the loop has ended.
                let _ = away.send(ToAway::Client(theirs, bell.clone()));
                let _ = here.send(ToHere::Client(calls, bell));
            }
        })?);
        Ok(service)
    }

    /// Lets another node's service, which is at the other end of `stream` and calls [`link_to`](SpawnService::link_to), start
    /// processes on this node. When the connection is lost, they are killed.
    pub fn admit(&self, stream: &UnixStream) -> Result<(), SpawnLinkError> {
        let seat = self.here.seat().ok_or(SpawnLinkError::Full)?;
        let calls = Channel::connect(stream, Settings::default(), Some(seat), SET_UP)?;
        let bell = Channel::connect(stream, bell_settings(), None, SET_UP)?;
        let client = ToHere::Client(Box::new(calls), Bell::new(bell.sender));
        self.here.send(client).map_err(|_| SpawnLinkError::Full)
    }

    /// Lets another node's service start processes on this node over links of any type, for calls and for the bell. The other
    /// ends are given to [`link_to_by`](SpawnService::link_to_by).
    pub fn admit_by(
        &self,
        calls: impl Link + Send + 'static,
        bell: impl Link + Send + 'static,
    ) -> Result<(), SpawnLinkError> {
        let linked = ToHere::ClientBy(AnyLink::new(calls), Bell::over(AnyLink::new(bell)));
        self.here.send(linked).map_err(|_| SpawnLinkError::Full)
    }

    /// Lets this node's processes start others on `node`, whose service is at the other end of `stream` and calls
    /// [`admit`](SpawnService::admit).
    pub fn link_to(&self, node: Node, stream: &UnixStream) -> Result<(), SpawnLinkError> {
        let calls = Channel::connect(stream, Settings::default(), None, SET_UP)?;
        let bell = Channel::connect(stream, bell_settings(), None, SET_UP)?;
        self.link_to_by(node, calls, bell)
    }

    /// Lets this node's processes start others on `node` over links of any type, for calls and for the bell.
    pub fn link_to_by(
        &self,
        node: Node,
        calls: impl Link + Send + 'static,
        bell: impl Link + Send + 'static,
    ) -> Result<(), SpawnLinkError> {
        if node == self.node {
            return Err(SpawnLinkError::Itself(node));
        }
        let link = ToAway::Link(node, AnyLink::new(calls), AnyLink::new(bell));
        self.away.send(link).map_err(|_| SpawnLinkError::Full)
    }

    /// The service's node.
    pub fn node(&self) -> Node {
        self.node
    }
}

impl Drop for SpawnService {
    fn drop(&mut self) {
        self.door = None;
        // An error means that the loop has ended already.
        let _ = self.away.stop();
        let _ = self.here.stop();
        for thread in self.loops.drain(..) {
            let _ = thread.join();
        }
    }
}
