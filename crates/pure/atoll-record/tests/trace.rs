//! Traces as they are written and read, and traces that were cut, damaged or written by a later atoll. The result is always an
//! error with its byte or the same events, never a panic.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::io::Write;

use atoll_record::trace::codec::{Decoder, Encoder};
use atoll_record::trace::frame::{self, FrameHead, Kind, VERSION};
use atoll_record::trace::header::{Filter, Header, Trailer};
use atoll_record::trace::{Event, Reader, TraceError, Writer, reader};
use proptest::prelude::*;

fn header() -> Header {
    Header {
        program: "./cg".into(),
        arguments: vec!["./cg".into(), "S".into()],
        workers: 3,
        engine: "qemu".into(),
        filter: Some(Filter { entries: 64, refresh_instructions: 1 << 20 }),
        ..Header::default()
    }
}

fn write(events: &[Event]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    for event in events {
        writer.push(event).unwrap();
    }
    writer.finish(7, BTreeMap::from([(0x1234, "step".to_owned())])).unwrap()
}

fn read(bytes: &[u8]) -> Result<(Vec<Event>, Header, Trailer), TraceError> {
    let mut reader = Reader::new(bytes)?;
    let mut events = Vec::new();
    while reader.next_chunk(&mut events)? {}
    // The end stays the end.
    assert!(!reader.next_chunk(&mut events).unwrap());
    Ok((events, reader.header().clone(), reader.trailer().unwrap().clone()))
}

fn sample() -> Vec<Event> {
    let mut events = vec![Event::Map { first: 16, pages: 40 }];
    for worker in 0..3u16 {
        events.push(Event::RegionBegin { worker, name: 0x1234 });
        for page in 16..30 {
            events.push(Event::Access { worker, page: page * 3, write: page % 2 == 0 });
            events.push(Event::Compute { worker, instructions: page * 1000 });
        }
        events.push(Event::Barrier { worker, name: 0x40_0000_1111 });
        events.push(Event::RegionEnd { worker, name: 0x1234 });
    }
    events.push(Event::Unmap { first: 16, pages: u64::MAX });
    events
}

#[test]
fn what_is_written_is_what_is_read() {
    let (events, read_header, trailer) = read(&write(&sample())).unwrap();
    assert_eq!(events, sample());
    assert_eq!(read_header, header());
    assert_eq!((trailer.reads, trailer.writes, trailer.regions, trailer.barriers), (21, 21, 1, 1));
    assert_eq!((trailer.events, trailer.chunks, trailer.workers), (events.len() as u64, 1, 3));
    assert_eq!((trailer.accesses_seen, trailer.names[&0x1234].as_str()), (7, "step"));
    assert_eq!(trailer.instructions, 3 * (16..30).map(|p| p * 1000).sum::<u64>());
    assert_eq!(read(&write(&[])).unwrap().0, []);
}

#[test]
fn many_chunks_stream_and_the_trailer_is_found_alone() {
    let events: Vec<Event> = (0..300_000u64)
        .map(|n| Event::Access { worker: (n % 56) as u16, page: n * n % 100_003, write: n % 3 == 0 })
        .collect();
    let bytes = write(&events);
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let (mut chunk, mut at, mut chunks) = (Vec::new(), 0, 0);
    while reader.next_chunk(&mut chunk).unwrap() {
        assert_eq!(chunk, events[at..at + chunk.len()]);
        at += chunk.len();
        chunks += 1;
        chunk.clear();
    }
    assert_eq!((at, chunks), (events.len(), 5));
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    assert_eq!(&reader::read_trailer(file.path()).unwrap(), reader.trailer().unwrap());
    file.as_file().set_len(bytes.len() as u64 - 1).unwrap();
    assert!(matches!(reader::read_trailer(file.path()), Err(TraceError::Cut { .. })));
    assert!(matches!(Reader::open("/nowhere".as_ref()), Err(TraceError::Open(..))));
}

#[test]
fn every_cut_is_noticed() {
    let bytes = write(&sample());
    for n in 0..bytes.len() {
        match read(&bytes[..n]) {
            Err(TraceError::Cut { offset, .. }) => assert_eq!(offset, n as u64),
            Err(TraceError::NotATrace) => assert!(n < 8),
            other => panic!("cut at {n}: {other:?}"),
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let bytes = write(&sample());
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << bit;
            let error = read(&bytes).expect_err("damage");
            let offset = error.offset().unwrap();
            assert!(offset <= at as u64 || matches!(error, TraceError::Cut { .. }), "{at}: {error}");
        }
    }
}

