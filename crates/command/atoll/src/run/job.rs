//! This process as the launcher of one node of a job that something else started: atoll's own launcher of a list of hosts
//! (`hosts`), or `mpirun` or `srun` with PMIx.
//!
//! A thread finds out which node this is and tells the others' launchers what they must know of it. Then it answers the
//! program, which asks it for the others' addresses when it joins them (`atoll-nodes/src/join.rs`). `nodes` calls it.

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use atoll_channel::Node;
use atoll_memory::signals::SignalsBlocked;
use atoll_transport::start::relay::{self, Meeting, MeetingPlace};
use atoll_transport::start::{Start, StartError};
use serde::{Deserialize, Serialize};

use super::network::{self, Network};
use crate::cli::{RunArgs, TransportArg};
use crate::machine;

/// How long nodes wait for each other.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long the job's starter may take to let this node end.
const FAREWELL: Duration = Duration::from_secs(2);

/// The reason why a node has no place in its job.
#[derive(thiserror::Error, Debug)]
pub(crate) enum JobError {
    /// The node did not find the others.
    #[error("this node cannot find the others: {0}")]
    Start(#[from] StartError),
    /// Another node runs another version of atoll.
    #[error("node {node} on {host} has atoll {theirs}, and this is atoll {ours}: install the same on all hosts",
        ours = env!("CARGO_PKG_VERSION"))]
    Version {
        /// The number of the other node.
        node: usize,
        /// The name of the other node's host.
        host: String,
        /// The version of the other node.
        theirs: String,
    },
    /// The other node's message cannot be read.
    #[error("the description that node {0} sent cannot be read: install the same atoll on all hosts")]
    Nonsense(usize),
    /// There is no network interface that the others could reach.
    #[error(
        "the nodes are on several hosts, and this one has no network interface that is up with an IPv4 address: \
         name what to use with --network"
    )]
    NoNetwork,
    /// There are more nodes than atoll can have.
    #[error("{0} nodes are more than the {max} that a program can be spread over: start fewer",
        max = atoll_memory::layout::MAX_NODES)]
    TooMany(u32),
    /// There is no thread, or no socket.
    #[error("the launcher cannot serve its node: {0}")]
    Os(#[from] std::io::Error),
}

/// What the launcher of a node tells the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Card {
    host: String,
    /// The kernel's identifier of this machine's start.
    boot: String,
    /// The CPUs that the node's workers may use, by the machine's numbers.
    cpus: Vec<u32>,
    /// The team's size that its environment asks for.
    asked: Option<String>,
    /// The limit of its main stack.
    stack: u64,
    networks: Vec<Network>,
    /// Random bytes; those of node 0 name the job on its machine.
    name: [u8; 16],
}

impl Card {
    fn of_this_node() -> std::io::Result<Card> {
        let random = atoll_transport::transport::Secret::random()?;
        let mut name = [0; 16];
        name.copy_from_slice(&random[..16]);
        Ok(Card {
            host: machine::host(),
            boot: machine::line("/proc/sys/kernel/random/boot_id"),
            cpus: machine::usable_cpu_list(),
            asked: std::env::var("OMP_NUM_THREADS").ok(),
            stack: stack_limit(),
            networks: network::networks(),
            name,
        })
    }

    /// Encodes the card, with the version before it, which must be readable whatever follows.
    fn encode(&self) -> Vec<u8> {
        // All types of the card have an encoding.
        postcard::to_stdvec(&(env!("CARGO_PKG_VERSION"), self)).unwrap_or_default()
    }
}

fn decode(node: usize, bytes: &[u8]) -> Result<Card, JobError> {
    let nonsense = |_| JobError::Nonsense(node);
    let (version, rest): (String, _) = postcard::take_from_bytes(bytes).map_err(nonsense)?;
    if version != env!("CARGO_PKG_VERSION") {
        let host: String = postcard::take_from_bytes(rest).map_or("its host".to_owned(), |(host, _)| host);
        return Err(JobError::Version { node, host, theirs: version });
    }
    postcard::from_bytes(rest).map_err(nonsense)
}

/// Returns the number of CPUs that these nodes have together: two nodes of one machine may share some or all of theirs.
fn cpus_together(cards: &[Card]) -> u32 {
    let all: BTreeSet<(&str, u32)> =
        cards.iter().flat_map(|card| card.cpus.iter().map(|&cpu| (card.boot.as_str(), cpu))).collect();
    all.len() as u32
}

fn stack_limit() -> u64 {
    // SAFETY: plain data, valid for writes.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit);
        limit.rlim_cur
    }
}

/// A node's place in its job.
pub(crate) struct Job {
    pub(crate) node: u32,
    pub(crate) nodes: u32,
    cards: Vec<Card>,
    /// Sends the thread its end of the socket to the program.
    to_thread: Sender<UnixStream>,
    thread: JoinHandle<()>,
}

impl Job {
    /// Finds out what started this process; `None` where nothing did that knows of several nodes.
    pub(crate) fn detect(args: &RunArgs) -> Result<Option<Job>, JobError> {
        if !Start::is_expected() {
            return Ok(None);
        }
        let (tell, told) = channel();
        let (to_thread, sockets) = channel();
        let wishes = (args.transport, args.network.clone());
        let thread = std::thread::Builder::new().name("job".into()).spawn(move || {
            // This mask is for the thread and for threads of libraries that it loads: signals are for the launcher's thread.
            let _blocked = SignalsBlocked::new();
            match begin(&wishes) {
                Ok(Some((start, cards, meeting))) => {
                    let place = (meeting.node, meeting.nodes, cards);
                    if tell.send(Ok(Some(place))).is_ok() {
                        serve(start, &meeting, &sockets);
                    }
                }
                Ok(None) => drop(tell.send(Ok(None))),
                Err(e) => drop(tell.send(Err(e))),
            }
        })?;
        let gone = |_| std::io::Error::other("its thread has ended");
        let Some((node, nodes, cards)) = told.recv().map_err(gone)?? else { return Ok(None) };
        Ok(Some(Job { node, nodes, cards, to_thread, thread }))
    }

