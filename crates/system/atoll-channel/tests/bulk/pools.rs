//! Tests of pools of buffers between processes: over one hop and two, with peers that lie and peers that die.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use atoll_channel::bulk::{Access, CopyError, Costs, Engine, Memcpy, Started};
use atoll_channel::bulk::{
    Arrival, Buffer, Link, Manager, Memory, Pool, PoolError, ProtocolError, Transfer, UnsentReason, Uring,
    Writers,
};
use atoll_channel::{Channel, Message, Peer, SendError, Settings};

use crate::forked::Child;
use crate::suite::pattern;

/// The tests of this file.
pub(crate) const TESTS: &[(&str, fn())] = &[
    ("buffers_go_there_and_back", buffers_go_there_and_back),
    ("a_buffer_over_two_hops", a_buffer_over_two_hops),
    ("forged_buffers_are_errors", forged_buffers_are_errors),
    ("a_killed_peer_gives_back_what_it_had", a_killed_peer_gives_back_what_it_had),
    ("a_live_peer_keeps_what_it_has", a_live_peer_keeps_what_it_has),
    ("a_buffer_in_use_is_not_sent", a_buffer_in_use_is_not_sent),
    ("a_pool_that_only_its_owner_writes", a_pool_that_only_its_owner_writes),
    ("what_is_no_pool_is_not_taken_over", what_is_no_pool_is_not_taken_over),
];

const SECONDS: Option<Duration> = Some(Duration::from_secs(20));
const POOL: u16 = 17;
const BYTES: u64 = 8192;

/// Both ends of a channel and of a pool, of which the far ones are in a child.
fn with_child(pool: &Pool, work: impl FnOnce(Channel, Pool, Link)) -> (Child, Channel, Link) {
    let (here, there) = UnixStream::pair().unwrap();
    let child = Child::run(|| {
        let channel = Channel::connect(&there, Settings::default(), None, SECONDS).unwrap();
        let pool = Pool::take_over(&there, SECONDS).unwrap();
        let link = pool.link_home(POOL, channel.sender.peer()).unwrap();
        work(channel, pool, link);
    });
    drop(there);
    let channel = Channel::connect(&here, Settings::default(), None, SECONDS).unwrap();
    pool.hand_over(&here).unwrap();
    let link = pool.link(POOL, channel.sender.peer());
    (child, channel, link)
}

fn arrival(channel: &mut Channel, link: &Link) -> Arrival {
    let mut message = Message::default();
    channel.recv(&mut message, SECONDS).unwrap();
    assert_eq!(message.kind, link.kind());
    link.received(&message.bytes).unwrap()
}

fn buffer(channel: &mut Channel, link: &Link) -> (Buffer, u64, u64) {
    match arrival(channel, link) {
        Arrival::Buffer { buffer, used, note } => (buffer, used, note),
        other => panic!("{other:?}"),
    }
}

fn contents(buffer: &Buffer, bytes: u64) -> Vec<u8> {
    let mut got = vec![0; bytes as usize];
    buffer.memory().read(0, &mut got).unwrap();
    got
}

