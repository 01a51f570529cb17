//! Tests with a peer that writes anything anywhere in the shared memory: there must never be a panic, a read outside, or more
//! memory than agreed.
//!
//! The tests write to the rings and sets below `Sender`, `Receiver` and `WaitSet` and then use those.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use proptest::prelude::*;

use crate::channel::error::AttachError;
use crate::channel::file::VERSION;
use crate::channel::receiver::{Message, RecvError};
use crate::channel::ring_file::{self, MAGIC};
use crate::channel::sender::SendError;
use crate::channel::settings::Settings;
use crate::channel::{file, set_file};
use crate::memory_file::{FIXED, PAGE};
use crate::ring::line::{FIRST, Header, LAST};
use crate::ring::memory::{Control, Ring};
use crate::ring::sync::Ordering;
use crate::{Channel, Peer, WaitSet, pair};

const LONGEST: usize = 300;

fn settings() -> Settings {
    Settings { lines: 5, longest: LONGEST, spins: 3, ..Settings::default() }
}

/// A channel, with its outgoing and incoming ring as its peer has them.
fn victim() -> (Channel, Ring, Ring) {
    let (near, _far) = pair(settings(), None).unwrap();
    let (outgoing, incoming) = near.rings();
    (near.attach(Peer::this().unwrap()).unwrap(), outgoing, incoming)
}

/// The ways in which a hostile peer damages a ring.
#[derive(Clone, Debug)]
enum Deed {
    /// Writes any bytes to a line.
    Scribble(u32, [u64; 8]),
    /// Writes the header that comes next, with any content.
    Next { skip: u32, kind: u16, length: u8, flags: u8 },
    /// Writes any value to a word of the control part.
    Control(u8, u32),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        (0..5u32, any::<[u64; 8]>()).prop_map(|(slot, words)| Deed::Scribble(slot, words)),
        (0..2u32, 0..2u16, prop_oneof![Just(56u8), 0..=60u8, any::<u8>()], 0..5u8)
            .prop_map(|(skip, kind, length, flags)| Deed::Next { skip, kind, length, flags }),
        (0..200u32, 0..2u16, Just(56u8), 0..2u8).prop_map(|(_, kind, length, flags)| Deed::Next {
            skip: 0,
            kind,
            length,
            flags
        }),
        (0..8u8, prop_oneof![0..4u32, any::<u32>()]).prop_map(|(word, value)| Deed::Control(word, value)),
    ]
}

fn control(control: &Control, word: u8, value: u32) {
    let side = if word & 1 == 0 { &control.producer } else { &control.consumer };
    match word / 2 {
        0 => side.bell.announce(value),
        1 => control.credit.consumed.store(value, Ordering::Relaxed),
        2 => control.identity.lines.store(value, Ordering::Relaxed),
        // Done rarely, because nothing can follow it.
        _ => side.closed.store(u32::from(value == 1), Ordering::Relaxed),
    }
}