    /// Returns the number of CPUs of all nodes together, those that nodes of one machine share counted once, and the team's size
    /// in node 0's environment.
    pub(crate) fn team(&self) -> (u32, Option<&str>) {
        (cpus_together(&self.cards), self.cards.first().and_then(|card| card.asked.as_deref()))
    }

    /// Returns the limit of the main stack that all nodes have: node 0's.
    pub(crate) fn stack(&self) -> u64 {
        self.cards.first().map_or_else(stack_limit, |card| card.stack)
    }

    /// Answers the program, which has started, on `socket`.
    pub(crate) fn serve(&self, socket: UnixStream) {
        // The thread waits for it.
        let _ = self.to_thread.send(socket);
    }

    /// Leaves the job, as the program is over.
    pub(crate) fn finish(self) {
        drop(self.to_thread);
        let until = Instant::now() + FAREWELL;
        // A thread that waits for nodes that never come is left until the process ends.
        while !self.thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

type Wishes = (TransportArg, Option<String>);

/// Meets the other nodes' launchers; `None` if there are no others.
fn begin((transport, network): &Wishes) -> Result<Option<(Start, Vec<Card>, Meeting)>, JobError> {
    let mut start = Start::detect(Some(TIMEOUT))?;
    let nodes = start.nodes();
    if nodes == 1 {
        let _ = start.finish();
        return Ok(None);
    }
    if nodes as usize > atoll_memory::layout::MAX_NODES {
        return Err(JobError::TooMany(nodes));
    }
    let cards = start.exchange(&Card::of_this_node()?.encode(), Some(TIMEOUT))?;
    let cards = cards.iter().enumerate().map(|(node, bytes)| decode(node, bytes));
    let cards = cards.collect::<Result<Vec<Card>, JobError>>()?;
    let here = start.neighbours().count() == nodes as usize;
    let place = match (transport, here) {
        (TransportArg::Auto, true) => MeetingPlace::Memory(cards[0].name),
        _ => MeetingPlace::Network {
            devices: devices(network.as_deref(), here, &cards, start.node())?,
            transports: no_memory(&start, &cards).map(str::to_owned),
        },
    };
    let Node(node) = start.node();
    let meeting = Meeting { node, nodes, secret: *start.secret().bytes(), place };
    Ok(Some((start, cards, meeting)))
}

/// Returns the devices for UCX on node `this`: those that the user named here or for UCX, else those found out. `None` leaves
/// the choice to UCX.
fn devices(named: Option<&str>, here: bool, cards: &[Card], this: Node) -> Result<Option<String>, JobError> {
    if named.is_some() || here || std::env::var_os("UCX_NET_DEVICES").is_some() {
        return Ok(named.map(str::to_owned));
    }
    let networks: Vec<&[Network]> = cards.iter().map(|card| card.networks.as_slice()).collect();
    network::common(&networks, this.0 as usize).map(Some).ok_or(JobError::NoNetwork)
}

/// Returns the transports of UCX without shared memory, where a machine's nodes are in several containers and the user has not
/// chosen. UCX assumes that such containers share memory, and then cannot wake a node in another one.
fn no_memory(start: &Start, cards: &[Card]) -> Option<&'static str> {
    let machine = |node: usize| start.machine(Node(node as u32));
    let apart = (0..cards.len()).any(|one| {
        (0..one).any(|other| cards[one].boot == cards[other].boot && machine(one) != machine(other))
    });
    (apart && std::env::var_os("UCX_TLS").is_none()).then_some("^sm")
}

/// Answers the program until it has joined, or ended, and leaves the job when the launcher does.
fn serve(mut start: Start, meeting: &Meeting, sockets: &Receiver<UnixStream>) {
    if let Ok(socket) = sockets.recv()
        && let Err(e) = relay::serve(&mut start, socket, meeting, TIMEOUT)
    {
        // The process that looks after a program reports one that died while it joined.
        if !matches!(e, relay::RelayError::Gone(_)) {
            eprintln!("atoll: node {} and its launcher cannot exchange messages: {e}", meeting.node);
        }
    }
    // This lasts until the launcher drops its end.
    let _ = sockets.recv();
    let _ = start.finish();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_that_nodes_of_one_machine_share_count_once() {
        let card = |boot: &str, cpus: &[u32]| Card {
            boot: boot.to_owned(),
            cpus: cpus.to_vec(),
            ..Card::of_this_node().unwrap()
        };
        assert_eq!(cpus_together(&[card("a", &[0, 1]), card("a", &[0, 1])]), 2);
        assert_eq!(cpus_together(&[card("a", &[0]), card("a", &[1])]), 2);
        assert_eq!(cpus_together(&[card("a", &[0, 1]), card("b", &[0, 1])]), 4);
    }

    #[test]
    fn another_version_is_told_and_garbage_too() {
        let card = Card::of_this_node().unwrap();
        assert_eq!(decode(0, &card.encode()).unwrap(), card);
        let old = postcard::to_stdvec(&("0.0.9", "far", 7_u32)).unwrap();
        let error = decode(3, &old).unwrap_err().to_string();
        assert!(error.contains("node 3 on far has atoll 0.0.9"), "{error}");
        let bytes = card.encode();
        for bytes in [&[][..], &[255; 9], &bytes[..bytes.len() - 1]] {
            assert!(matches!(decode(1, bytes), Err(JobError::Nonsense(1))));
        }
    }
}
