//! Tests of names and spawning between nodes whose services are linked over a transport: shared memory, and UCX between two
//! hosts.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use atoll_channel::Node;
use atoll_channel::host::NodeDirectory;
use atoll_channel::names::{Level, Limits, NameService, NamesError, Search};
use atoll_channel::spawn::{ClientError, Exit, Order, ProcessError, SpawnError, SpawnService};
use atoll_transport::transport::{
    Links, NodeLink, Proven, Secret, Shm, ShmSettings, Transport, Ucx, UcxSettings, purpose,
};

use crate::hosts;
use crate::names::{SECONDS, pattern};
use crate::role::{NodeProcess, Role, ready, stay};
use crate::spawning::wait_until_dead;

/// Nodes 0 and 1, which meet by the transport `way`; `None` if that is not possible here.
fn two_nodes(way: &str) -> Option<[NodeProcess; 2]> {
    if way == "ucx" {
        let asked = Command::new(std::env::current_exe().unwrap()).arg("two hosts?").output().unwrap();
        let why = String::from_utf8(asked.stdout).unwrap();
        if !why.is_empty() || !asked.status.success() {
            atoll_skips::skip_part!("{} {}", why.trim(), asked.status);
            return None;
        }
    }
    let directory = || NodeDirectory::create(&std::env::temp_dir()).unwrap();
    let directories = [directory(), directory()];
    // The directory where they meet, which is needed until both have joined.
    let meeting = directory();
    let (zero, one) = UnixStream::pair().unwrap();
    let mut streams = [zero, one].into_iter();
    let mut number = 0;
    let nodes = directories.map(|directory| {
        let words = [
            "across",
            &number.to_string(),
            directory.path().to_str().unwrap(),
            way,
            meeting.path().to_str().unwrap(),
        ];
        number += 1;
        // Node 0 is ready when its services are, node 1 when all links are there.
        let role = Role::start(&words, Stdio::from(OwnedFd::from(streams.next().unwrap())));
        NodeProcess { role, directory }
    });
    Some(nodes)
}

/// The main function of such a node.
pub(crate) fn node(number: u32, directory: &Path, way: &str, meeting: &Path) {
    let other = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let node = Node(number);
    if way == "ucx" {
        if number == 0 {
            ready();
        }
        hosts::host(number, &other);
    }
    let names = NameService::start(node, directory, 100, Limits::default()).unwrap();
    let spawning = SpawnService::start(node, directory, 100).unwrap();
    if number == 0 && way != "ucx" {
        ready();
    }
    let secret = Secret::new(b"the secret of this test").unwrap();
    let transport: Box<dyn Transport> = if way == "ucx" {
        let settings = UcxSettings {
            transports: Some("tcp".into()),
            devices: Some(hosts::DEVICE.into()),
            ..UcxSettings::default()
        };
        let exchange = |mine: Vec<u8>| {
            let theirs = hosts::exchange(&other, &mine)?;
            Ok(if number == 0 { vec![mine, theirs] } else { vec![theirs, mine] })
        };
        Box::new(Ucx::join(node, 2, settings, exchange).unwrap())
    } else {
        Box::new(Shm::join_in(meeting, node, 2, ShmSettings::default(), SECONDS.unwrap()).unwrap())
    };
    let links = Links::start(Proven::new(transport, secret).unwrap()).unwrap();
    let there = Node(1 - number);
    let open = |what| links.open(there, what).unwrap();
    let accept = |what| -> NodeLink { links.accept(there, what, SECONDS).unwrap() };
    if number == 0 {
        names.link_node_by(there, accept(purpose::NAMES_CALLS), accept(purpose::NAMES_BELL)).unwrap();
    } else {
        names.link_up_by(open(purpose::NAMES_CALLS), open(purpose::NAMES_BELL)).unwrap();
    }
    spawning.link_to_by(there, open(purpose::SPAWN_CALLS), open(purpose::SPAWN_BELL)).unwrap();
    spawning.admit_by(accept(purpose::SPAWN_CALLS), accept(purpose::SPAWN_BELL)).unwrap();
    hosts::exchange(&other, b"linked").unwrap();
    if number == 1 {
        ready();
    }
    stay();
}

/// Runs the test over either transport.
fn each_way(test: fn([NodeProcess; 2])) {
    for way in ["shm", "ucx"] {
        if let Some(nodes) = two_nodes(way) {
            test(nodes);
        }
    }
}

