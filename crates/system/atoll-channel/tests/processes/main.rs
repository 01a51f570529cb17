//! Tests of channels between real processes: checksums, random sizes, both placements, peers that are killed at any moment, and
//! 10,000 channels in a set.
//!
//! The program forks, so it cannot use the test harness with its threads: `cargo test -p atoll-channel --test processes [--
//! NAME]`. A test that takes longer than a minute is ended by SIGALRM.

#![allow(clippy::unwrap_used, reason = "tests")]

mod child;
mod deaths;
#[path = "../../../atoll-transport/tests/shared/forked.rs"]
mod forked;
#[path = "../../../atoll-transport/tests/shared/one_by_one.rs"]
mod one_by_one;
mod services;
#[path = "../../../atoll-transport/tests/shared/words.rs"]
mod words;

use std::os::unix::net::UnixStream;
use std::time::Duration;
use std::time::Instant;

use atoll_channel::{
    Channel, ConnectError, Message, Peer, Placement, RecvError, SendError, Settings, WaitSet, pair,
};

use crate::child::{SECONDS, with_child};
use crate::forked::Child;
use crate::one_by_one::OneByOne;
use crate::words::{Random, check, message};

fn main() {
    let tests: &[(&str, fn())] = &[
        ("random_sizes_in_all_placements", random_sizes_in_all_placements),
        ("an_inherited_pair_talks", an_inherited_pair_talks),
        ("a_channel_over_exec", a_channel_over_exec),
        ("a_killed_sender_is_an_error_soon", deaths::a_killed_sender_is_an_error_soon),
        ("a_killed_receiver_is_an_error_soon", deaths::a_killed_receiver_is_an_error_soon),
        (
            "a_peer_killed_at_random_leaves_whole_messages",
            deaths::a_peer_killed_at_random_leaves_whole_messages,
        ),
        ("a_set_tells_of_killed_peers", deaths::a_set_tells_of_killed_peers),
        (
            "a_service_killed_in_a_call_is_an_error_soon",
            services::a_service_killed_in_a_call_is_an_error_soon,
        ),
        ("a_client_killed_in_a_call_ends_its_service", services::a_client_killed_in_a_call_ends_its_service),
        (
            "clients_killed_at_random_end_nothing_but_themselves",
            services::clients_killed_at_random_end_nothing_but_themselves,
        ),
        ("ten_thousand_channels_in_a_set", ten_thousand_channels_in_a_set),
        ("a_dropped_copy_in_a_child_closes_nothing", a_dropped_copy_in_a_child_closes_nothing),
        ("a_channel_takes_8_kib_and_leaves_nothing", a_channel_takes_8_kib_and_leaves_nothing),
    ];
    if std::env::args().nth(1).is_some_and(|word| word == "echo-on-stdin") {
        return echo_on_stdin();
    }
    let one_by_one = OneByOne::new(60);
    for (name, test) in tests {
        one_by_one.run(name, test);
    }
}

fn random_sizes_in_all_placements() {
    const MESSAGES: u64 = 8_000;
    for outgoing in [Placement::Sender, Placement::Receiver] {
        for incoming in [Placement::Sender, Placement::Receiver] {
            for (lines, spins) in [(60, 2000), (3, 0)] {
                let settings = Settings { lines, spins, outgoing, incoming, ..Settings::default() };
                // The child sends back each message a little later; both ends are asleep or full at times.
                let (child, mut channel) = with_child(settings, |mut channel| {
                    let mut received = Message::default();
                    loop {
                        match channel.recv(&mut received, SECONDS) {
                            Ok(()) => channel.send(received.kind, &received.bytes, SECONDS).unwrap(),
                            Err(RecvError::Closed) => break,
                            Err(e) => panic!("{e}"),
                        }
                    }
                });
                let mut bytes = Vec::new();
                let mut received = Message::default();
                let (mut sent, mut back) = (0, 0);
                let count = if spins == 0 { MESSAGES / 10 } else { MESSAGES };
                while back < count {
                    // Never more bytes are under way than both rings hold, so that neither end waits for the other.
                    while sent < count && sent - back < 4 {
                        message(sent, &mut bytes);
                        match channel.sender.try_send(sent as u16, &bytes) {
                            Ok(()) => sent += 1,
                            Err(SendError::Full) => break,
                            Err(SendError::NeverFits { .. }) if sent == back => {
                                channel.send(sent as u16, &bytes, SECONDS).unwrap();
                                sent += 1;
                            }
                            Err(SendError::NeverFits { .. }) => break,
                            Err(e) => panic!("{e}"),
                        }
                    }
                    channel.recv(&mut received, SECONDS).unwrap();
                    assert_eq!((check(&received.bytes), received.kind), (back, back as u16));
                    back += 1;
                }
                drop(channel);
                assert!(child.ended_well());
            }
        }
    }
}

fn an_inherited_pair_talks() {
    let (near, far) = pair(Settings::default(), None).unwrap();
    let parent = Peer::this().unwrap();
    let child = Child::run(|| {
        let mut channel = far.attach(parent).unwrap();
        let mut bytes = Vec::new();
        for number in 0..10_000 {
            message(number, &mut bytes);
            channel.send(0, &bytes, SECONDS).unwrap();
        }
    });
    let mut channel = near.attach(Peer::process(child.pid as u32).unwrap()).unwrap();
    let mut received = Message::default();
    for number in 0..10_000 {
        channel.recv(&mut received, SECONDS).unwrap();
        assert_eq!(check(&received.bytes), number);
    }
    assert!(child.ended_well());
    assert_eq!(channel.recv(&mut received, SECONDS), Err(RecvError::Closed));
}

