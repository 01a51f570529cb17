//! The name service of a node: a door for the node's processes, and a loop for each of the two levels.
//!
//! The loops are `level.rs` and, for the global names of every node but 0, `forward.rs`; clients are `client.rs`. A process
//! gets three channels over one socket: one for each level, and its bell.
//!
//! Source: the barrelfish paper, section 6.8.2 and figure 6.3.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};

use crate::host::{
    Admitted, AnyLink, Bell, DirectoryError, Door, Inlet, SET_UP, Serving, Visitor, admit, bell_settings,
    client_set, inlet,
};
use crate::names::entry::Owner;
use crate::names::forward::{Forward, ToForward};
use crate::names::interface::{BELL_GLOBAL, BELL_LOCAL};
use crate::names::level::{LevelLoop, ToLevel};
use crate::names::limits::Limits;
use crate::names::registry::Registry;
use atoll_transport::Link;
use atoll_transport::Node;
use atoll_transport::{Channel, ConnectError, CreateError, Settings};

/// The socket's name in the node's directory.
pub(super) const SOCKET: &str = "names";
/// The node where global names are kept.
const KEEPER: Node = Node(0);
/// The reasons why a name service does not start.
#[derive(thiserror::Error, Debug)]
pub enum StartError {
    /// The directory for its socket cannot be used.
    #[error("the name service's socket: {0}")]
    Directory(#[from] DirectoryError),
    /// The set of its clients cannot be made.
    #[error("the name service's clients: {0}")]
    Clients(#[from] CreateError),
    /// The system refuses a thread, or memory.
    #[error("the name service's threads: {0}")]
    Os(#[from] io::Error),
}

/// The reasons why two nodes' name services are not linked.
#[derive(thiserror::Error, Debug)]
pub enum NodeLinkError {
    /// The channel was not made.
    #[error("linking {node}: {why}")]
    Connect {
        /// The other node.
        node: Node,
        /// The reason.
        #[source]
        why: ConnectError,
    },
    /// Node 0 is linked to all others, and others only to node 0.
    #[error("{here} cannot be linked to {there}: the name service of node 0 is linked to each of the others")]
    Nodes {
        /// This node.
        here: Node,
        /// The other node.
        there: Node,
    },
    /// All places are taken, or the service has ended.
    #[error("the name service takes no more clients")]
    Full,
}

/// The inlet of the global level's loop.
#[derive(Clone)]
enum Global {
    Kept(Inlet<ToLevel>),
    Forwarded(Inlet<ToForward>),
}

/// A node's name service. It runs in threads of this process until it is dropped; its clients' calls fail from then on.
pub struct NameService {
    node: Node,
    /// Dropped first, so that nobody comes in any more.
    door: Option<Door>,
    local: Inlet<ToLevel>,
    global: Global,
    loops: Vec<JoinHandle<()>>,
}

impl NameService {
    /// Starts the service of node `node`, for at most some `clients` processes of it, with its socket in `directory`.
    pub fn start(
        node: Node,
        directory: &Path,
        clients: u32,
        limits: Limits,
    ) -> Result<NameService, StartError> {
        let mut loops = Vec::new();
        let mut run = |name: &str, run: Box<dyn FnOnce() + Send>| -> io::Result<()> {
            loops.push(Builder::new().name(name.into()).spawn(run)?);
            Ok(())
        };

        let (local, outlet) = inlet(client_set(clients)?)?;
        let level = LevelLoop::new(node, BELL_LOCAL, Registry::new(limits), outlet);
        run("atoll names", Box::new(move || level.run()))?;

        let global = if node == KEEPER {
            let (inlet, outlet) = inlet(client_set(clients)?)?;
            let level = LevelLoop::new(node, BELL_GLOBAL, Registry::new(limits), outlet);
            run("atoll global", Box::new(move || level.run()))?;
            Global::Kept(inlet)
        } else {
            let (inlet, outlet) = inlet(client_set(clients)?)?;
            let forward = Forward::new(outlet);
            run("atoll global", Box::new(move || forward.run()))?;
            Global::Forwarded(inlet)
        };

        let mut service = NameService { node, door: None, local, global, loops };
        let next = AtomicU64::new(1);
        let door = Door::open(directory, SOCKET, {
            let (local, global) = (service.local.clone(), service.global.clone());
            move |stream, visitor| {
                let connection = next.fetch_add(1, Ordering::Relaxed);
                // The visitor notices by its socket that it was not let in, and has to come again.
                let _ = greet(stream, &visitor, node, connection, &local, &global);
            }
        });
        service.door = Some(door?);
        Ok(service)
    }

    /// At node 0: lets `node` ask for global names, over a channel made with [`link_up`](NameService::link_up) at the other end
    /// of `stream`. When that channel is lost, all global entries of that node's processes are removed.
    pub fn link_node(&self, node: Node, stream: &UnixStream) -> Result<(), NodeLinkError> {
        let Global::Kept(inlet) = &self.global else {
            return Err(NodeLinkError::Nodes { here: self.node, there: node });
        };
        if node == self.node {
            return Err(NodeLinkError::Nodes { here: self.node, there: node });
        }
        let failed = |why| NodeLinkError::Connect { node, why };
        let seat = inlet.seat().ok_or(NodeLinkError::Full)?;
        let calls = Channel::connect(stream, Settings::default(), Some(seat), SET_UP).map_err(failed)?;
        let bell = Channel::connect(stream, bell_settings(), None, SET_UP).map_err(failed)?;
        inlet
            .send(ToLevel::Node(node, Box::new(calls), Bell::new(bell.sender)))
            .map_err(|_| NodeLinkError::Full)
    }

    /// At node 0: lets `node` ask for global names over links of any type, for calls and for the bell. The other ends are given
    /// to [`link_up_by`](NameService::link_up_by).
    pub fn link_node_by(
        &self,
        node: Node,
        calls: impl Link + Send + 'static,
        bell: impl Link + Send + 'static,
    ) -> Result<(), NodeLinkError> {
        let wrong = NodeLinkError::Nodes { here: self.node, there: node };
        let Global::Kept(inlet) = &self.global else { return Err(wrong) };
        if node == self.node {
            return Err(wrong);
        }
        let linked = ToLevel::NodeBy(node, AnyLink::new(calls), Bell::over(AnyLink::new(bell)));
        inlet.send(linked).map_err(|_| NodeLinkError::Full)
    }

    /// At any other node: asks node 0 for global names from now on, over a channel made with
    /// [`link_node`](NameService::link_node) at the other end of `stream`.
    pub fn link_up(&self, stream: &UnixStream) -> Result<(), NodeLinkError> {
        let failed = |why| NodeLinkError::Connect { node: KEEPER, why };
        let connect = |settings| Channel::connect(stream, settings, None, SET_UP).map_err(failed);
        self.link_up_by(connect(Settings::default())?, connect(bell_settings())?)
    }

    /// At any other node: asks node 0 for global names over links of any type, for calls and for the bell.
    pub fn link_up_by(
        &self,
        calls: impl Link + Send + 'static,
        bell: impl Link + Send + 'static,
    ) -> Result<(), NodeLinkError> {
        let Global::Forwarded(inlet) = &self.global else {
            return Err(NodeLinkError::Nodes { here: self.node, there: KEEPER });
        };
        let (calls, bell) = (AnyLink::new(calls), AnyLink::new(bell));
        inlet.send(ToForward::Uplink(calls, bell)).map_err(|_| NodeLinkError::Full)
    }

    /// The service's node.
    pub fn node(&self) -> Node {
        self.node
    }
}

impl Drop for NameService {
    fn drop(&mut self) {
        self.door = None;
        // An error means that the loop has ended already.
        let _ = self.local.stop();
        let _ = match &self.global {
            Global::Kept(inlet) => inlet.stop(),
            Global::Forwarded(inlet) => inlet.stop(),
        };
        for thread in self.loops.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Admits a visitor, and hands its channels to the loops.
fn greet(
    stream: &UnixStream,
    visitor: &Visitor,
    node: Node,
    connection: u64,
    local: &Inlet<ToLevel>,
    global: &Global,
) -> Option<()> {
    let owner = Owner { node, process: visitor.process, connection };
    let global_seat = || match global {
        Global::Kept(inlet) => inlet.seat(),
        Global::Forwarded(inlet) => inlet.seat(),
    };
    let admitted = admit(stream, node, [&|| local.seat(), &global_seat], SET_UP)?;
    let Admitted { calls: [local_calls, global_calls], bell } = admitted;
    local.send(ToLevel::Process(owner, local_calls, bell.clone())).ok()?;
    match global {
        Global::Kept(inlet) => inlet.send(ToLevel::Process(owner, global_calls, bell)),
        Global::Forwarded(inlet) => inlet.send(ToForward::Process(owner, global_calls, bell)),
    }
    .ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::host::{NodeDirectory, visit};
    use crate::names::interface::{NamesClient, NodeNamesClient};
    use crate::names::name::Name;
    use crate::names::registry::Page;
    use crate::names::{Level, MOST_VALUE, NameClient, NamesError, Search};

    /// The channels of a hostile process, whose calls' channel is bound to the service of the node's names.
    fn stranger(directory: &Path) -> (Channel, Channel, Channel) {
        let stream = visit(directory, SOCKET).unwrap();
        let local = Channel::connect(&stream, Settings::default(), None, SET_UP).unwrap();
        let global = Channel::connect(&stream, Settings::default(), None, SET_UP).unwrap();
        let bell = Channel::connect(&stream, bell_settings(), None, SET_UP).unwrap();
        (NamesClient::bind(local, SET_UP).unwrap().into_link(), global, bell)
    }

    #[test]
    fn a_client_that_takes_no_answers_is_dropped_and_holds_up_nobody() {
        let directory = NodeDirectory::create(&std::env::temp_dir()).unwrap();
        let service = NameService::start(Node(0), directory.path(), 10, Limits::default()).unwrap();
        let mut client = NameClient::connect(directory.path()).unwrap();
        let name = Name::new("long", Node(0), 0).unwrap();
        client.register(Level::Local, &name, &[7; MOST_VALUE]).unwrap();
        let (calls, _global, _bell) = stranger(directory.path());
        // Look-ups of the long entry, whose answers are not received.
        let Channel { mut sender, receiver } = calls;
        let begin = Instant::now();
        let mut number = 0u32;
        let why = loop {
            number += 1;
            let mut request = number.to_le_bytes().to_vec();
            request.push(8);
            request.extend_from_slice(b"long@*.*");
            if let Err(why) = sender.send(3, &request, SET_UP) {
                break why;
            }
            assert!(begin.elapsed() < Duration::from_secs(10), "it is served still");
        };
        assert_eq!(why, crate::SendError::Closed);
        drop(receiver);
        assert!(client.look_up(Search::Local, &"long".parse().unwrap()).unwrap().is_some());
        drop(service);
    }

    /// Node 0's name service, and the channels by which node 1 asks it over links.
    fn linked(service: &NameService) -> (Channel, Channel) {
        let both = |settings| {
            let (near, far) = atoll_transport::pair(settings, None).unwrap();
            let this = || atoll_transport::Peer::this().unwrap();
            (near.attach(this()).unwrap(), far.attach(this()).unwrap())
        };
        let (calls, calls_there) = both(Settings::default());
        let (bell, bell_there) = both(bell_settings());
        service.link_node_by(Node(1), calls, bell).unwrap();
        (calls_there, bell_there)
    }

    #[test]
    fn a_node_that_talks_nonsense_over_a_link_is_dropped_with_what_it_had() {
        let directories = [(); 2].map(|()| NodeDirectory::create(&std::env::temp_dir()).unwrap());
        let service = NameService::start(Node(0), directories[0].path(), 10, Limits::default()).unwrap();
        let mut client = NameClient::connect(directories[0].path()).unwrap();
        let nonsense: [(u16, &[u8]); 4] =
            [(0, b"no greeting"), (3, b"not bound"), (0x8003, b"an answer"), (u16::MAX, b"")];
        for (kind, bytes) in nonsense {
            let (mut calls, _bell) = linked(&service);
            Link::send(&mut calls, kind, bytes, SET_UP).unwrap();
            let mut message = crate::Message::default();
            let why = Link::recv(&mut calls, &mut message, SET_UP).unwrap_err();
            assert_eq!(why, crate::LinkError::Closed, "{kind}");
        }
        // A node that is linked again starts with nothing.
        let other = NameService::start(Node(1), directories[1].path(), 10, Limits::default()).unwrap();
        let (calls, bell) = linked(&service);
        other.link_up_by(calls, bell).unwrap();
        let mut there = NameClient::connect(directories[1].path()).unwrap();
        there.register(Level::Global, &Name::new("it", Node(1), 0).unwrap(), b"").unwrap();
        let what = "it".parse().unwrap();
        assert!(client.look_up(Search::Global, &what).unwrap().is_some());
        let (calls, _bell) = linked(&service);
        drop(NodeNamesClient::bind(calls, SET_UP).unwrap());
        assert!(client.look_up(Search::Global, &what).unwrap().is_none());
        assert!(there.look_up(Search::Global, &what).is_err());
    }

    #[test]
    fn clients_of_a_service_that_ends_are_told() {
        let directory = NodeDirectory::create(&std::env::temp_dir()).unwrap();
        let service = NameService::start(Node(3), directory.path(), 10, Limits::default()).unwrap();
        let mut client = NameClient::connect(directory.path()).unwrap();
        let mut waiting = NameClient::connect(directory.path()).unwrap();
        let what: crate::names::Pattern = "nobody".parse().unwrap();
        let waiter = std::thread::spawn({
            let what = what.clone();
            move || waiting.wait_for(Search::Local, &what, Some(Duration::from_secs(20))).unwrap_err()
        });
        std::thread::sleep(Duration::from_millis(20));
        drop(service);
        let why = waiter.join().unwrap();
        assert!(matches!(why, NamesError::Ended(_) | NamesError::Service(_)), "{why}");
        let why = client.look_up(Search::Local, &what).unwrap_err();
        assert!(matches!(why, NamesError::Service(_)), "{why}");
        assert!(NameClient::connect(directory.path()).is_err());
        // The next service can be started there.
        drop(NameService::start(Node(3), directory.path(), 10, Limits::default()).unwrap());
    }

    #[test]
    fn the_longest_answers_fit_into_an_empty_ring() {
        let owner = Owner { node: Node(u32::MAX), process: u32::MAX, connection: u64::MAX };
        let service = "x".repeat(crate::names::MOST_SERVICE);
        let mut registry = Registry::new(Limits::default());
        for instance in 0..3 {
            let name = Name::new(&service, Node(u32::MAX), u32::MAX - instance).unwrap();
            registry.register(owner, name, vec![0xff; MOST_VALUE]).unwrap();
        }
        let room = atoll_transport::DEFAULT_LINES as usize * 56 * 3 / 4;
        let page: Page = registry.look_up_all(&"*".parse().unwrap(), None, crate::names::interface::PAGE);
        assert!(page.more && postcard::to_stdvec(&page).unwrap().len() + 8 < room);
    }
}
