//! Tests of the promises of channels between threads of one process.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use atoll_transport::{
    AddError, AttachError, Channel, ConnectError, CreateError, Message, Peer, Placement, RecvError,
    SendError, Settings, SettingsError, WaitSet, pair,
};

/// The extra time allowed on a busy machine: these tests check what happens, not how fast.
const BUSY: Duration = Duration::from_secs(10);
const SECONDS: Option<Duration> = Some(Duration::from_secs(10));

/// Both ends of a channel, made as threads make them.
fn both(settings: Settings) -> (Channel, Channel) {
    let (near, far) = pair(settings, None).unwrap();
    (near.attach(Peer::this().unwrap()).unwrap(), far.attach(Peer::this().unwrap()).unwrap())
}

/// Both ends of a channel, made over a socket.
fn connected(
    near: Settings,
    far: Settings,
) -> (Result<Channel, ConnectError>, Result<Channel, ConnectError>) {
    let (here, there) = UnixStream::pair().unwrap();
    let other = thread::spawn(move || Channel::connect(&there, far, None, SECONDS));
    (Channel::connect(&here, near, None, SECONDS), other.join().unwrap())
}

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 + seed * 7) as u8).collect()
}

#[test]
fn every_length_arrives_as_it_was() {
    let (mut near, mut far) = both(Settings::default());
    let lengths: Vec<usize> = (0..200).chain([1000, 3359, 3360, 3361, 10_000, 1 << 20]).collect();
    let mut message = Message::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            for (i, length) in lengths.iter().enumerate() {
                near.send(i as u16, &pattern(*length, i), SECONDS).unwrap();
            }
        });
        for (i, length) in lengths.iter().enumerate() {
            far.recv(&mut message, SECONDS).unwrap();
            assert_eq!((message.kind, &message.bytes), (i as u16, &pattern(*length, i)), "length {length}");
        }
    });
}

#[test]
fn too_long_a_message_is_refused_and_the_channel_goes_on() {
    let settings = Settings { lines: 4, longest: 1000, ..Settings::default() };
    let (mut near, mut far) = both(settings);
    let refused = near.send(0, &[0; 1001], SECONDS);
    assert_eq!(refused, Err(SendError::TooLong { length: 1001, longest: 1000 }));
    let refused = near.sender.try_send(0, &[0; 1000]);
    assert_eq!(refused, Err(SendError::NeverFits { length: 1000, most: 224 }));
    near.send(1, b"fits", SECONDS).unwrap();
    let mut message = Message::default();
    far.recv(&mut message, SECONDS).unwrap();
    assert_eq!(message.bytes, b"fits");
}

#[test]
fn a_full_ring_refuses_and_loses_nothing() {
    let settings = Settings { lines: 4, ..Settings::default() };
    let (mut near, mut far) = both(settings);
    let mut message = Message::default();
    let (mut sent, mut received) = (0u32, 0u32);
    for round in 0..100 {
        loop {
            match near.sender.try_send(0, &sent.to_le_bytes()) {
                Ok(()) => sent += 1,
                Err(e) => {
                    assert_eq!(e, SendError::Full);
                    break;
                }
            }
        }
        assert_eq!(near.send(0, b"late", Some(Duration::from_millis(1))), Err(SendError::TimedOut));
        for _ in 0..1 + round % 4 {
            assert_eq!(far.receiver.try_recv(&mut message), Ok(true));
            assert_eq!(message.bytes, received.to_le_bytes());
            received += 1;
        }
    }
    assert!(sent > 200);
}

#[test]
fn a_ring_that_was_emptied_takes_the_longest_try() {
    for lines in [2, 3, 4, 5, 60, 61] {
        let (mut near, mut far) = both(Settings { lines, ..Settings::default() });
        let mut message = Message::default();
        let Err(SendError::NeverFits { most, .. }) = near.sender.try_send(0, &[0; 10_000]) else { panic!() };
        assert!(most >= lines as usize / 2 * 56, "{lines} lines take {most} bytes");
        for i in 0..200 {
            // Every fill level of the ring occurs.
            for _ in 0..i % 3 {
                near.sender.try_send(0, b"x").unwrap_or_default();
            }
            while far.receiver.try_recv(&mut message).unwrap() {}
            near.sender.try_send(0, &vec![1; most]).unwrap();
            while far.receiver.try_recv(&mut message).unwrap() {}
        }
    }
}