fn buffers_go_there_and_back() {
    const ROUNDS: u64 = 2000;
    let pool = Pool::new(4, BYTES, Writers::Everyone).unwrap();
    let (child, mut channel, link) = with_child(&pool, |mut channel, pool, link| {
        assert!(pool.take().is_none(), "only the owner takes");
        for round in 0..ROUNDS {
            let (buffer, used, note) = buffer(&mut channel, &link);
            assert_eq!((used, note), (round % BYTES, round));
            assert!(contents(&buffer, used) == pattern(round, used as usize));
            if round % 2 == 0 {
                buffer.memory().write(0, &pattern(!round, 100)).unwrap();
                link.send(&mut channel.sender, buffer, 100, round, SECONDS).unwrap();
            } else {
                drop(buffer);
                assert_eq!(link.give_back(&mut channel.sender, SECONDS), Ok(1));
            }
        }
    });
    for round in 0..ROUNDS {
        let out = pool.take().unwrap();
        let used = round % BYTES;
        out.memory().write(0, &pattern(round, used as usize)).unwrap();
        link.send(&mut channel.sender, out, used, round, SECONDS).unwrap();
        match arrival(&mut channel, &link) {
            Arrival::Buffer { buffer, used: 100, note } if round % 2 == 0 => {
                assert_eq!(note, round);
                assert!(contents(&buffer, 100) == pattern(!round, 100));
            }
            Arrival::GivenBack(1) if round % 2 == 1 => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(pool.free(), 4);
    }
    assert!(child.ended_well());
}

fn a_buffer_over_two_hops() {
    let pool = Pool::new(3, BYTES, Writers::Everyone).unwrap();
    let (child, mut channel, link) = with_child(&pool, |mut channel, pool, home| {
        // The middle process passes buffers on to a child of its own at the other end of another channel.
        let (mut last, mut further, away) = {
            let (child, channel, link) = with_child(&pool, |mut channel, _pool, home| {
                for _ in 0..10 {
                    let (first, used, _) = buffer(&mut channel, &home);
                    let (second, ..) = buffer(&mut channel, &home);
                    let sum: u64 = contents(&first, used).iter().map(|byte| u64::from(*byte)).sum();
                    drop(first);
                    second.memory().write(0, &sum.to_le_bytes()).unwrap();
                    home.send(&mut channel.sender, second, 8, sum, SECONDS).unwrap();
                    assert_eq!(home.give_back(&mut channel.sender, SECONDS), Ok(1));
                }
                // The child dies while it holds a buffer.
                std::mem::forget(buffer(&mut channel, &home).0);
            });
            (Some(child), channel, link)
        };
        for _ in 0..10 {
            for _ in 0..2 {
                let (buffer, used, note) = buffer(&mut channel, &home);
                away.send(&mut further.sender, buffer, used, note, SECONDS).unwrap();
            }
            let (answer, used, note) = buffer(&mut further, &away);
            home.send(&mut channel.sender, answer, used, note, SECONDS).unwrap();
            assert!(matches!(arrival(&mut further, &away), Arrival::GivenBack(1)));
            assert_eq!(home.give_back(&mut channel.sender, SECONDS), Ok(1));
        }
        let (buffer, ..) = buffer(&mut channel, &home);
        away.send(&mut further.sender, buffer, 0, 0, SECONDS).unwrap();
        assert!(last.take().unwrap().ended_well());
        drop(away);
        assert_eq!(home.give_back(&mut channel.sender, SECONDS), Ok(1));
        // The owner sees all of them before this process ends.
        channel.recv(&mut Message::default(), SECONDS).unwrap();
    });
    for round in 0..10u64 {
        let (first, second) = (pool.take().unwrap(), pool.take().unwrap());
        let bytes = pattern(round, BYTES as usize);
        first.memory().write(0, &bytes).unwrap();
        link.send(&mut channel.sender, first, BYTES, 0, SECONDS).unwrap();
        link.send(&mut channel.sender, second, 0, 0, SECONDS).unwrap();
        let (answer, used, note) = buffer(&mut channel, &link);
        let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
        assert_eq!((contents(&answer, used), note), (sum.to_le_bytes().to_vec(), sum));
        drop(answer);
        assert!(matches!(arrival(&mut channel, &link), Arrival::GivenBack(1)));
        assert_eq!(pool.free(), 3);
    }
    link.send(&mut channel.sender, pool.take().unwrap(), 0, 0, SECONDS).unwrap();
    assert!(matches!(arrival(&mut channel, &link), Arrival::GivenBack(1)));
    assert_eq!(pool.free(), 3);
    channel.send(0, b"seen", SECONDS).unwrap();
    assert!(child.ended_well());
}

/// A message as a link sends it.
fn forged(number: u32, used: u64) -> Vec<u8> {
    let mut bytes = 1u32.to_le_bytes().to_vec();
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&used.to_le_bytes());
    bytes.extend_from_slice(&0u64.to_le_bytes());
    bytes
}

fn given_back(numbers: &[u32]) -> Vec<u8> {
    [2].iter().chain(numbers).flat_map(|number| number.to_le_bytes()).collect()
}

