//! Reads a trace, chunk by chunk.
//!
//! The other side is [`writer`](super::writer). Memory is bounded by the largest chunk that a file may have, 16 MiB of bytes
//! and a million events.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;
use zstd::bulk::Decompressor;

use super::codec::Decoder;
use super::error::TraceError;
use super::event::Event;
use super::frame::{self, FRAME_BYTES, FrameHead, HEAD_BYTES, Kind};
use super::header::{Header, Trailer};
use crate::source::Source;

/// Reads a trace.
pub struct Reader<R: Read> {
    from: Source<R>,
    header: Header,
    decoder: Decoder,
    decompressor: Decompressor<'static>,
    stored: Vec<u8>,
    raw: Vec<u8>,
    counted: Trailer,
    trailer: Option<Trailer>,
    /// Whether no more can be read: the trailer was read, or an error was met.
    over: bool,
}

impl Reader<BufReader<File>> {
    /// Opens a file.
    ///
    /// # Errors
    /// The file cannot be opened, is no trace, or its head is damaged.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::new(BufReader::new(open(path)?))
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// The file is no trace, one of a later atoll, or its head is damaged.
    pub fn new(from: R) -> Result<Self, TraceError> {
        let mut from = Source::new(from);
        let header = read_header(&mut from)?;
        let decompressor =
            Decompressor::new().map_err(|error| TraceError::Io { offset: from.offset, error })?;
        Ok(Self {
            from,
            header,
            decoder: Decoder::default(),
            decompressor,
            stored: Vec::new(),
            raw: Vec::new(),
            counted: Trailer::default(),
            trailer: None,
            over: false,
        })
    }

    /// Returns the trace's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the trace's trailer; `None` until [`next_chunk`](Self::next_chunk) has returned `false`.
    pub fn trailer(&self) -> Option<&Trailer> {
        self.trailer.as_ref()
    }

    /// Appends the next chunk's events to `into`; returns `false` behind the last, when everything read was whole.
    ///
    /// # Errors
    /// The file is cut or damaged: `into` is then as it was, and the reader at its end.
    pub fn next_chunk(&mut self, into: &mut Vec<Event>) -> Result<bool, TraceError> {
        if self.over {
            return Ok(false);
        }
        let before = into.len();
        let result = self.chunk(into);
        if !matches!(result, Ok(true)) {
            self.over = true;
            into.truncate(before);
        }
        result
    }

    fn chunk(&mut self, into: &mut Vec<Event>) -> Result<bool, TraceError> {
        let offset = self.from.offset;
        let head = read_frame(&mut self.from, &mut self.stored)?;
        if head.number != self.counted.chunks {
            return Err(TraceError::Damaged { offset, what: "chunks before this one are missing" });
        }
        match head.kind {
            Kind::Events => {
                self.decompress(&head, offset)?;
                let first = into.len();
                self.decoder
                    .decode(&self.raw, head.events, into)
                    .map_err(|what| TraceError::Damaged { offset, what })?;
                for event in &into[first..] {
                    self.counted.count(event);
                }
                self.counted.chunks += 1;
                Ok(true)
            }
            Kind::Trailer => {
                let trailer = parse_trailer(&self.stored, offset)?;
                if !trailer.agrees(&self.counted) {
                    return Err(TraceError::Damaged {
                        offset,
                        what: "the trailer's counts are not the events'",
                    });
                }
                self.end(offset)?;
                self.trailer = Some(trailer);
                Ok(false)
            }
        }
    }

    fn decompress(&mut self, head: &FrameHead, offset: u64) -> Result<(), TraceError> {
        let bytes = head.raw_bytes as usize;
        self.raw.clear();
        self.raw.reserve(bytes);
        match self.decompressor.decompress_to_buffer(&self.stored, &mut self.raw) {
            Ok(n) if n == bytes => Ok(()),
            _ => Err(TraceError::Damaged { offset, what: "a chunk cannot be decompressed to its length" }),
        }
    }

    /// Reads what stands behind the trailer, which is at offset `trailer`.
    fn end(&mut self, trailer: u64) -> Result<(), TraceError> {
        let offset = self.from.offset;
        let mut end = [0; frame::END_BYTES];
        self.from.all(&mut end, "the last bytes")?;
        if end != frame::end(trailer) {
            return Err(TraceError::Damaged {
                offset,
                what: "the last bytes do not say where the trailer is",
            });
        }
        let offset = self.from.offset;
        if self.from.some(&mut [0])? != 0 {
            return Err(TraceError::Damaged { offset, what: "something follows the trace's end" });
        }
        Ok(())
    }
}