/// The other side of `a_channel_over_exec`: a program of its own that gets a socket as its standard input.
fn echo_on_stdin() {
    use std::os::fd::AsFd;
    let stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let mut channel = Channel::connect(&stream, Settings::default(), None, SECONDS).unwrap();
    let mut received = Message::default();
    while channel.recv(&mut received, SECONDS).is_ok() {
        channel.send(received.kind + 1, &received.bytes, SECONDS).unwrap();
    }
}

fn a_channel_over_exec() {
    let (here, there) = UnixStream::pair().unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .arg("echo-on-stdin")
        .stdin(std::process::Stdio::from(std::os::fd::OwnedFd::from(there)))
        .spawn()
        .unwrap();
    let mut channel = Channel::connect(&here, Settings::default(), None, SECONDS).unwrap();
    let mut received = Message::default();
    for kind in 0..100 {
        channel.send(kind, b"over exec", SECONDS).unwrap();
        channel.recv(&mut received, SECONDS).unwrap();
        assert_eq!((received.kind, received.bytes.as_slice()), (kind + 1, &b"over exec"[..]));
    }
    drop(channel);
    assert!(child.wait().unwrap().success());
    let gone = Channel::connect(&here, Settings::default(), None, SECONDS);
    assert!(matches!(gone, Err(ConnectError::Closed)));
}

fn ten_thousand_channels_in_a_set() {
    const CHANNELS: u32 = 10_000;
    const MESSAGES: u64 = 100_000;
    let mut set = WaitSet::new(CHANNELS).unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    let child = Child::run(|| {
        let mut channels: Vec<Channel> = (0..CHANNELS)
            .map(|_| Channel::connect(&there, Settings::default(), None, SECONDS).unwrap())
            .collect();
        let mut random = Random(3);
        for number in 0..MESSAGES {
            let at = random.next() as usize % channels.len();
            channels[at].send(at as u16, &number.to_le_bytes(), SECONDS).unwrap();
        }
        // Waits until the parent is done.
        let mut message = Message::default();
        assert_eq!(channels[0].recv(&mut message, SECONDS), Err(RecvError::Closed));
    });
    drop(there);
    let mut senders = Vec::new();
    let mut of = std::collections::HashMap::new();
    let files = open_files();
    for number in 0..CHANNELS {
        let seat = set.seat().unwrap();
        let channel = Channel::connect(&here, Settings::default(), Some(seat), SECONDS).unwrap();
        senders.push(channel.sender);
        of.insert(set.add(channel.receiver).unwrap(), number as u16);
    }
    // There is one descriptor for the peer, and none for each channel.
    assert!(open_files() < files + 10, "{} more open files", open_files() - files);
    let begin = Instant::now();
    let mut message = Message::default();
    let mut last = vec![None; CHANNELS as usize];
    for _ in 0..MESSAGES {
        let token = set.wait(SECONDS).unwrap();
        assert_eq!(set.get(token).unwrap().try_recv(&mut message), Ok(true));
        assert_eq!(message.kind, of[&token]);
        let number = u64::from_le_bytes(message.bytes.as_slice().try_into().unwrap());
        let before = last[usize::from(message.kind)].replace(number);
        assert!(before.is_none_or(|before| before < number));
    }
    let each = begin.elapsed().as_nanos() / u128::from(MESSAGES);
    assert_eq!(set.wait(Some(Duration::from_millis(10))), None);
    println!("     10,000 channels: {each} ns a message served");
    drop(senders);
    assert!(child.ended_well());
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn a_dropped_copy_in_a_child_closes_nothing() {
    let (near, far) = pair(Settings::default(), None).unwrap();
    let mut near = near.attach(Peer::this().unwrap()).unwrap();
    let mut far = Some(far.attach(Peer::this().unwrap()).unwrap());
    // The child's copy of the value, on the same memory.
    let child = Child::run(|| drop(far.take()));
    assert!(child.ended_well());
    near.send(0, b"still open", SECONDS).unwrap();
    let mut message = Message::default();
    far.unwrap().recv(&mut message, SECONDS).unwrap();
    assert_eq!(message.bytes, b"still open");
}

fn a_channel_takes_8_kib_and_leaves_nothing() {
    let (near, far) = pair(Settings::default(), None).unwrap();
    let files = open_files();
    let before = mapped();
    let mut bytes = 0;
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let path = entry.unwrap().path();
        if std::fs::read_link(&path).is_ok_and(|to| to.to_string_lossy().contains("atoll-ring")) {
            bytes += std::fs::metadata(&path).unwrap().len();
        }
    }
    assert_eq!(bytes, 8192);
    let near = near.attach(Peer::this().unwrap()).unwrap();
    let far = far.attach(Peer::this().unwrap()).unwrap();
    assert!(mapped() > before);
    drop((near, far));
    assert_eq!(mapped(), before);
    assert_eq!(open_files(), files - 2);
    // A peer that died leaves nothing behind either.
    let (child, mut channel) = with_child(Settings::default(), |_| ());
    let _ = channel.recv(&mut Message::default(), SECONDS);
    drop(channel);
    drop(child);
    assert_eq!((mapped(), open_files()), (before, files - 2));
}

/// The number of mappings of rings in this process.
fn mapped() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("atoll-ring")).count()
}