fn forged_buffers_are_errors() {
    let pool = Pool::new(4, BYTES, Writers::Everyone).unwrap();
    // The channel takes messages of this process; the peer's messages are made up here.
    let (_child, mut channel, link) = with_child(&pool, |_channel, _pool, _link| {
        std::thread::sleep(Duration::from_secs(100));
    });
    let (held, out) = (pool.take().unwrap(), pool.take().unwrap());
    let (held_number, number) = (held.number(), out.number());
    assert_eq!(link.received(&forged(number, 0)).unwrap_err(), ProtocolError::NotTheirs(number));
    link.send(&mut channel.sender, out, 5, 6, SECONDS).unwrap();
    let refused = |bytes: &[u8]| link.received(bytes).unwrap_err();
    let free = (0..4).find(|n| *n != held_number && *n != number).unwrap();
    assert_eq!(refused(&forged(held_number, 0)), ProtocolError::NotTheirs(held_number));
    assert_eq!(refused(&forged(free, 0)), ProtocolError::NotTheirs(free));
    assert_eq!(refused(&given_back(&[free])), ProtocolError::NotTheirs(free));
    for none in [4, 5, u32::MAX] {
        let no_such = ProtocolError::NoSuchBuffer { number: none, count: 4 };
        assert_eq!(refused(&forged(none, 0)), no_such);
        assert_eq!(refused(&given_back(&[none])), no_such);
    }
    let too_long = ProtocolError::TooLong { used: BYTES + 1, bytes: BYTES };
    assert_eq!(refused(&forged(number, BYTES + 1)), too_long);
    // One that the peer has and one that it has not: neither is accepted.
    assert_eq!(refused(&given_back(&[number, free])), ProtocolError::NotTheirs(free));
    assert_eq!(refused(&given_back(&[number, number])), ProtocolError::NotTheirs(number));
    for malformed in [&[][..], &[1, 0, 0, 0], &[9; 24], &given_back(&[]), &[2, 0, 0, 0, 1]] {
        assert_eq!(refused(malformed), ProtocolError::Malformed(malformed.len()));
    }
    assert_eq!(pool.free(), 2);
    // The first message is valid, the second is not.
    let Arrival::Buffer { buffer, .. } = link.received(&forged(number, 5)).unwrap() else { panic!() };
    assert_eq!(refused(&forged(number, 5)), ProtocolError::NotTheirs(number));
    assert_eq!(refused(&given_back(&[number])), ProtocolError::NotTheirs(number));
    drop((buffer, held));
    assert_eq!(pool.free(), 4);
    // The other direction: an owner that sends a buffer which it has sent before.
    let member = Pool::attach(pool.descriptor().try_clone_to_owned().unwrap()).unwrap();
    let home = member.link_home(POOL, &Peer::this().unwrap()).unwrap();
    assert!(matches!(member.link_home(POOL, &Peer::this().unwrap()), Err(PoolError::HomeTaken)));
    assert!(matches!(pool.link_home(POOL, &Peer::this().unwrap()), Err(PoolError::HomeTaken)));
    let arrived = home.received(&forged(3, 0)).unwrap();
    assert_eq!(home.received(&forged(3, 0)).unwrap_err(), ProtocolError::NotTheirs(3));
    assert_eq!(home.received(&given_back(&[3])).unwrap_err(), ProtocolError::NotTheirs(3));
    assert_eq!(home.received(&given_back(&[2])).unwrap_err(), ProtocolError::NotTheirs(2));
    drop(arrived);
    drop(home);
    assert!(matches!(member.link_home(POOL, &Peer::this().unwrap()), Err(PoolError::HomeTaken)));
    let member = Pool::attach(pool.descriptor().try_clone_to_owned().unwrap()).unwrap();
    let home = member.link_home(POOL, &Peer::this().unwrap()).unwrap();
    drop(home.received(&forged(3, 0)).unwrap());
    // Dropped, and not reported to the owner, which therefore cannot have it.
    assert_eq!(home.received(&forged(3, 0)).unwrap_err(), ProtocolError::NotTheirs(3));
}

fn a_killed_peer_gives_back_what_it_had() {
    for round in 0..30u64 {
        let pool = Pool::new(20, 4096, Writers::Everyone).unwrap();
        let (child, mut channel, link) = with_child(&pool, |mut channel, _pool, link| {
            let mut held = Vec::new();
            loop {
                let (buffer, ..) = buffer(&mut channel, &link);
                held.push(buffer);
                if held.len() > 5 {
                    link.send(&mut channel.sender, held.remove(0), 0, 0, SECONDS).unwrap();
                }
                if held.len() > 4 {
                    drop(held.pop());
                    link.give_back(&mut channel.sender, SECONDS).unwrap();
                }
            }
        });
        let mut message = Message::default();
        let kill_at = 3 + round * 7 % 60;
        let mut here = Vec::new();
        for count in 0.. {
            if count == kill_at {
                child.kill();
            }
            let sent = match pool.take() {
                Some(out) => link.send(&mut channel.sender, out, 0, 0, Some(Duration::from_millis(50))),
                None if channel.sender.peer().died() => break,
                None => Ok(()),
            };
            match sent {
                Ok(()) => {}
                // The buffer comes back with the error.
                Err(unsent) if unsent.why == UnsentReason::Channel(SendError::PeerDied) => break,
                Err(unsent) if unsent.why == UnsentReason::Channel(SendError::TimedOut) => {}
                Err(other) => panic!("{other}"),
            }
            while let Ok(true) = channel.receiver.try_recv(&mut message) {
                if let Arrival::Buffer { buffer, .. } = link.received(&message.bytes).unwrap() {
                    here.push(buffer);
                    here.truncate(3);
                }
            }
        }
        // Messages that it sent before are still read.
        while let Ok(true) = channel.receiver.try_recv(&mut message) {
            drop(link.received(&message.bytes).unwrap());
        }
        drop(link);
        here.clear();
        assert_eq!(pool.free(), 20, "round {round}");
    }
}