pub(crate) fn names_and_programs_reach_the_other_node() {
    each_way(|nodes| {
        let [mut zero, mut one] = [nodes[0].names(), nodes[1].names()];
        zero.register(Level::Global, &"dma@0.0".parse().unwrap(), b"zero").unwrap();
        one.register(Level::Global, &"dma@1.0".parse().unwrap(), &[7; 2048]).unwrap();
        let found = one.look_up(Search::Global, &pattern("dma@0")).unwrap().unwrap();
        assert_eq!((found.value.as_slice(), found.owner.node), (&b"zero"[..], Node(0)));
        let found = zero.look_up(Search::Global, &pattern("dma@1")).unwrap().unwrap();
        assert_eq!((found.value, found.owner.node), (vec![7; 2048], Node(1)));
        let waiter = std::thread::spawn(move || {
            (one.wait_for(Search::Global, &pattern("late"), SECONDS).unwrap().value, one)
        });
        std::thread::sleep(Duration::from_millis(100));
        zero.register(Level::Global, &"late@0.0".parse().unwrap(), b"at last").unwrap();
        let (value, mut one) = waiter.join().unwrap();
        assert_eq!(value, b"at last");
        let why = one.wait_for(Search::Global, &pattern("never"), Some(Duration::from_millis(50)));
        assert!(matches!(why, Err(NamesError::TimedOut { .. })), "{why:?}");

        for (here, there) in [(0, 1), (1, 0)] {
            let mut spawning = nodes[here as usize].spawning();
            // A message longer than a link's queue usually has, and an answer by the bell.
            let order = Order::program("sh").argument("-c").argument("exit ${#1}").argument("sh");
            let id = spawning.spawn(Node(there), &order.argument("x".repeat(100_000))).unwrap();
            assert_eq!((id.node, spawning.wait(id, SECONDS).unwrap()), (Node(there), Exit::Status(160)));
            let why = spawning.spawn(Node(there), &Order::program("/no/such/program")).unwrap_err();
            assert!(matches!(why, ClientError::Spawn(SpawnError::NotFound { .. })), "{why}");
        }
    });
}

pub(crate) fn a_killed_node_1_is_told_at_node_0() {
    each_way(|mut nodes| {
        let [mut zero, mut one] = [nodes[0].names(), nodes[1].names()];
        one.register(Level::Global, &"its@1.0".parse().unwrap(), b"").unwrap();
        let mut spawning = nodes[0].spawning();
        let id = spawning.spawn(Node(1), &Order::program("sleep").argument("100")).unwrap();
        let mut waiting = nodes[0].spawning();
        let waiter = std::thread::spawn(move || waiting.wait(id, SECONDS).unwrap_err());
        std::thread::sleep(Duration::from_millis(50));
        nodes[1].role.kill();
        wait_until_dead(id.process);
        let why = waiter.join().unwrap();
        assert!(matches!(why, ClientError::Process(ProcessError::Unreachable(_))), "{why}");
        let why = spawning.spawn(Node(1), &Order::program("true")).unwrap_err();
        assert!(matches!(why, ClientError::Spawn(SpawnError::Unreachable(_))), "{why}");
        let begin = Instant::now();
        while zero.look_up(Search::Global, &pattern("its")).unwrap().is_some() {
            assert!(begin.elapsed() < SECONDS.unwrap(), "the name of the dead node is there still");
            std::thread::sleep(Duration::from_millis(10));
        }
    });
}

pub(crate) fn a_killed_node_0_is_told_at_node_1() {
    each_way(|mut nodes| {
        let mut one = nodes[1].names();
        one.register(Level::Local, &"own@1.0".parse().unwrap(), b"").unwrap();
        let mut spawning = nodes[0].spawning();
        let id = spawning.spawn(Node(1), &Order::program("sleep").argument("100")).unwrap();
        let mut waiting = nodes[1].names();
        let waiter = std::thread::spawn(move || {
            waiting.wait_for(Search::Global, &pattern("nobody"), SECONDS).unwrap_err()
        });
        std::thread::sleep(Duration::from_millis(50));
        nodes[0].role.kill();
        let why = waiter.join().unwrap();
        assert!(matches!(why, NamesError::GlobalLost(_)), "{why}");
        assert!(one.look_up(Search::Global, &pattern("own")).is_err());
        assert!(one.look_up(Search::Local, &pattern("own")).unwrap().is_some());
        // The processes that node 0 had started there have ended.
        wait_until_dead(id.process);
    });
}