#[test]
fn what_follows_the_end_is_noticed() {
    let mut bytes = write(&sample());
    let whole = bytes.len() as u64;
    bytes.push(0);
    assert!(matches!(read(&bytes), Err(TraceError::Damaged { offset, .. }) if offset == whole));
}

#[test]
fn a_later_format_is_named() {
    let mut bytes = write(&sample());
    bytes[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
    let error = read(&bytes).unwrap_err().to_string();
    assert!(error.contains("format 2"), "{error}");
}

#[test]
fn chunks_left_out_are_noticed() {
    let events: Vec<Event> =
        (0..200_000).map(|page| Event::Access { worker: 0, page, write: false }).collect();
    let bytes = write(&events);
    let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let first = frame::HEAD_BYTES + length + 8;
    let head = bytes[first..first + frame::FRAME_BYTES].try_into().unwrap();
    let stored = FrameHead::from_bytes(&head, 0).unwrap().stored_bytes as usize;
    let mut without = bytes[..first].to_vec();
    without.extend_from_slice(&bytes[first + frame::FRAME_BYTES + stored..]);
    let error = read(&without).unwrap_err();
    assert!(matches!(error, TraceError::Damaged { offset, .. } if offset == first as u64), "{error}");
}

/// Lengths are not believed even if the head that claims them has a right checksum.
#[test]
fn absurd_lengths_cost_nothing() {
    let claims = [(1, u32::MAX, 9), (1, 9, u32::MAX), (u32::MAX, 9, 9), (10, 9, 9), (1, 1 << 24, 9)];
    for (events, raw_bytes, stored_bytes) in claims {
        let payload = [0x55; 9];
        let checksum = xxhash_rust::xxh3::xxh3_64(&payload);
        let head = FrameHead { kind: Kind::Events, events, raw_bytes, stored_bytes, number: 0, checksum };
        let json = serde_json::to_vec(&header()).unwrap();
        let mut bytes = frame::head(&json);
        let at = bytes.len() as u64;
        bytes.extend_from_slice(&head.to_bytes());
        bytes.extend_from_slice(&payload);
        assert!(matches!(read(&bytes), Err(TraceError::Damaged { offset, .. }) if offset == at));
    }
    let mut bytes = frame::head(b"{}");
    bytes[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(read(&bytes), Err(TraceError::Damaged { offset: 8, .. })));
}

fn event() -> impl Strategy<Value = Event> {
    let worker = prop_oneof![0..4u16, any::<u16>()];
    let number = prop_oneof![0..64u64, 0..1u64 << 36, any::<u64>()];
    prop_oneof![
        8 => (worker.clone(), number.clone(), any::<bool>())
            .prop_map(|(worker, page, write)| Event::Access { worker, page, write }),
        1 => (worker, number.clone(), 0..4).prop_map(|(worker, n, kind)| match kind {
            0 => Event::Compute { worker, instructions: n },
            1 => Event::RegionBegin { worker, name: n },
            2 => Event::RegionEnd { worker, name: n },
            _ => Event::Barrier { worker, name: n },
        }),
        1 => (number.clone(), number.clone()).prop_map(|(first, pages)| Event::Map { first, pages }),
        1 => (number.clone(), number).prop_map(|(first, pages)| Event::Unmap { first, pages }),
    ]
}

proptest! {
    #[test]
    fn any_events_come_back(events in prop::collection::vec(event(), 0..300)) {
        prop_assert_eq!(read(&write(&events)).unwrap().0, events);
    }

    #[test]
    fn chunks_are_decoded_apart(chunks in prop::collection::vec(prop::collection::vec(event(), 0..50), 0..4)) {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        for events in chunks {
            encoder.clear();
            events.iter().for_each(|event| encoder.push(event));
            let mut back = Vec::new();
            decoder.decode(encoder.bytes(), encoder.events(), &mut back).unwrap();
            prop_assert_eq!(back, events);
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), events in any::<u32>()) {
        let mut into = Vec::new();
        if Decoder::default().decode(&bytes, events, &mut into).is_ok() {
            prop_assert_eq!(into.len(), events as usize);
        }
    }

    #[test]
    fn mutations_never_panic(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
                             cut in any::<prop::sample::Index>(), grow in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut bytes = write(&sample());
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        bytes.extend(grow);
        if let Ok((events, ..)) = read(&bytes) {
            prop_assert_eq!(events, sample());
        }
    }
}