#[test]
fn a_message_that_timed_out_half_sent_is_never_seen() {
    let settings = Settings { lines: 4, ..Settings::default() };
    let (mut near, mut far) = both(settings);
    let timeout = Some(Duration::from_millis(20));
    assert_eq!(near.send(1, &[1; 1000], timeout), Err(SendError::TimedOut));
    let mut message = Message::default();
    assert_eq!(far.receiver.try_recv(&mut message), Ok(false));
    near.send(2, b"next", timeout).unwrap();
    far.recv(&mut message, SECONDS).unwrap();
    assert_eq!((message.kind, message.bytes.as_slice()), (2, &b"next"[..]));
    // The same for a long message after one that was given up.
    assert_eq!(near.send(3, &[3; 1000], timeout), Err(SendError::TimedOut));
    assert_eq!(far.receiver.try_recv(&mut message), Ok(false));
    let sender = thread::spawn(move || near.send(4, &pattern(1000, 4), SECONDS).map(|()| near));
    far.recv(&mut message, SECONDS).unwrap();
    assert_eq!((message.kind, &message.bytes), (4, &pattern(1000, 4)));
    sender.join().unwrap().unwrap();
}

#[test]
fn timeouts_end_in_time() {
    let (_near, mut far) = both(Settings::default());
    let mut message = Message::default();
    for timeout in [Duration::ZERO, Duration::from_millis(30), Duration::from_millis(450)] {
        let begin = Instant::now();
        assert_eq!(far.recv(&mut message, Some(timeout)), Err(RecvError::TimedOut));
        assert!(begin.elapsed() >= timeout && begin.elapsed() < timeout + BUSY);
    }
}

#[test]
fn a_sleeper_is_woken_by_a_message_by_room_and_by_a_close() {
    let settings = Settings { lines: 2, ..Settings::default() };
    let (mut near, mut far) = both(settings);
    let slow = Duration::from_millis(60);
    let receiver = thread::spawn(move || {
        let mut message = Message::default();
        far.recv(&mut message, None).unwrap();
        thread::sleep(slow);
        far.recv(&mut message, None).unwrap();
        far.recv(&mut message, None).unwrap();
        thread::sleep(slow);
        drop(far);
    });
    thread::sleep(slow);
    for _ in 0..3 {
        near.send(0, b"x", None).unwrap();
    }
    assert_eq!(near.send(0, &[0; 1000], None), Err(SendError::Closed));
    assert_eq!(near.send(0, b"x", None), Err(SendError::Closed));
    receiver.join().unwrap();
}

#[test]
fn what_was_sent_before_the_close_is_received() {
    let (mut near, mut far) = both(Settings::default());
    near.send(1, b"one", None).unwrap();
    near.send(2, &[2; 500], None).unwrap();
    drop(near);
    let mut message = Message::default();
    assert_eq!(far.receiver.try_recv(&mut message), Ok(true));
    assert_eq!(far.receiver.try_recv(&mut message), Ok(true));
    assert_eq!(message.bytes, [2; 500]);
    assert_eq!(far.receiver.try_recv(&mut message), Err(RecvError::Closed));
    assert_eq!(far.send(0, b"", None), Err(SendError::Closed));
}

