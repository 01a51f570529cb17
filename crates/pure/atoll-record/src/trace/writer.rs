//! Writes a trace, chunk by chunk.
//!
//! The other side is [`reader`](super::reader).

use std::collections::BTreeMap;
use std::io::{self, Write};

use xxhash_rust::xxh3::xxh3_64;
use zstd::bulk::Compressor;

use super::codec::Encoder;
use super::event::Event;
use super::frame::{self, FrameHead, Kind};
use super::header::{Header, Trailer};

/// The number of events in a chunk: enough to compress well, few enough that a reader's memory stays in cache.
const CHUNK_EVENTS: u32 = 1 << 16;
/// The compression level: above this, writing falls behind capture for a few percent of the size.
const LEVEL: i32 = 3;

/// Writes a trace.
pub struct Writer<W: Write> {
    to: W,
    /// The number of bytes written.
    offset: u64,
    encoder: Encoder,
    compressor: Compressor<'static>,
    stored: Vec<u8>,
    trailer: Trailer,
}

impl<W: Write> Writer<W> {
    /// Starts with the header.
    ///
    /// # Errors
    /// The error of writing, or a header above 1 MiB.
    pub fn new(mut to: W, header: &Header) -> io::Result<Self> {
        let json = serde_json::to_vec(header)?;
        if json.len() > frame::MAX_HEADER_BYTES as usize {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the trace's header is above 1 MiB"));
        }
        let head = frame::head(&json);
        to.write_all(&head)?;
        Ok(Self {
            to,
            offset: head.len() as u64,
            encoder: Encoder::default(),
            compressor: Compressor::new(LEVEL)?,
            stored: Vec::new(),
            trailer: Trailer::default(),
        })
    }

    /// Adds an event.
    ///
    /// # Errors
    /// The error of writing.
    pub fn push(&mut self, event: &Event) -> io::Result<()> {
        self.encoder.push(event);
        self.trailer.count(event);
        if self.encoder.events() >= CHUNK_EVENTS { self.flush_chunk() } else { Ok(()) }
    }

    /// Returns the counts so far.
    pub fn counted(&self) -> &Trailer {
        &self.trailer
    }

    /// Adds the trailer, with `accesses_seen` and `names`, and returns the writer.
    ///
    /// # Errors
    /// The error of writing, or names of more than 16 MiB.
    pub fn finish(mut self, accesses_seen: u64, names: BTreeMap<u64, String>) -> io::Result<W> {
        self.flush_chunk()?;
        self.trailer.accesses_seen = accesses_seen;
        self.trailer.names = names;
        let json = serde_json::to_vec(&self.trailer)?;
        if json.len() > frame::MAX_PAYLOAD_BYTES as usize {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the trace's names are above 16 MiB"));
        }
        let at = self.offset;
        self.stored = json;
        self.frame(Kind::Trailer, 0, self.stored.len() as u32)?;
        self.to.write_all(&frame::end(at))?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn flush_chunk(&mut self) -> io::Result<()> {
        if self.encoder.events() == 0 {
            return Ok(());
        }
        let raw = self.encoder.bytes();
        self.stored.clear();
        self.stored.reserve(zstd::zstd_safe::compress_bound(raw.len()));
        self.compressor.compress_to_buffer(raw, &mut self.stored)?;
        let (events, raw) = (self.encoder.events(), raw.len() as u32);
        self.frame(Kind::Events, events, raw)?;
        self.trailer.chunks += 1;
        self.encoder.clear();
        Ok(())
    }

    /// Writes a frame whose payload is `stored`.
    fn frame(&mut self, kind: Kind, events: u32, raw_bytes: u32) -> io::Result<()> {
        let head = FrameHead {
            kind,
            events,
            raw_bytes,
            stored_bytes: self.stored.len() as u32,
            number: self.trailer.chunks,
            checksum: xxh3_64(&self.stored),
        };
        self.to.write_all(&head.to_bytes())?;
        self.to.write_all(&self.stored)?;
        self.offset += (frame::FRAME_BYTES + self.stored.len()) as u64;
        Ok(())
    }
}