fn a_live_peer_keeps_what_it_has() {
    let pool = Pool::new(1, 4096, Writers::Everyone).unwrap();
    let (child, mut channel, link) = with_child(&pool, |mut channel, _pool, link| {
        let held = buffer(&mut channel, &link);
        channel.send(1, b"has it", SECONDS).unwrap();
        drop(channel);
        std::thread::sleep(Duration::from_secs(100));
        drop(held);
    });
    link.send(&mut channel.sender, pool.take().unwrap(), 0, 0, SECONDS).unwrap();
    channel.recv(&mut Message::default(), SECONDS).unwrap();
    drop((link, channel));
    std::thread::sleep(Duration::from_millis(20));
    assert!(pool.take().is_none(), "its holder lives");
    child.kill();
    let end = Instant::now() + Duration::from_secs(10);
    while pool.take().is_none() {
        assert!(Instant::now() < end);
        std::thread::yield_now();
    }
}

fn a_buffer_in_use_is_not_sent() {
    let pool = Pool::new(2, 1 << 20, Writers::Everyone).unwrap();
    let (_child, mut channel, link) = with_child(&pool, |_channel, _pool, _link| {
        std::thread::sleep(Duration::from_secs(100));
    });
    let buffer = pool.take().unwrap();
    let file = Memory::of_file(tempfile::tempfile().unwrap(), 0, 1 << 20, Access::READ_WRITE).unwrap();
    if let Ok(mut ring) = Uring::new() {
        let transfer = Transfer::new(&file, 0, buffer.memory(), 0, 1 << 20).unwrap();
        assert_eq!(ring.start(&transfer, 1), Ok(Started::Pending));
        let unsent = link.send(&mut channel.sender, buffer, 1 << 20, 0, SECONDS).unwrap_err();
        assert_eq!(unsent.why, UnsentReason::InUse);
        // Even a dropped buffer is not free before the kernel has released it.
        drop(unsent.buffer);
        assert_eq!(pool.free(), 1);
        let mut finished = Vec::new();
        while finished.is_empty() {
            ring.progress(&mut finished, Duration::from_secs(1));
        }
        assert_eq!(pool.free(), 2);
    }
    let other = Pool::new(1, 4096, Writers::Everyone).unwrap();
    let unsent = link.send(&mut channel.sender, other.take().unwrap(), 0, 0, SECONDS).unwrap_err();
    assert_eq!(unsent.why, UnsentReason::OtherPool);
    let (bytes, used) = (1 << 20, (1 << 20) + 1);
    let unsent = link.send(&mut channel.sender, pool.take().unwrap(), used, 0, SECONDS).unwrap_err();
    assert_eq!(unsent.why, UnsentReason::TooLong { used, bytes });
    link.send(&mut channel.sender, unsent.buffer, 0, 0, SECONDS).unwrap();
}

fn a_pool_that_only_its_owner_writes() {
    let pool = Pool::new(2, BYTES, Writers::Maker).unwrap();
    let (child, mut channel, link) = with_child(&pool, |mut channel, _pool, link| {
        let (buffer, used, _) = buffer(&mut channel, &link);
        assert!(contents(&buffer, used) == pattern(77, BYTES as usize));
        let refused = CopyError::NotAllowed { end: "destination", needed: "writing" };
        assert_eq!(buffer.memory().write(0, b"x"), Err(refused));
        let mut manager = Manager::with(vec![Box::new(Memcpy::PLAIN)], Costs::default());
        let own = Memory::new(BYTES).unwrap();
        assert_eq!(manager.copy(buffer.memory(), 0, &own, 0, 1), Err(refused));
        manager.copy(&own, 0, buffer.memory(), 0, BYTES).unwrap();
        drop(buffer);
        link.give_back(&mut channel.sender, SECONDS).unwrap();
    });
    let out = pool.take().unwrap();
    out.memory().write(0, &pattern(77, BYTES as usize)).unwrap();
    link.send(&mut channel.sender, out, BYTES, 0, SECONDS).unwrap();
    assert!(matches!(arrival(&mut channel, &link), Arrival::GivenBack(1)));
    assert!(child.ended_well());
}

fn what_is_no_pool_is_not_taken_over() {
    use std::io::Write;
    let (mut here, there) = UnixStream::pair().unwrap();
    let soon = Some(Duration::from_millis(20));
    assert!(matches!(Pool::take_over(&there, soon), Err(PoolError::TimedOut)));
    here.write_all(b"P").unwrap();
    assert!(matches!(Pool::take_over(&there, SECONDS), Err(PoolError::NothingHandedOver)));
    drop(here);
    assert!(matches!(Pool::take_over(&there, SECONDS), Err(PoolError::NothingHandedOver)));
    assert!(Pool::new(1, 4096, Writers::Everyone).unwrap().hand_over(&there).is_err());
}
