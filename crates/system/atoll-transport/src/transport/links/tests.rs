//! Tests of links over shared memory between threads, and of the rules of streams with a peer that sends anything.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::streams::{OVERHEAD, WINDOW};
use super::*;
use crate::transport::{Event, Faults, Faulty, Proven, Secret, Shm, ShmSettings, mesh};

const SECONDS: Option<Duration> = Some(Duration::from_secs(20));
const SOON: Option<Duration> = Some(Duration::from_millis(50));

/// Shared-memory transports of nodes in this process.
fn transports(nodes: u32) -> Vec<Shm> {
    let settings = || ShmSettings { lines: 64, queue: 1 << 16, ..ShmSettings::default() };
    let joining: Vec<_> = mesh(nodes)
        .unwrap()
        .into_iter()
        .map(|place| {
            std::thread::spawn(move || Shm::join(place, settings(), Duration::from_secs(20)).unwrap())
        })
        .collect();
    joining.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// Links of nodes 0 and 1, which prove a secret to each other.
fn two() -> [Links; 2] {
    let links = transports(2).into_iter().map(|shm| {
        let secret = Secret::new(b"the secret of this test").unwrap();
        Links::start(Proven::new(shm, secret).unwrap()).unwrap()
    });
    links.collect::<Vec<_>>().try_into().ok().unwrap()
}

/// Links of nodes 0 and 1 over transports that often have no room and delay messages.
fn two_faulty(seed: u64) -> [Links; 2] {
    let faults = |layer| Faults { seed: seed << 1 | layer, delayed: 150, full: 50, duplicated: 0, cut: None };
    let links = transports(2).into_iter().map(|shm| {
        let secret = Secret::new(b"the secret of this test").unwrap();
        let proven = Proven::new(Faulty::new(shm, faults(1)), secret).unwrap();
        Links::start(Faulty::new(proven, faults(0))).unwrap()
    });
    links.collect::<Vec<_>>().try_into().ok().unwrap()
}

/// Both ends of a link from the first to the second.
fn link([zero, one]: &[Links; 2], purpose: u16) -> (NodeLink, NodeLink) {
    let here = zero.open(one.node(), purpose).unwrap();
    (here, one.accept(zero.node(), purpose, SECONDS).unwrap())
}

fn recv(link: &mut NodeLink, timeout: Option<Duration>) -> Result<Message, LinkError> {
    let mut message = Message::default();
    link.recv(&mut message, timeout).map(|()| message)
}

#[test]
fn messages_arrive_in_order_both_ways_and_a_link_says_what_it_is_for() {
    for nodes in [two(), two_faulty(1), two_faulty(2)] {
        talk_over(&nodes);
    }
}

fn talk_over(nodes: &[Links; 2]) {
    let (mut a, mut a_there) = link(nodes, 7);
    let mut b = nodes[1].open(Node(0), 7).unwrap();
    let mut c = nodes[1].open(Node(0), 8).unwrap();
    c.send(1, b"early", SECONDS).unwrap();
    assert!(matches!(nodes[0].accept(Node(1), 9, SOON), Err(LinkError::TimedOut)));
    let mut c_there = nodes[0].accept(Node(1), 8, SECONDS).unwrap();
    let mut b_there = nodes[0].accept(Node(1), 7, SECONDS).unwrap();
    assert_eq!(recv(&mut c_there, SECONDS).unwrap().bytes, b"early");
    let talk = |mut from: NodeLink, mut to: NodeLink| {
        let sender = std::thread::spawn(move || {
            for number in 0..2000u32 {
                let bytes = number.to_le_bytes().repeat(number as usize % 600);
                from.send(number as u16, &bytes, SECONDS).unwrap();
            }
            from
        });
        let receiver = std::thread::spawn(move || {
            for number in 0..2000u32 {
                let message = recv(&mut to, SECONDS).unwrap();
                assert_eq!(message.kind, number as u16);
                assert_eq!(message.bytes, number.to_le_bytes().repeat(number as usize % 600));
            }
            to
        });
        (sender, receiver)
    };
    a.send(3, b"first", SECONDS).unwrap();
    assert_eq!(recv(&mut a_there, SECONDS).unwrap().bytes, b"first");
    b.send(3, b"other", SECONDS).unwrap();
    assert_eq!(recv(&mut b_there, SECONDS).unwrap().bytes, b"other");
    for (sender, receiver) in [talk(a, a_there), talk(b_there, b), talk(c, c_there)] {
        sender.join().unwrap();
        receiver.join().unwrap();
    }
}

#[test]
fn a_reader_that_stopped_holds_up_its_own_link_only() {
    let nodes = two();
    let (mut slow, mut slow_there) = link(&nodes, 1);
    let (mut fast, mut fast_there) = link(&nodes, 2);
    let longest = nodes[0].longest();
    let mut sent = 0;
    let why = loop {
        match slow.send(sent, &vec![sent as u8; longest], SOON) {
            Ok(()) => sent += 1,
            Err(why) => break why,
        }
    };
    assert_eq!(why, LinkError::TimedOut);
    assert_eq!(sent as usize, WINDOW / (longest + OVERHEAD));
    for round in 0..5000u16 {
        fast.send(round, &[1; 1000], SECONDS).unwrap();
        assert_eq!(recv(&mut fast_there, SECONDS).unwrap().kind, round);
    }
    let sender = std::thread::spawn(move || slow.send(sent, b"there was room", SECONDS));
    for number in 0..sent {
        assert_eq!(recv(&mut slow_there, SECONDS).unwrap().bytes, vec![number as u8; longest]);
    }
    sender.join().unwrap().unwrap();
    assert_eq!(recv(&mut slow_there, SECONDS).unwrap().bytes, b"there was room");
    let why = fast.send(1, &vec![0; longest + 1], SECONDS).unwrap_err();
    assert_eq!(why, LinkError::TooLong { length: longest + 1, longest });
}

#[test]
fn a_closed_link_gives_what_was_sent_and_then_says_so() {
    let nodes = two();
    for _ in 0..600 {
        let (mut here, mut there) = link(&nodes, 1);
        here.send(1, b"last", SECONDS).unwrap();
        drop(here);
        assert_eq!(recv(&mut there, SECONDS).unwrap().bytes, b"last");
        assert_eq!(recv(&mut there, SECONDS).unwrap_err(), LinkError::Closed);
        assert_eq!(there.send(1, b"late", SECONDS).unwrap_err(), LinkError::Closed);
    }
    // No stream that both have closed is kept.
    let end = Instant::now() + SECONDS.unwrap();
    let kept = |links: &Links| {
        let state = links.shared.lock();
        state.sleepers.len() + state.nodes.iter().flatten().map(Streams::count).sum::<usize>()
    };
    while nodes.iter().map(kept).sum::<usize>() > 0 {
        assert!(Instant::now() < end, "closed links are kept");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn waits_end_when_the_other_node_goes() {
    let [zero, one] = two();
    let mut here = zero.open(Node(1), 1).unwrap();
    let mut there = one.accept(Node(0), 1, SECONDS).unwrap();
    there.send(5, b"farewell", SECONDS).unwrap();
    let waiting = std::thread::spawn(move || [recv(&mut here, None), recv(&mut here, None)]);
    let accepting = std::thread::spawn(move || (zero.accept(Node(1), 9, None).unwrap_err(), zero));
    std::thread::sleep(Duration::from_millis(20));
    drop(one);
    assert_eq!(recv(&mut there, SECONDS).unwrap_err(), LinkError::Closed);
    let (why, zero) = accepting.join().unwrap();
    assert_eq!(why, LinkError::Closed);
    let [farewell, end] = waiting.join().unwrap();
    assert_eq!(farewell.unwrap().kind, 5);
    assert_eq!(end.unwrap_err(), LinkError::Closed);
    assert!(
        zero.open(Node(1), 1).is_err() && zero.open(Node(0), 1).is_err() && zero.open(Node(9), 1).is_err()
    );
}

#[test]
fn a_node_that_breaks_the_rules_is_cut_and_the_others_go_on() {
    let mut nodes = transports(3).into_iter();
    let (zero, one) =
        (Links::start(nodes.next().unwrap()).unwrap(), Links::start(nodes.next().unwrap()).unwrap());
    let mut rude = nodes.next().unwrap();
    let mut to_rude = zero.open(Node(2), 1).unwrap();
    rude.send(Node(0), 2, b"a message of no link").unwrap();
    let why = recv(&mut to_rude, SECONDS);
    let mut lost = false;
    let end = Instant::now() + SECONDS.unwrap();
    while !lost && Instant::now() < end {
        rude.progress(&mut |event| lost |= matches!(event, Event::Lost { node: Node(0), .. })).unwrap();
    }
    assert!(lost);
    assert!(matches!(why, Err(LinkError::Broken(_))), "{why:?}");
    assert!(matches!(zero.accept(Node(2), 1, SECONDS), Err(LinkError::Broken(_))));
    let nodes = [zero, one];
    let (mut here, mut there) = link(&nodes, 3);
    here.send(1, b"still there", SECONDS).unwrap();
    assert_eq!(recv(&mut there, SECONDS).unwrap().bytes, b"still there");
}

/// A word of any kind about one of a few streams.
fn word() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let stream = (0..3u32, any::<bool>()).prop_map(|(number, mine)| number | u32::from(mine) << 31);
    let rest = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..12),
        (0..2_000_000u32).prop_map(|number| number.to_le_bytes().to_vec()),
        (0..600_000usize).prop_map(|length| vec![0; length]),
        Just(vec![1, 0]),
        Just(Vec::new()),
    ];
    (0..6u16, stream, rest).prop_map(|(kind, stream, rest)| {
        let mut bytes = stream.to_le_bytes().to_vec();
        bytes.extend(rest);
        (kind, bytes)
    })
}

