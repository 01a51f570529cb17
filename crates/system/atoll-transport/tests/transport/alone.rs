//! Tests of one transport, or one layer, that do not apply to all: where UCX listens, who is let in, repeated messages.

use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use atoll_transport::Node;
use atoll_transport::transport::{
    Event, Faults, Faulty, JoinError, LostReason, Proven, Secret, Shm, ShmError, ShmSettings, Transport,
    TransportError, Ucx, UcxError, UcxSettings, mesh,
};

use crate::nodes::{self, Spot};
use crate::run::{LONG, Run, pause};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("ucx_listens_on_loopback_or_the_interface_given", ucx_listens_on_loopback_or_the_interface_given),
    ("ucx_leaves_the_handlers_of_crashes_alone", ucx_leaves_the_handlers_of_crashes_alone),
    ("ucx_loses_a_node_behind_a_dead_link", ucx_loses_a_node_behind_a_dead_link),
    ("ucx_refuses_wrong_settings", ucx_refuses_wrong_settings),
    ("ucx_survives_strangers_at_its_port", ucx_survives_strangers_at_its_port),
    ("a_node_of_ucx_with_a_wrong_secret_is_reported", a_node_of_ucx_with_a_wrong_secret_is_reported),
    ("ucx_lets_no_stranger_speak_for_a_node", ucx_lets_no_stranger_speak_for_a_node),
    ("a_node_that_speaks_before_its_proof_is_reported", a_node_that_speaks_before_its_proof_is_reported),
    ("a_repeated_proof_joins_once", a_repeated_proof_joins_once),
    ("a_cut_by_a_fault_is_told", a_cut_by_a_fault_is_told),
    ("a_directory_for_all_is_refused", a_directory_for_all_is_refused),
    ("a_node_that_never_comes_is_named", a_node_that_never_comes_is_named),
];

fn tcp(spot: &Spot) -> Ucx {
    let settings = UcxSettings { transports: Some("tcp".into()), ..UcxSettings::default() };
    Ucx::join(spot.node, spot.nodes, settings, |mine| spot.exchange(&mine)).unwrap()
}

