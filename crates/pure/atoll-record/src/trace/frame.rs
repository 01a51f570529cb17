//! The file around the events: a head, frames with lengths and checksums, and an end that says where the trailer is.
//!
//! This module knows nothing of events. It believes lengths only below limits and after checking their checksum, so a damaged
//! file costs no more memory than a whole one. [`reader`](super::reader) and [`writer`](super::writer) use it.

use std::io::Read;

use xxhash_rust::xxh3::xxh3_64;

use super::error::TraceError;
use crate::source::Source;

/// The first bytes of every trace.
pub const MAGIC: [u8; 8] = *b"ATOLLTRC";
/// The last bytes of every whole trace.
pub const END_MAGIC: [u8; 8] = *b"ATOLLEND";
/// The format that this crate writes, and the latest that it reads.
pub const VERSION: u32 = 1;

/// The bytes of the file's head: magic, version, length of the header.
pub const HEAD_BYTES: usize = 16;
/// The bytes of a frame's head: kind, events, bytes raw and stored, number, checksums of the payload and of the head.
pub const FRAME_BYTES: usize = 40;
/// The bytes of the file's end: offset of the trailer, magic.
pub const END_BYTES: usize = 16;
/// The most bytes of the header.
pub const MAX_HEADER_BYTES: u32 = 1 << 20;
/// The most bytes of a frame's payload, and of what it decompresses to.
pub const MAX_PAYLOAD_BYTES: u32 = 16 << 20;
/// The most events of a chunk.
pub const MAX_CHUNK_EVENTS: u32 = 1 << 20;

/// The kinds of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Events, compressed.
    Events,
    /// The trailer, as JSON.
    Trailer,
}

impl Kind {
    fn tag(self) -> [u8; 4] {
        match self {
            Self::Events => *b"EVTS",
            Self::Trailer => *b"TRLR",
        }
    }
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHead {
    /// The frame's kind.
    pub kind: Kind,
    /// The number of events in the frame.
    pub events: u32,
    /// The bytes of the payload once decompressed.
    pub raw_bytes: u32,
    /// The bytes of the payload.
    pub stored_bytes: u32,
    /// The number of frames before this one.
    pub number: u64,
    /// XXH3-64 of the payload.
    pub checksum: u64,
}

impl FrameHead {
    /// Returns the head's bytes on disk.
    pub fn to_bytes(&self) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        bytes[..4].copy_from_slice(&self.kind.tag());
        bytes[4..8].copy_from_slice(&self.events.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.raw_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.stored_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.checksum.to_le_bytes());
        let sum = xxh3_64(&bytes[..32]);
        bytes[32..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads the head from `bytes`, which stood at `offset`.
    ///
    /// # Errors
    /// The checksum is wrong, or a value is one that no frame has.
    pub fn from_bytes(bytes: &[u8; FRAME_BYTES], offset: u64) -> Result<Self, TraceError> {
        let damaged = |what| Err(TraceError::Damaged { offset, what });
        if xxh3_64(&bytes[..32]) != u64_at(bytes, 32) {
            return damaged("a chunk's head does not fit its checksum");
        }
        let kind = match &bytes[..4] {
            b"EVTS" => Kind::Events,
            b"TRLR" => Kind::Trailer,
            _ => return damaged("a chunk is of a kind that this format does not know"),
        };
        let head = Self {
            kind,
            events: u32_at(bytes, 4),
            raw_bytes: u32_at(bytes, 8),
            stored_bytes: u32_at(bytes, 12),
            number: u64_at(bytes, 16),
            checksum: u64_at(bytes, 24),
        };
        if head.raw_bytes > MAX_PAYLOAD_BYTES || head.stored_bytes > MAX_PAYLOAD_BYTES {
            return damaged("a chunk is longer than any may be");
        }
        if head.events > MAX_CHUNK_EVENTS || head.events > head.raw_bytes {
            return damaged("a chunk claims more events than it can hold");
        }
        Ok(head)
    }
}

/// Returns the file's first bytes, up to and with the checksum behind the header's JSON.
pub fn head(json: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + json.len() + 8);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&(json.len() as u32).to_le_bytes());
    bytes.extend_from_slice(json);
    let sum = xxh3_64(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// Returns the file's last bytes, for a trailer at `offset`.
pub fn end(offset: u64) -> [u8; END_BYTES] {
    let mut bytes = [0; END_BYTES];
    bytes[..8].copy_from_slice(&offset.to_le_bytes());
    bytes[8..].copy_from_slice(&END_MAGIC);
    bytes
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

impl<R: Read> Source<R> {
    /// Reads into `to` as many bytes as there are.
    pub(super) fn some(&mut self, to: &mut [u8]) -> Result<usize, TraceError> {
        self.fill(to).map_err(|error| TraceError::Io { offset: self.offset, error })
    }

    /// Fills `to`; where the file ends before that, `missing` names what did not come.
    pub(super) fn all(&mut self, to: &mut [u8], missing: &'static str) -> Result<(), TraceError> {
        if self.some(to)? < to.len() {
            return Err(TraceError::Cut { offset: self.offset, missing });
        }
        Ok(())
    }
}