proptest! {
    /// Whatever comes, a node keeps at most a window of each stream.
    #[test]
    fn nothing_that_a_node_says_takes_more_than_its_windows(words in proptest::collection::vec(word(), 0..60)) {
        let mut streams = Streams::default();
        let (mine, _) = streams.open(1).unwrap();
        streams.send(mine, 1, &[0; 1000]).unwrap();
        for (kind, bytes) in words {
            // A node that breaks the rules would be cut; this test goes on.
            let _ = streams.take(Word::read(kind, &bytes));
            if let Ok(Some(stream)) = streams.accept(1) {
                streams.recv(stream).unwrap_or_default();
            }
            prop_assert!(streams.kept() <= streams.count() * WINDOW);
        }
    }

    /// Two sides that keep the rules, with words that take any time between them, in order: no word is taken for a breach.
    #[test]
    fn nodes_that_keep_the_rules_never_break_them(steps in proptest::collection::vec((0..2usize, 0..6u8, 0..4usize, 0..WINDOW), 0..400)) {
        let mut sides = [Streams::default(), Streams::default()];
        let mut ways: [VecDeque<Frame>; 2] = Default::default();
        let mut ends: [Vec<StreamId>; 2] = Default::default();
        for (side, what, which, length) in steps {
            let there = Node(1 - side as u32);
            let which = ends[side].get(which).copied();
            match (what, which) {
                (0, _) => {
                    let (stream, word) = sides[side].open(1).unwrap();
                    ways[side].push_back(word.write(there));
                    ends[side].push(stream);
                }
                (1, _) => ends[side].extend(sides[side].accept(1).unwrap()),
                (2, Some(stream)) => {
                    let bytes = vec![0; length.min(LONGEST)];
                    if let Ok(word) = sides[side].send(stream, 1, &bytes) {
                        ways[side].push_back(word.write(there));
                    }
                }
                (3, Some(stream)) => {
                    if let Ok(Some((_, Some(word)))) = sides[side].recv(stream) {
                        ways[side].push_back(word.write(there));
                    }
                }
                (4, Some(stream)) if length % 4 == 0 => {
                    ends[side].retain(|end| *end != stream);
                    ways[side].extend(sides[side].close(stream).map(|word| word.write(there)));
                }
                _ => {
                    if let Some(Frame { kind, bytes, .. }) = ways[1 - side].pop_front() {
                        let taken = sides[side].take(Word::read(kind, &bytes));
                        prop_assert!(taken.is_ok(), "{taken:?}");
                    }
                }
            }
        }
    }
}
