//! Tests with peers that are killed before, between and in the middle of messages.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use atoll_channel::{Channel, Message, Placement, RecvError, SendError, Settings, WaitSet};

use crate::child::{SECONDS, with_child};
use crate::forked::Child;
use crate::words::{Random, check, message};

/// The time within which a death must be noticed: a second by design (`SLICE` in `peer.rs`), plus the delays of a busy machine.
const SOON: Duration = Duration::from_secs(10);

pub(crate) fn a_killed_sender_is_an_error_soon() {
    for outgoing in [Placement::Sender, Placement::Receiver] {
        let settings = Settings { outgoing, incoming: outgoing, ..Settings::default() };
        // Killed in the middle of a message that is longer than the ring, and before anything was sent.
        for begun in [true, false] {
            for sleeping in [true, false] {
                let (child, mut channel) = with_child(settings, move |mut channel| {
                    if begun {
                        channel.send(0, b"whole", None).unwrap();
                        let _ = channel.send(0, &[1; 100_000], None);
                    }
                    std::thread::sleep(Duration::from_secs(100));
                });
                let mut received = Message::default();
                if begun {
                    channel.recv(&mut received, SECONDS).unwrap();
                    assert_eq!(received.bytes, b"whole");
                }
                std::thread::sleep(Duration::from_millis(50));
                child.kill();
                let begin = Instant::now();
                let why = if sleeping {
                    channel.recv(&mut received, SECONDS)
                } else {
                    loop {
                        match channel.receiver.try_recv(&mut received) {
                            Ok(false) => std::thread::yield_now(),
                            Ok(true) => panic!("half a message was received"),
                            Err(why) => break Err(why),
                        }
                    }
                };
                assert_eq!(why, Err(RecvError::PeerDied));
                assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
                assert_eq!(channel.recv(&mut received, None), Err(RecvError::PeerDied));
            }
        }
    }
}

pub(crate) fn a_killed_receiver_is_an_error_soon() {
    for waiting in [true, false] {
        let (child, mut channel) = with_child(Settings::default(), |channel| {
            std::thread::sleep(Duration::from_secs(100));
            drop(channel);
        });
        std::thread::sleep(Duration::from_millis(50));
        child.kill();
        let begin = Instant::now();
        let why = if waiting {
            channel.send(0, &[1; 100_000], None)
        } else {
            // Slowly, so that the ring is not full: the death must be noticed all the same.
            loop {
                if let Err(why) = channel.send(0, b"x", None) {
                    break Err(why);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        assert_eq!(why, Err(SendError::PeerDied));
        assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
        assert_eq!(channel.send(0, b"x", None), Err(SendError::PeerDied));
    }
}

pub(crate) fn a_peer_killed_at_random_leaves_whole_messages() {
    let mut random = Random(7);
    let mut most = 0;
    for round in 0..60 {
        let placement = if round % 2 == 0 { Placement::Sender } else { Placement::Receiver };
        let settings = Settings {
            outgoing: placement,
            incoming: placement,
            spins: 200 * (round % 3),
            ..Settings::default()
        };
        let (child, mut channel) = with_child(settings, |mut channel| {
            let mut bytes = Vec::new();
            for number in 0.. {
                message(number, &mut bytes);
                channel.send(0, &bytes, None).unwrap();
            }
        });
        let end = Instant::now() + Duration::from_micros(random.next() % 20_000);
        let mut received = Message::default();
        let mut number = 0;
        let mut killed = None;
        let why = loop {
            if killed.is_none() && Instant::now() >= end {
                child.kill();
                killed = Some(Instant::now());
            }
            match channel.recv(&mut received, Some(Duration::from_millis(5))) {
                Ok(()) => {
                    assert_eq!(check(&received.bytes), number);
                    number += 1;
                }
                Err(RecvError::TimedOut) => {}
                Err(why) => break why,
            }
        };
        assert_eq!(why, RecvError::PeerDied);
        assert!(killed.unwrap().elapsed() < SOON);
        most = most.max(number);
    }
    assert!(most > 100, "the children hardly sent anything: {most}");
}

pub(crate) fn a_set_tells_of_killed_peers() {
    let mut set = WaitSet::new(40).unwrap();
    let mut children = Vec::new();
    for _ in 0..8 {
        let (here, there) = UnixStream::pair().unwrap();
        children.push(Child::run(|| {
            let mut channels: Vec<Channel> = (0..5)
                .map(|_| Channel::connect(&there, Settings::default(), None, SECONDS).unwrap())
                .collect();
            for (i, channel) in channels.iter_mut().enumerate() {
                channel.send(i as u16, b"here", SECONDS).unwrap();
            }
            std::thread::sleep(Duration::from_secs(100));
        }));
        drop(there);
        for _ in 0..5 {
            let seat = set.seat().unwrap();
            let channel = Channel::connect(&here, Settings::default(), Some(seat), SECONDS).unwrap();
            set.add(channel.receiver).unwrap();
        }
    }
    let mut message = Message::default();
    for _ in 0..40 {
        let token = set.wait(SECONDS).unwrap();
        assert_eq!(set.get(token).unwrap().try_recv(&mut message), Ok(true));
    }
    for (i, child) in children.drain(..).enumerate() {
        child.kill();
        let begin = Instant::now();
        for _ in 0..5 {
            let token = set.wait(SECONDS).unwrap();
            let why = set.get(token).unwrap().try_recv(&mut message);
            assert_eq!(why, Err(RecvError::PeerDied));
            drop(set.remove(token).unwrap());
        }
        assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
        assert_eq!(set.len(), 35 - 5 * i);
    }
    assert!(set.wait(None).is_none());
}