#[test]
fn rings_lie_where_they_are_placed_and_ends_must_agree() {
    for outgoing in [Placement::Sender, Placement::Receiver] {
        for incoming in [Placement::Sender, Placement::Receiver] {
            let settings = Settings { outgoing, incoming, ..Settings::default() };
            let (near, far) = connected(settings, settings.mirrored());
            let (mut near, mut far) = (near.unwrap(), far.unwrap());
            let mut message = Message::default();
            near.send(1, b"there", SECONDS).unwrap();
            far.recv(&mut message, SECONDS).unwrap();
            assert_eq!(message.bytes, b"there");
            far.send(1, b"back", SECONDS).unwrap();
            near.recv(&mut message, SECONDS).unwrap();
            assert_eq!(message.bytes, b"back");
        }
    }
    let settings = Settings::default();
    let differing = [
        Settings { lines: 8, ..settings },
        Settings { longest: 100, ..settings },
        Settings { outgoing: Placement::Receiver, ..settings },
    ];
    for other in differing {
        let (near, far) = connected(settings, other);
        for end in [near, far] {
            assert!(matches!(end, Err(ConnectError::Attach(AttachError::Settings { .. }))));
        }
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    let settings = Settings::default();
    for (wrong, why) in [
        (Settings { lines: 1, ..settings }, SettingsError::Lines(1)),
        (Settings { lines: 65_537, ..settings }, SettingsError::Lines(65_537)),
        (Settings { longest: 55, ..settings }, SettingsError::Longest(55)),
    ] {
        let Err(CreateError::Settings(found)) = pair(wrong, None) else { panic!("{wrong:?} was taken") };
        assert_eq!(found, why);
    }
    assert!(matches!(WaitSet::new(0), Err(CreateError::Seats(0))));
    assert!(matches!(WaitSet::new(262_145), Err(CreateError::Seats(262_145))));
}

#[test]
fn connecting_to_nobody_or_to_nonsense_is_an_error() {
    let (here, there) = UnixStream::pair().unwrap();
    let begin = Instant::now();
    let timeout = Some(Duration::from_millis(50));
    let silent = Channel::connect(&here, Settings::default(), None, timeout);
    assert!(matches!(silent, Err(ConnectError::TimedOut)));
    assert!(begin.elapsed() < BUSY);
    drop(there);
    let gone = Channel::connect(&here, Settings::default(), None, timeout);
    assert!(matches!(gone, Err(ConnectError::Closed)));

    let (here, there) = UnixStream::pair().unwrap();
    std::io::Write::write_all(&mut &there, &[b'x'; 64]).unwrap();
    let nonsense = Channel::connect(&here, Settings::default(), None, timeout);
    assert!(matches!(nonsense, Err(ConnectError::Greeting(_))));
}

#[test]
fn a_set_gives_turns_to_all_and_tells_of_closes() {
    let mut set = WaitSet::new(100).unwrap();
    let mut senders = Vec::new();
    let mut tokens = Vec::new();
    for _ in 0..100 {
        let (near, far) = pair(Settings::default(), Some(set.seat().unwrap())).unwrap();
        senders.push(far.attach(Peer::this().unwrap()).unwrap().sender);
        tokens.push(set.add(near.attach(Peer::this().unwrap()).unwrap().receiver).unwrap());
    }
    assert!(set.seat().is_err());
    assert_eq!(set.wait(Some(Duration::ZERO)), None);
    // Three messages each: every channel has its turn before any has its second.
    for sender in &mut senders {
        for i in 0..3 {
            sender.send(i, b"x", None).unwrap();
        }
    }
    let mut message = Message::default();
    for round in 0..3 {
        let mut seen: Vec<_> = (0..100)
            .map(|_| {
                let token = set.wait(SECONDS).unwrap();
                assert_eq!(set.get(token).unwrap().try_recv(&mut message), Ok(true));
                assert_eq!(message.kind, round);
                token.0
            })
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    }
    assert_eq!(set.wait(Some(Duration::ZERO)), None);
    drop(senders.remove(40));
    let closed = set.wait(SECONDS).unwrap();
    assert_eq!(closed, tokens[40]);
    assert_eq!(set.get(closed).unwrap().try_recv(&mut message), Err(RecvError::Closed));
    drop(set.remove(closed).unwrap());
    assert_eq!((set.len(), set.wait(Some(Duration::ZERO))), (99, None));
    // The dead channel's seat is free again, for a channel that works.
    let (near, far) = pair(Settings::default(), Some(set.seat().unwrap())).unwrap();
    let mut far = far.attach(Peer::this().unwrap()).unwrap();
    let token = set.add(near.attach(Peer::this().unwrap()).unwrap().receiver).unwrap();
    far.send(9, b"y", None).unwrap();
    assert_eq!(set.wait(SECONDS), Some(token));
}

#[test]
fn a_receiver_of_a_set_may_wait_by_itself_in_between() {
    let mut set = WaitSet::new(1).unwrap();
    let (near, far) = pair(Settings::default(), Some(set.seat().unwrap())).unwrap();
    let mut far = far.attach(Peer::this().unwrap()).unwrap();
    let token = set.add(near.attach(Peer::this().unwrap()).unwrap().receiver).unwrap();
    let mut message = Message::default();
    for _ in 0..3 {
        assert_eq!(set.wait(Some(Duration::from_millis(1))), None);
        let receiver = set.get(token).unwrap();
        assert_eq!(receiver.recv(&mut message, Some(Duration::from_millis(1))), Err(RecvError::TimedOut));
        let sender = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            far.send(0, b"x", None).map(|()| far)
        });
        assert_eq!(set.wait(SECONDS), Some(token));
        assert_eq!(set.get(token).unwrap().try_recv(&mut message), Ok(true));
        far = sender.join().unwrap().unwrap();
    }
}

#[test]
fn a_receiver_without_a_seat_is_not_added() {
    let mut set = WaitSet::new(4).unwrap();
    let other = WaitSet::new(4).unwrap();
    let (near, far) = pair(Settings::default(), None).unwrap();
    let without = near.attach(Peer::this().unwrap()).unwrap().receiver;
    assert!(matches!(set.add(without), Err(AddError::NoSeat(_))));
    let (near, _far) = pair(Settings::default(), Some(other.seat().unwrap())).unwrap();
    let elsewhere = near.attach(Peer::this().unwrap()).unwrap().receiver;
    assert!(matches!(set.add(elsewhere), Err(AddError::NoSeat(_))));
    drop(far);
}