/// The addresses and ports that this process listens on, as `ss` reports.
fn listening() -> Option<Vec<(String, u16)>> {
    let output = Command::new("ss").args(["-H", "-t", "-l", "-n", "-p"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mine = format!("pid={},", std::process::id());
    let lines = text.lines().filter(|line| line.contains(&mine));
    let addresses = lines.map(|line| {
        let (address, port) = line.split_whitespace().nth(3).unwrap().rsplit_once(':').unwrap();
        (address.to_owned(), port.parse().unwrap())
    });
    Some(addresses.collect())
}

fn ucx_listens_on_loopback_or_the_interface_given() {
    nodes::processes(2, &[], |spot| {
        let run = Run::new(&spot, Box::new(tcp(&spot)));
        match listening() {
            None => atoll_skips::skip_part!("the command ss is not installed: apt-get install iproute2"),
            Some(addresses) => {
                assert!(!addresses.is_empty());
                assert!(addresses.iter().all(|(address, _)| address == "127.0.0.1"), "{addresses:?}");
            }
        }
        run.finish();
    });
    // All transports that there are, on an interface besides loopback.
    if let Some(why) = crate::namespaces::missing() {
        atoll_skips::skip_part!("{why}");
        return;
    }
    nodes::processes(2, &[], |spot| {
        crate::namespaces::host(&spot);
        crate::namespaces::ip("link set lo up").unwrap();
        let settings =
            UcxSettings { devices: Some(crate::namespaces::DEVICE.into()), ..UcxSettings::default() };
        let ucx = Ucx::join(spot.node, spot.nodes, settings, |mine| spot.exchange(&mine)).unwrap();
        let run = Run::new(&spot, Box::new(ucx));
        let own = format!("10.77.0.{}", spot.node.0 + 1);
        for (address, _) in listening().unwrap_or_default() {
            assert_eq!(address, own);
        }
        run.finish();
    });
}

fn ucx_leaves_the_handlers_of_crashes_alone() {
    let signals = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];
    let handlers = || {
        signals.map(|signal| {
            // SAFETY: all zeros are a valid sigaction, which is only read into.
            unsafe {
                let mut action = std::mem::zeroed::<libc::sigaction>();
                libc::sigaction(signal, std::ptr::null(), &raw mut action);
                action.sa_sigaction
            }
        })
    };
    nodes::processes(2, &[], |spot| {
        let before = handlers();
        let run = Run::new(&spot, Box::new(tcp(&spot)));
        assert_eq!(handlers(), before);
        run.finish();
        assert_eq!(handlers(), before);
    });
}

/// Nobody has died, but nothing comes through any more.
fn ucx_loses_a_node_behind_a_dead_link() {
    if let Some(why) = crate::namespaces::missing() {
        atoll_skips::skip!("{why}");
    }
    nodes::processes(2, &[], |spot| {
        crate::namespaces::host(&spot);
        let settings = UcxSettings {
            transports: Some("tcp".into()),
            devices: Some(crate::namespaces::DEVICE.into()),
            silence: Some(Duration::from_secs(1)),
            ..UcxSettings::default()
        };
        let ucx = Ucx::join(spot.node, spot.nodes, settings, |mine| spot.exchange(&mine)).unwrap();
        let mut run = Run::new(&spot, Box::new(ucx));
        run.share(b"before");
        // The node is silent, but alive.
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(1500) {
            run.pump();
            run.transport.wait(Some(Duration::from_secs(5))).unwrap();
        }
        assert!(run.lost.is_empty());
        run.meet();
        if spot.node.0 == 0 {
            crate::namespaces::ip(&format!("link set {} down", crate::namespaces::DEVICE)).unwrap();
        }
        let begin = Instant::now();
        let other = Node(1 - spot.node.0);
        while !run.lost.contains_key(&other) {
            run.pump();
            run.transport.wait(Some(Duration::from_millis(500))).unwrap();
            assert!(begin.elapsed() < LONG);
        }
        let why = &run.lost[&other];
        assert!(matches!(why, LostReason::Died(_)), "{why:?}");
        spot.meet(pause);
    });
}

fn ucx_refuses_wrong_settings() {
    nodes::processes(1, &[], |spot| {
        let join =
            |settings: UcxSettings| Ucx::join(Node(0), 1, settings, |mine| Ok(vec![mine])).err().unwrap();
        let devices = |devices: &str| UcxSettings { devices: Some(devices.into()), ..UcxSettings::default() };
        assert!(matches!(join(devices("all")), UcxError::Devices(_)));
        assert!(matches!(join(devices("^lo")), UcxError::Devices(_)));
        let zero = UcxSettings { transports: Some("tcp\0".into()), ..UcxSettings::default() };
        assert!(matches!(join(zero), UcxError::Setting(_)));
        let short = UcxSettings { longest: 1, ..UcxSettings::default() };
        assert!(matches!(join(short), UcxError::Setting(_)));
        let exchange =
            |all: Vec<Vec<u8>>| Ucx::join(Node(0), 2, UcxSettings::default(), |_| Ok(all)).err().unwrap();
        assert!(matches!(exchange(Vec::new()), UcxError::Exchange(_)));
        assert!(matches!(exchange(vec![Vec::new(); 2]), UcxError::Address { node: 1, .. }));
        assert!(matches!(exchange(vec![vec![7; 500]; 2]), UcxError::Address { node: 1, .. }));
        // The address of another node in place of the first's.
        let mut mine = Vec::new();
        let swapped = Ucx::join(Node(0), 2, UcxSettings::default(), |own| {
            mine.clone_from(&own);
            Ok(vec![own.clone(), own])
        });
        assert!(matches!(swapped.err().unwrap(), UcxError::Address { node: 1, .. }));
        let nobody = Ucx::join(Node(2), 2, UcxSettings::default(), |_| Err("not asked".into()));
        assert!(matches!(nobody.err().unwrap(), UcxError::Setting(_)));
        drop(spot);
    });
}

/// A stranger who connects and sends invalid bytes is dropped by UCX, and the job goes on.
fn ucx_survives_strangers_at_its_port() {
    nodes::processes(2, &[], |spot| {
        let mut run = Run::new(&spot, Box::new(tcp(&spot)));
        run.share(b"before");
        let Some(addresses) = listening() else {
            atoll_skips::skip_part!("the command ss is not installed: apt-get install iproute2");
            return run.finish();
        };
        for (_, port) in addresses {
            for nonsense in [&b"GET / HTTP/1.0\r\n\r\n"[..], &[0; 3], &[]] {
                let stream = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
                std::io::Write::write_all(&mut &stream, nonsense).unwrap();
                for _ in 0..20 {
                    run.pump();
                }
            }
        }
        run.share(b"after");
        assert!(run.lost.is_empty());
        run.finish();
    });
}

fn secret(text: &str) -> Secret {
    Secret::new(text.as_bytes()).unwrap()
}

/// Three nodes over UCX, of which the last has another secret.
fn a_node_of_ucx_with_a_wrong_secret_is_reported() {
    nodes::processes(3, &[], |spot| {
        let last = Node(2);
        let mine = if spot.node == last { "not the job's secret" } else { "the secret of the job" };
        let mut proven = Proven::new(tcp(&spot), secret(mine)).unwrap();
        let (mut lost, mut joined) = (Vec::new(), Vec::new());
        let end = Instant::now() + LONG;
        let others: Vec<Node> = (0..3).map(Node).filter(|node| *node != spot.node).collect();
        let (good, bad): (Vec<Node>, Vec<Node>) = match spot.node == last {
            true => (Vec::new(), others.clone()),
            false => others.iter().partition(|node| **node != last),
        };
        for node in &others {
            assert_eq!(proven.send(*node, 1, b"early"), Err(TransportError::NotProven(*node)));
            assert_eq!(proven.attach(*node, b"key"), Err(TransportError::NotProven(*node)));
            assert_eq!(proven.flush(*node, 1), Err(TransportError::NotProven(*node)));
        }
        while lost.len() < bad.len() || joined.len() < good.len() {
            let events = proven.progress(&mut |event| match event {
                Event::Lost { node, why } => lost.push((node, why)),
                Event::Joined(node) => joined.push(node),
                event => panic!("{event:?}"),
            });
            events.unwrap();
            assert!(Instant::now() < end, "{joined:?} {lost:?}");
            proven.wait(Some(Duration::from_millis(20))).unwrap();
        }
        assert_eq!(joined, good);
        for (node, why) in &lost {
            assert!(bad.contains(node));
            // The node that notices first tells the other.
            assert!(matches!(why, LostReason::WrongSecret | LostReason::CutByPeer), "{why:?}");
            assert_eq!(proven.send(*node, 1, b"late"), Err(TransportError::Lost(*node)));
        }
        spot.meet(|| {
            let _ = proven.progress(&mut |_| ());
            pause();
        });
        // Nodes that have proven the secret go on.
        for node in &good {
            proven.send(*node, 7, b"to a friend").unwrap();
        }
        let mut came = 0;
        while came < good.len() {
            let events = proven.progress(&mut |event| match event {
                Event::Message { from, kind: 7, bytes: b"to a friend" } if good.contains(&from) => came += 1,
                event => panic!("{event:?}"),
            });
            events.unwrap();
            assert!(Instant::now() < end);
        }
        spot.meet(pause);
    });
}

/// Two nodes, and a third process that knows an address and claims to be the second.
fn ucx_lets_no_stranger_speak_for_a_node() {
    nodes::processes(3, &[], |spot| {
        let settings = UcxSettings { transports: Some("tcp".into()), ..UcxSettings::default() };
        if spot.node == Node(2) {
            let addresses = spot.exchange(b"a stranger").unwrap();
            spot.meet(pause);
            let mut forged =
                Ucx::join(Node(1), 2, UcxSettings { linger: Duration::ZERO, ..settings }, |own| {
                    Ok(vec![addresses[0].clone(), own])
                })
                .unwrap();
            for number in 0..100u16 {
                // The stranger's messages have every number that could be the next, whatever the size.
                let _ = forged.send(Node(0), number, &vec![1; 1000 * usize::from(number)]);
                forged.progress(&mut |_| ()).unwrap();
            }
            spot.meet(|| {
                let _ = forged.progress(&mut |_| ());
            });
            return;
        }
        let ucx = Ucx::join(spot.node, 2, settings, |mine| {
            let mut all = spot.exchange(&mine)?;
            all.truncate(2);
            Ok(all)
        });
        let other = Node(1 - spot.node.0);
        let mut proven = Proven::new(ucx.unwrap(), secret("the secret of the job")).unwrap();
        proven.join_all(LONG, &mut |event| assert!(matches!(event, Event::Joined(_)))).unwrap();
        spot.meet(pause);
        let mut next = 0u16;
        let begin = Instant::now();
        let mut sent = 0u16;
        while next < 100 || sent < 100 || (spot.node.0 == 0 && proven.inner().untagged() < 50) {
            if sent < 100 && proven.send(other, sent, b"from a node").is_ok() {
                sent += 1;
            }
            let events = proven.progress(&mut |event| match event {
                Event::Message { from, kind, bytes } => {
                    assert_eq!((from, kind, bytes), (other, next, &b"from a node"[..]));
                    next += 1;
                }
                event => panic!("{event:?}"),
            });
            events.unwrap();
            proven.wait(Some(Duration::from_millis(1))).unwrap();
            assert!(begin.elapsed() < LONG, "{} untagged", proven.inner().untagged());
        }
        spot.meet(|| {
            let _ = proven.progress(&mut |_| ());
        });
    });
}

/// Two nodes of shared memory in one process.
fn two() -> (Shm, Shm) {
    let mut places = mesh(2).unwrap();
    let (second, first) = (places.pop().unwrap(), places.pop().unwrap());
    let other = std::thread::spawn(|| Shm::join(second, ShmSettings::default(), LONG).unwrap());
    let first = Shm::join(first, ShmSettings::default(), LONG).unwrap();
    (first, other.join().unwrap())
}

fn a_node_that_speaks_before_its_proof_is_reported() {
    nodes::processes(1, &[], |_| {
        let (here, mut there) = two();
        let mut here = Proven::new(here, secret("the secret of the job")).unwrap();
        there.send(Node(0), 5, b"let me in").unwrap();
        there.send(Node(0), 6, b"or else").unwrap();
        let why = here.join_all(LONG, &mut |event| assert!(matches!(event, Event::Lost { .. }))).unwrap_err();
        let JoinError::Lost { node: Node(1), why: LostReason::Broken(_) } = why else { panic!("{why}") };
    });
    nodes::processes(1, &[], |_| {
        // The same with a stranger that sends nothing at all.
        let (here, there) = two();
        let mut here = Proven::new(here, secret("the secret of the job")).unwrap();
        let why = here.join_all(Duration::from_millis(50), &mut |event| panic!("{event:?}")).unwrap_err();
        assert!(matches!(why, JoinError::TimedOut(Node(1))), "{why}");
        drop(there);
    });
}

/// Every message is sent twice, those of the proof included.
fn a_repeated_proof_joins_once() {
    nodes::processes(1, &[], |_| {
        let faults = Faults { seed: 1, delayed: 300, full: 100, duplicated: 1000, cut: None };
        let (here, there) = two();
        let [mut here, mut there] = [here, there].map(|shm| {
            Proven::new(Faulty::new(shm, faults.clone()), secret("the secret of the job")).unwrap()
        });
        let (mut joined, mut came) = ([0, 0], 0);
        for round in 0..500 {
            for (at, node) in [&mut here, &mut there].into_iter().enumerate() {
                let events = node.progress(&mut |event| match event {
                    Event::Joined(_) => joined[at] += 1,
                    Event::Message { kind: 5, .. } => came += 1,
                    event => panic!("{event:?}"),
                });
                events.unwrap();
            }
            if round > 300 && came == 0 {
                let _ = here.send(Node(1), 5, b"twice");
            }
        }
        assert_eq!(joined, [1, 1]);
        // Duplicates of other messages reach the user: real transports make none.
        assert!(came >= 2);
    });
}

fn a_cut_by_a_fault_is_told() {
    nodes::processes(1, &[], |_| {
        let (here, there) = two();
        let faults = Faults { seed: 5, delayed: 0, full: 0, duplicated: 0, cut: Some((Node(1), 10)) };
        let (mut here, mut there) = (Faulty::new(here, faults), there);
        let sent = (0..20).take_while(|_| here.send(Node(1), 0, b"count").is_ok()).count();
        assert_eq!(sent, 10);
        let mut lost = Vec::new();
        for node in [&mut here as &mut dyn Transport, &mut there] {
            for _ in 0..2 {
                let events = node.progress(&mut |event| {
                    if let Event::Lost { why, .. } = event {
                        lost.push(why);
                    }
                });
                events.unwrap();
            }
        }
        assert_eq!(lost, [LostReason::Cut, LostReason::Closed]);
    });
}

fn a_directory_for_all_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let join = |path: &std::path::Path| {
        Shm::join_in(path, Node(0), 1, ShmSettings::default(), Duration::ZERO).map(|_| ())
    };
    for mode in [0o755, 0o770, 0o701] {
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        assert!(matches!(join(directory.path()), Err(ShmError::NotPrivate { .. })));
    }
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    join(directory.path()).unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    assert!(matches!(join(&directory.path().join("nowhere")), Err(ShmError::Os(..))));
    // A symbolic link to the directory is refused.
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(directory.path(), &link).unwrap();
    assert!(join(&link).is_err());
}

fn a_node_that_never_comes_is_named() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let join = |node| {
        let timeout = Duration::from_millis(50);
        Shm::join_in(directory.path(), Node(node), 3, ShmSettings::default(), timeout).err().unwrap()
    };
    assert!(matches!(join(1), ShmError::TimedOut(Node(0))));
    assert!(matches!(join(0), ShmError::TimedOut(Node(1))));
    assert!(matches!(join(3), ShmError::Setting(_)));
}
