//! Records that were cut, damaged or written by a later atoll: always an error or the same record, never a panic.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::Cursor;

use atoll_record::container::{Chunk, ReadError, Tag, VERSION};
use atoll_record::{Record, RecordError};
use proptest::prelude::*;

fn sample() -> Record {
    let mut record = Record::default();
    record.run.arguments = vec!["./cg".into(), "S".into()];
    record.run.settings.near_bytes = Some(64 << 20);
    record.run.wall_seconds = 1.25;
    record.figures.total.major_faults = 7;
    record.figures.workers = vec![Default::default(); 3];
    record.figures.pages_by_core_map_count = vec![3, 2, 1];
    record.others.push(Chunk { tag: Tag::new("trace"), offset: 0, payload: vec![0, 255, 3] });
    record
}

fn bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    sample().write(&mut bytes).unwrap();
    bytes
}

fn read(bytes: &[u8]) -> Result<Record, RecordError> {
    Record::read(Cursor::new(bytes)).map(|mut record| {
        for chunk in &mut record.others {
            chunk.offset = 0;
        }
        record
    })
}

#[test]
fn what_is_written_is_what_is_read() {
    assert_eq!(read(&bytes()).unwrap(), sample());
}

#[test]
fn every_cut_is_noticed() {
    let bytes = bytes();
    for n in 0..bytes.len() {
        match read(&bytes[..n]) {
            Err(RecordError::Container(ReadError::Cut { offset, .. })) => assert_eq!(offset, n as u64),
            Err(RecordError::Container(ReadError::NotARecord)) => assert!(n < 8),
            other => panic!("cut at {n}: {other:?}"),
        }
    }
}

#[test]
fn a_later_format_is_named() {
    let mut bytes = bytes();
    bytes[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
    let error = read(&bytes).unwrap_err().to_string();
    assert!(error.contains("format 2"), "{error}");
}

#[test]
fn a_chunk_that_is_missing_or_no_json_is_named() {
    use atoll_record::container::Writer;
    let mut out = Writer::new(Vec::new()).unwrap();
    out.chunk(Tag::new("run"), b"[1").unwrap();
    let error = read(&out.finish().unwrap()).unwrap_err().to_string();
    assert!(error.contains("byte 16") && error.contains("`run`"), "{error}");
    let out = Writer::new(Vec::new()).unwrap();
    let error = read(&out.finish().unwrap()).unwrap_err().to_string();
    assert!(error.contains("no chunk `run`"), "{error}");
}

proptest! {
    #[test]
    fn every_flipped_bit_is_noticed(at in 0..bytes().len(), bit in 0..8u32) {
        let mut bytes = bytes();
        bytes[at] ^= 1u8 << bit;
        prop_assert!(read(&bytes).is_err());
    }

    #[test]
    fn mutations_never_panic(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
                             cut in any::<prop::sample::Index>(), grow in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut bytes = bytes();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        bytes.extend(grow);
        let _ = read(&bytes);
    }

    #[test]
    fn noise_never_panics(mut noise in prop::collection::vec(any::<u8>(), 0..512), head in any::<bool>()) {
        if head && noise.len() >= 16 {
            noise[..16].copy_from_slice(&bytes()[..16]);
        }
        prop_assert!(read(&noise).is_err());
    }
}
