//! Tests of services and clients in processes of their own, killed in the middle of calls.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use atoll_channel::{
    CallError, Channel, Clients, LinkError, Peer, ServeError, Settings, interface, pair, serve,
};

use crate::child::{SECONDS, with_child};
use crate::forked::Child;

/// The time within which a death must be noticed, on a busy machine, too.
const SOON: Duration = Duration::from_secs(10);

/// The calls between the processes below.
#[interface(version = 1)]
trait Echo {
    fn echo(&mut self, bytes: Vec<u8>) -> Vec<u8>;
    /// Never returns.
    fn hang(&mut self) -> u8;
}

struct Echoes;

impl Echo for Echoes {
    fn echo(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        bytes
    }

    fn hang(&mut self) -> u8 {
        std::thread::sleep(Duration::from_secs(100));
        0
    }
}

fn gone(why: &LinkError) -> bool {
    matches!(why, LinkError::Died | LinkError::Closed)
}

pub(crate) fn a_service_killed_in_a_call_is_an_error_soon() {
    let (child, channel) = with_child(Settings::default(), |channel| {
        serve(channel, EchoService(&mut Echoes), None).unwrap();
    });
    let mut echo = EchoClient::bind(channel, SECONDS).unwrap();
    let bytes: Vec<u8> = (0..100_000).map(|i| i as u8).collect();
    assert_eq!(echo.echo(bytes.clone()).unwrap(), bytes);
    echo.set_timeout(Some(Duration::from_millis(50)));
    assert_eq!(echo.hang(), Err(CallError::Link { method: "hang", why: LinkError::TimedOut }));
    echo.set_timeout(None);
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        child.kill();
        (child, Instant::now())
    });
    let why = echo.hang();
    let (child, killed) = killer.join().unwrap();
    assert_eq!(why, Err(CallError::Link { method: "hang", why: LinkError::Died }));
    assert!(killed.elapsed() < SOON, "{:?}", killed.elapsed());
    assert!(!child.ended_well());
    // All later calls fail, too.
    assert_eq!(echo.echo(vec![]), Err(CallError::Link { method: "echo", why: LinkError::Died }));
}

pub(crate) fn clients_killed_at_random_end_nothing_but_themselves() {
    let mut clients = Clients::new(8).unwrap();
    let parent = Peer::this().unwrap();
    let mut children = Vec::new();
    for number in 0..8u8 {
        let (near, far) = pair(Settings::default(), Some(clients.seat().unwrap())).unwrap();
        let parent = parent.clone();
        let child = Child::run(move || {
            let mut echo = EchoClient::bind(far.attach(parent).unwrap(), SECONDS).unwrap();
            // Each calls until it is killed; the last one ends by itself.
            for round in 0u32.. {
                let bytes = vec![number; (round as usize * 97) % 9000];
                assert_eq!(echo.echo(bytes.clone()).unwrap(), bytes);
                if number == 7 && round == 2000 {
                    break;
                }
            }
        });
        clients.add(near.attach(Peer::process(child.pid as u32).unwrap()).unwrap()).unwrap();
        children.push(child);
    }
    let last = children.pop().unwrap();
    let begin = Instant::now();
    let mut ended = Vec::new();
    while let Some(client) = clients.wait(Some(SOON)) {
        if let Err(why) = clients.serve(client, EchoService(&mut Echoes)) {
            ended.push(why);
        }
        if begin.elapsed() > Duration::from_millis(20 * (8 - children.len() as u64))
            && let Some(child) = children.pop()
        {
            child.kill();
        }
    }
    assert!(last.ended_well());
    assert!(children.is_empty() && clients.is_empty());
    assert_eq!(ended.len(), 8);
    for why in ended {
        assert!(matches!(&why, ServeError::Link(why) if gone(why)), "{why}");
    }
}

pub(crate) fn a_client_killed_in_a_call_ends_its_service() {
    let (here, there) = UnixStream::pair().unwrap();
    let child = Child::run(|| {
        let channel = Channel::connect(&there, Settings::default(), None, SECONDS).unwrap();
        let mut echo = EchoClient::bind(channel, SECONDS).unwrap();
        loop {
            echo.echo(vec![1; 50_000]).unwrap();
        }
    });
    drop(there);
    let channel = Channel::connect(&here, Settings::default(), None, SECONDS).unwrap();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        child.kill();
        (child, Instant::now())
    });
    let served = serve(channel, EchoService(&mut Echoes), None);
    let (child, killed) = killer.join().unwrap();
    assert_eq!(served, Err(ServeError::Link(LinkError::Died)));
    assert!(killed.elapsed() < SOON, "{:?}", killed.elapsed());
    assert!(!child.ended_well());
}