/// Reads the trailer of a trace in a file, without its events; for a progress bar's total.
///
/// # Errors
/// The file cannot be opened, is no trace, or its head or end is damaged or missing. The parts between are not checked.
pub fn read_trailer(path: &Path) -> Result<Trailer, TraceError> {
    let mut file = open(path)?;
    read_header(&mut Source::new(BufReader::new(&file)))?;
    let io = |offset| move |error| TraceError::Io { offset, error };
    let bytes = file.seek(SeekFrom::End(0)).map_err(io(0))?;
    let at = bytes.saturating_sub(frame::END_BYTES as u64);
    file.seek(SeekFrom::Start(at)).map_err(io(at))?;
    let mut end = [0; frame::END_BYTES];
    Source::new(&file).all(&mut end, "the last bytes")?;
    let trailer = frame::u64_at(&end, 0);
    if end[8..] != frame::END_MAGIC || trailer >= at {
        return Err(TraceError::Cut { offset: bytes, missing: "the trailer" });
    }
    file.seek(SeekFrom::Start(trailer)).map_err(io(trailer))?;
    let mut from = Source::new(BufReader::new(&file));
    from.offset = trailer;
    let mut stored = Vec::new();
    let head = read_frame(&mut from, &mut stored)?;
    if head.kind != Kind::Trailer {
        return Err(TraceError::Damaged { offset: trailer, what: "there is no trailer here" });
    }
    parse_trailer(&stored, trailer)
}

fn open(path: &Path) -> Result<File, TraceError> {
    File::open(path).map_err(|e| TraceError::Open(path.display().to_string(), e))
}

fn read_header<R: Read>(from: &mut Source<R>) -> Result<Header, TraceError> {
    let mut head = vec![0; HEAD_BYTES];
    let n = from.some(&mut head)?;
    if n < 8 || head[..8] != frame::MAGIC {
        return Err(TraceError::NotATrace);
    }
    if n < HEAD_BYTES {
        return Err(TraceError::Cut { offset: n as u64, missing: "the rest of the head" });
    }
    // A later format may have another layout; its version is at the same place.
    let version = frame::u32_at(&head, 8);
    if version > frame::VERSION {
        return Err(TraceError::LaterVersion { found: version });
    }
    let length = frame::u32_at(&head, 12);
    if version == 0 || length > frame::MAX_HEADER_BYTES {
        return Err(TraceError::Damaged { offset: 8, what: "the head claims what no head has" });
    }
    head.resize(HEAD_BYTES + length as usize, 0);
    from.all(&mut head[HEAD_BYTES..], "the rest of the header")?;
    let mut sum = [0; 8];
    from.all(&mut sum, "the header's checksum")?;
    if xxh3_64(&head).to_le_bytes() != sum {
        return Err(TraceError::Damaged { offset: 8, what: "the header does not fit its checksum" });
    }
    serde_json::from_slice(&head[HEAD_BYTES..]).map_err(|_| TraceError::Damaged {
        offset: HEAD_BYTES as u64,
        what: "the header cannot be understood",
    })
}

/// Reads a frame; its payload, whose checksum fits, is then in `stored`.
fn read_frame<R: Read>(from: &mut Source<R>, stored: &mut Vec<u8>) -> Result<FrameHead, TraceError> {
    let offset = from.offset;
    let mut bytes = [0; FRAME_BYTES];
    from.all(&mut bytes, "another chunk's head")?;
    let head = FrameHead::from_bytes(&bytes, offset)?;
    stored.resize(head.stored_bytes as usize, 0);
    from.all(stored, "the rest of a chunk")?;
    if xxh3_64(stored) != head.checksum {
        return Err(TraceError::Damaged { offset, what: "a chunk does not fit its checksum" });
    }
    Ok(head)
}

fn parse_trailer(json: &[u8], offset: u64) -> Result<Trailer, TraceError> {
    serde_json::from_slice(json)
        .map_err(|_| TraceError::Damaged { offset, what: "the trailer cannot be understood" })
}
