//! The container: a head, chunks with a tag, a length and checksums each, and a last chunk that counts them.
//!
//! This module does not know what chunks hold. A reader never trusts a length: a damaged or cut file is an error that names the
//! offset, not a panic and not an allocation of the claimed length.

use std::fmt;
use std::io::{self, Read, Write};

use crate::source::Source;

/// The first bytes of every record.
pub const MAGIC: [u8; 8] = *b"ATOLLREC";
/// The format that this crate writes, and the latest that it reads.
pub const VERSION: u32 = 1;
/// The tag of the last chunk, which holds the number of chunks before it.
pub const END: Tag = Tag(*b"end\0\0\0\0\0");

const HEAD_BYTES: usize = 16;
const CHUNK_HEAD_BYTES: usize = 24;

/// The tag of a chunk's content: up to eight bytes of ASCII, filled up with NULs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(pub [u8; 8]);

impl Tag {
    /// Makes the tag of a name of at most eight bytes.
    pub const fn new(name: &str) -> Tag {
        let name = name.as_bytes();
        assert!(name.len() <= 8, "a tag has at most eight bytes");
        let mut bytes = [0; 8];
        let mut i = 0;
        while i < name.len() {
            bytes[i] = name[i];
            i += 1;
        }
        Tag(bytes)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.split(|&b| b == 0).next().unwrap_or_default();
        write!(f, "{}", name.escape_ascii())
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tag({self})")
    }
}

/// The reason why a file cannot be read as a container.
#[derive(thiserror::Error, Debug)]
pub enum ReadError {
    /// The file is not a record.
    #[error("this is not a record of atoll: it does not start with ATOLLREC")]
    NotARecord,
    /// The file was written by a later atoll.
    #[error(
        "the record has format {found}, this atoll reads up to {VERSION}: read it with the atoll that wrote it"
    )]
    LaterVersion {
        /// The file's format.
        found: u32,
    },
    /// The file ends too early.
    #[error("the record is cut off at byte {offset}: {missing}")]
    Cut {
        /// Where the file ends.
        offset: u64,
        /// The part that should have followed.
        missing: &'static str,
    },
    /// A checksum or a fixed field is wrong.
    #[error("the record is damaged at byte {offset}: {what}")]
    Damaged {
        /// The offset where the damaged part starts.
        offset: u64,
        /// The kind of damage.
        what: &'static str,
    },
    /// The file could not be read.
    #[error("the record cannot be read at byte {offset}: {error}")]
    Io {
        /// The offset that reading reached.
        offset: u64,
        /// The system's error.
        error: io::Error,
    },
}

/// A chunk of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The tag, which says what the chunk holds.
    pub tag: Tag,
    /// The offset of the chunk's head in the file.
    pub offset: u64,
    /// The chunk's content.
    pub payload: Vec<u8>,
}

/// Writes a container.
#[derive(Debug)]
pub struct Writer<W: Write> {
    to: W,
    chunks: u64,
}

impl<W: Write> Writer<W> {
    /// Starts the file with its head.
    ///
    /// # Errors
    /// The error of writing.
    pub fn new(mut to: W) -> io::Result<Self> {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let sum = crc32fast::hash(&head[..12]);
        head[12..].copy_from_slice(&sum.to_le_bytes());
        to.write_all(&head)?;
        Ok(Self { to, chunks: 0 })
    }

    /// Adds a chunk.
    ///
    /// # Errors
    /// The error of writing.
    pub fn chunk(&mut self, tag: Tag, payload: &[u8]) -> io::Result<()> {
        let mut head = [0; CHUNK_HEAD_BYTES];
        head[..8].copy_from_slice(&tag.0);
        head[8..16].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        head[16..20].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
        let sum = crc32fast::hash(&head[..20]);
        head[20..].copy_from_slice(&sum.to_le_bytes());
        self.to.write_all(&head)?;
        self.to.write_all(payload)?;
        self.chunks += 1;
        Ok(())
    }

    /// Passes everything written so far to the system, which keeps it whatever becomes of this process.
    ///
    /// # Errors
    /// The error of writing.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    /// Adds the last chunk and returns the writer.
    ///
    /// # Errors
    /// The error of writing.
    pub fn finish(mut self) -> io::Result<W> {
        let chunks = self.chunks.to_le_bytes();
        self.chunk(END, &chunks)?;
        self.to.flush()?;
        Ok(self.to)
    }
}

/// Reads a container, chunk by chunk.
#[derive(Debug)]
pub struct Reader<R: Read> {
    source: Source<R>,
    chunks: u64,
    over: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the head.
    ///
    /// # Errors
    /// The file is no record, or one of a later atoll.
    pub fn new(from: R) -> Result<Self, ReadError> {
        let mut reader = Self { source: Source::new(from), chunks: 0, over: false };
        let mut head = [0; HEAD_BYTES];
        let n = reader.fill(&mut head)?;
        if n < 8 || head[..8] != MAGIC {
            return Err(ReadError::NotARecord);
        }
        if n < HEAD_BYTES {
            return Err(ReadError::Cut { offset: n as u64, missing: "the rest of the head" });
        }
        // A later format may compute the head's checksum in another way; its version is at the same place.
        let version = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        let whole = crc32fast::hash(&head[..12]).to_le_bytes() == head[12..16];
        if version > VERSION {
            return Err(ReadError::LaterVersion { found: version });
        }
        if version == 0 || !whole {
            return Err(ReadError::Damaged { offset: 8, what: "the head's checksum does not fit" });
        }
        Ok(reader)
    }

    /// Reads the next chunk; returns `None` after the last.
    ///
    /// # Errors
    /// The file is cut or damaged.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>, ReadError> {
        if self.over {
            return Ok(None);
        }
        let start = self.source.offset;
        let mut head = [0; CHUNK_HEAD_BYTES];
        if self.fill(&mut head)? < CHUNK_HEAD_BYTES {
            self.over = true;
            return Err(ReadError::Cut { offset: self.source.offset, missing: "another chunk's head" });
        }
        let mut tag = [0; 8];
        tag.copy_from_slice(&head[..8]);
        let mut length = [0; 8];
        length.copy_from_slice(&head[8..16]);
        let length = u64::from_le_bytes(length);
        if crc32fast::hash(&head[..20]).to_le_bytes() != head[20..24] {
            self.over = true;
            return Err(ReadError::Damaged {
                offset: start,
                what: "a chunk's head does not fit its checksum",
            });
        }
        let mut payload = Vec::new();
        match self.source.from.by_ref().take(length).read_to_end(&mut payload) {
            Ok(n) => self.source.offset += n as u64,
            Err(error) => return Err(ReadError::Io { offset: self.source.offset, error }),
        }
        if (payload.len() as u64) < length {
            self.over = true;
            return Err(ReadError::Cut { offset: self.source.offset, missing: "the rest of a chunk" });
        }
        if crc32fast::hash(&payload).to_le_bytes() != head[16..20] {
            self.over = true;
            return Err(ReadError::Damaged { offset: start, what: "a chunk does not fit its checksum" });
        }
        if Tag(tag) == END {
            self.over = true;
            if payload != self.chunks.to_le_bytes() {
                return Err(ReadError::Damaged { offset: start, what: "chunks are missing before the end" });
            }
            return Ok(None);
        }
        self.chunks += 1;
        Ok(Some(Chunk { tag: Tag(tag), offset: start, payload }))
    }

    /// Reads into `to` as many bytes as there are.
    fn fill(&mut self, to: &mut [u8]) -> Result<usize, ReadError> {
        self.source.fill(to).map_err(|error| ReadError::Io { offset: self.source.offset, error })
    }
}