proptest! {
    #[test]
    fn a_receiver_survives_any_ring(deeds in proptest::collection::vec(deed(), 0..60)) {
        let (mut channel, _, incoming) = victim();
        let mut message = Message::default();
        let mut sequence = 0u32;
        for deed in deeds {
            match deed {
                Deed::Scribble(slot, words) => incoming.line(slot).scribble(words),
                Deed::Next { skip, kind, length, flags } => {
                    let header = Header { sequence: sequence.wrapping_add(1 + skip), kind, length, flags };
                    incoming.line(sequence % 5).scribble([header.pack(), 1, 2, 3, 4, 5, 6, 7]);
                    sequence = sequence.wrapping_add(1);
                }
                Deed::Control(word, value) => control(incoming.control(), word, value),
            }
            let received = channel.receiver.try_recv(&mut message);
            if received == Ok(true) {
                prop_assert!(message.bytes.len() <= LONGEST);
            }
            prop_assert!(message.bytes.capacity() <= 2 * LONGEST + 112);
            let _ = channel.recv(&mut message, Some(Duration::ZERO));
        }
    }

    #[test]
    fn a_sender_survives_any_ring(deeds in proptest::collection::vec((deed(), 0..400usize), 0..40)) {
        let (mut channel, outgoing, _) = victim();
        for (deed, length) in deeds {
            match deed {
                Deed::Scribble(slot, words) => outgoing.line(slot).scribble(words),
                Deed::Next { .. } => {}
                Deed::Control(word, value) => control(outgoing.control(), word, value),
            }
            let bytes = vec![1; length];
            let _ = channel.sender.try_send(1, &bytes);
            let sent = channel.send(1, &bytes, Some(Duration::ZERO));
            prop_assert_eq!(matches!(sent, Err(SendError::TooLong { .. })), length > LONGEST);
        }
    }

    #[test]
    fn any_page_is_a_ring_or_an_error(
        start in any::<[u32; 8]>(), known in 0..4u8, pages in 1..4usize, lines in 2..200u32
    ) {
        let settings = Settings { lines, longest: LONGEST, ..Settings::default() };
        let file = file::create("atoll-test", pages * PAGE).unwrap();
        let mut bytes: Vec<u8> = start.iter().flat_map(|word| word.to_le_bytes()).collect();
        if known > 0 { bytes[0..8].copy_from_slice(&MAGIC.to_le_bytes()); }
        if known > 1 { bytes[8..12].copy_from_slice(&VERSION.to_le_bytes()); }
        if known > 2 {
            bytes[12..16].copy_from_slice(&lines.to_le_bytes());
            bytes[16..24].copy_from_slice(&(LONGEST as u64).to_le_bytes());
        }
        rustix::io::pwrite(&file, &bytes, 0).unwrap();
        match ring_file::attach(file.as_fd(), &settings) {
            Ok(ring) => {
                prop_assert!(known == 3 && settings.ring_bytes() <= pages * PAGE);
                let _ = ring.line(lines - 1).header();
            }
            Err(AttachError::Truncated { .. }) => prop_assert!(known == 3),
            Err(AttachError::NotAChannel(_)) => prop_assert!(known == 0),
            Err(AttachError::Version { .. }) => prop_assert!(known == 1),
            Err(AttachError::Settings { .. }) => prop_assert!(known == 2),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn a_wait_set_survives_any_marks(marks in proptest::collection::vec((0..170u32, any::<bool>()), 0..40)) {
        let mut set = WaitSet::new(130).unwrap();
        let seat = set.seat().unwrap();
        let peers = set_file::attach(seat.file()).unwrap();
        let (near, far) = pair(settings(), Some(seat)).unwrap();
        let mut far = far.attach(Peer::this().unwrap()).unwrap();
        let token = set.add(near.attach(Peer::this().unwrap()).unwrap().receiver).unwrap();
        let mut message = Message::default();
        for (seat, send) in marks {
            // Seats that no channel has, and numbers beyond the seats for which there are bits.
            peers.ring(seat.min(191));
            if send {
                far.send(1, b"x", None).unwrap();
                prop_assert_eq!(set.wait(Some(Duration::from_secs(5))), Some(token));
                prop_assert_eq!(set.get(token).unwrap().try_recv(&mut message), Ok(true));
            } else {
                prop_assert_eq!(set.wait(Some(Duration::ZERO)), None);
            }
        }
    }
}

#[test]
fn a_sender_whose_marks_another_sender_clears_is_heard_all_the_same() {
    let mut set = WaitSet::new(300).unwrap();
    let (first, second) = (set.seat().unwrap(), set.seat().unwrap());
    let clearing = set_file::attach(first.file()).unwrap();
    let (near, far) = pair(settings(), Some(second)).unwrap();
    let mut far = far.attach(Peer::this().unwrap()).unwrap();
    let token = set.add(near.attach(Peer::this().unwrap()).unwrap().receiver).unwrap();
    let mut message = Message::default();
    for _ in 0..3 {
        assert_eq!(set.wait(Some(Duration::ZERO)), None);
        far.send(1, b"x", None).unwrap();
        clearing.collect(drop);
        assert_eq!(set.wait(Some(Duration::from_secs(20))), Some(token));
        assert_eq!(set.get(token).unwrap().try_recv(&mut message), Ok(true));
    }
}

#[test]
fn a_file_that_could_be_cut_or_is_too_short_or_is_no_memory_is_refused() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let file = |bytes, seals| {
        let file = memfd_create("atoll-test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, bytes).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        ring_file::attach(file.as_fd(), &settings()).err().unwrap()
    };
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    assert!(matches!(file(0, seals), AttachError::Truncated { bytes: 0, .. }));
    assert!(matches!(file(255, seals), AttachError::Truncated { bytes: 255, .. }));
    assert!(matches!(file(4096, seals), AttachError::NotAChannel(0)));
    assert!(matches!(file(4096, SealFlags::GROW), AttachError::NotSealed));
    let null = std::fs::File::open("/dev/null").unwrap();
    assert!(matches!(ring_file::attach(null.as_fd(), &settings()), Err(AttachError::NotSealed)));
}

#[test]
fn a_huge_sparse_file_of_a_peer_is_not_allocated_here() {
    use rustix::fs::{MemfdFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
    // A file that begins as a ring or a set should, with a hole behind it.
    let grown = |honest: OwnedFd, bytes: usize| {
        let file = memfd_create("atoll-test", MemfdFlags::ALLOW_SEALING).unwrap();
        let mut begin = vec![0; bytes];
        rustix::io::pread(&honest, &mut begin, 0).unwrap();
        rustix::io::pwrite(&file, &begin, 0).unwrap();
        ftruncate(&file, 256 << 20).unwrap();
        fcntl_add_seals(&file, FIXED).unwrap();
        file
    };
    let allocated = |file: &OwnedFd| fstat(file).unwrap().st_blocks as usize * 512;
    let ring = grown(ring_file::create(&settings()).unwrap(), settings().ring_bytes());
    let _attached = ring_file::attach(ring.as_fd(), &settings()).unwrap();
    assert_eq!(allocated(&ring), settings().ring_bytes());
    let set = grown(set_file::create(10).unwrap(), PAGE);
    let _attached = set_file::attach(set.as_fd()).unwrap();
    assert!(allocated(&set) <= 64 << 10, "{}", allocated(&set));
}

#[test]
fn an_end_is_taken_once() {
    let (near, _far) = pair(settings(), None).unwrap();
    let (again, _) = near.rings();
    let _near = near.attach(Peer::this().unwrap()).unwrap();
    assert!(matches!(ring_file::take(&again.control().producer), Err(AttachError::Taken)));
}

#[test]
fn a_message_that_never_ends_is_cut_at_the_longest() {
    let (mut channel, _, incoming) = victim();
    let mut message = Message::default();
    let mut result = Ok(false);
    for sequence in 1..100u32 {
        let flags = if sequence == 1 { FIRST } else { 0 };
        let header = Header { sequence, kind: 0, length: 56, flags };
        incoming.line((sequence - 1) % 5).scribble([header.pack(), 0, 0, 0, 0, 0, 0, 0]);
        result = channel.receiver.try_recv(&mut message);
        if result.is_err() {
            break;
        }
    }
    assert_eq!(result, Err(RecvError::TooLong { longest: LONGEST }));
    // The error is the same at every further call.
    assert_eq!(channel.receiver.try_recv(&mut message), Err(RecvError::TooLong { longest: LONGEST }));
}

#[test]
fn a_message_begun_again_and_again_does_not_outlive_the_timeout() {
    let (mut channel, _, incoming) = victim();
    let writer = std::thread::spawn(move || {
        // Every line begins a message and none ends one; lines are written without regard to what was read.
        let end = std::time::Instant::now() + Duration::from_millis(300);
        let mut sequence = 1u32;
        while std::time::Instant::now() < end {
            let read = incoming.control().credit.consumed.load(Ordering::Relaxed);
            if sequence.wrapping_sub(read) <= 5 {
                let header = Header { sequence, kind: 0, length: 56, flags: FIRST };
                incoming.line((sequence - 1) % 5).scribble([header.pack(), 0, 0, 0, 0, 0, 0, 0]);
                sequence += 1;
            }
        }
    });
    let mut message = Message::default();
    assert_eq!(channel.recv(&mut message, Some(Duration::from_millis(100))), Err(RecvError::TimedOut));
    writer.join().unwrap();
}

#[test]
fn a_middle_without_a_beginning_is_malformed() {
    for flags in [0, LAST, 4, 255] {
        let (mut channel, _, incoming) = victim();
        let header = Header { sequence: 1, kind: 0, length: 56, flags };
        incoming.line(0).scribble([header.pack(), 0, 0, 0, 0, 0, 0, 0]);
        let mut message = Message::default();
        assert_eq!(channel.receiver.try_recv(&mut message), Err(RecvError::Malformed));
    }
}

#[test]
fn a_false_acknowledgement_is_broken() {
    let (mut channel, outgoing, _) = victim();
    for _ in 0..5 {
        channel.sender.try_send(0, b"x").unwrap();
    }
    outgoing.control().credit.consumed.store(77, Ordering::Relaxed);
    assert_eq!(channel.sender.try_send(0, b"x"), Err(SendError::Broken));
    outgoing.control().credit.consumed.store(5, Ordering::Relaxed);
    assert_eq!(channel.sender.try_send(0, b"x"), Err(SendError::Broken));
}
