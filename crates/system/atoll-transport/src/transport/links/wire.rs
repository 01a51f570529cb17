//! The words of links: four kinds of the transport's messages.
//!
//! `streams.rs` makes and handles them. Numbers are little-endian.
//!
//! | kind | bytes |
//! | --- | --- |
//! | 1, open | 0–3 stream; 4–5 its purpose |
//! | 2, message | 0–3 stream; 4–5 the message's kind; then its bytes |
//! | 3, credit | 0–3 stream; 4–7 bytes taken out of the queue |
//! | 4, close | 0–3 stream |
//!
//! Each node numbers the streams that it opens, from 0; the highest bit of a number says that the sender of the word opened the
//! stream.

use crate::Node;

/// The bytes before those of a message.
pub(super) const HEADER: usize = 6;
/// The bit in a stream's number that says that the sender opened it.
const MINE: u32 = 1 << 31;

/// A stream, as one of its two nodes sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct StreamId {
    /// Whether this node opened it.
    pub(super) mine: bool,
    /// The stream's number in the order in which its node opened streams, below 2^31.
    pub(super) number: u32,
}

/// The content of one message of the transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Word<'a> {
    Open { stream: StreamId, purpose: u16 },
    Data { stream: StreamId, kind: u16, bytes: &'a [u8] },
    Credit { stream: StreamId, bytes: u32 },
    Close { stream: StreamId },
}

/// A word with its destination, as bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    pub(super) to: Node,
    pub(super) kind: u16,
    pub(super) bytes: Vec<u8>,
}

impl<'a> Word<'a> {
    /// The word as a message to `to`.
    pub(super) fn write(self, to: Node) -> Frame {
        let (kind, stream) = match self {
            Word::Open { stream, .. } => (1, stream),
            Word::Data { stream, .. } => (2, stream),
            Word::Credit { stream, .. } => (3, stream),
            Word::Close { stream } => (4, stream),
        };
        let mut bytes = (stream.number | if stream.mine { MINE } else { 0 }).to_le_bytes().to_vec();
        match self {
            Word::Open { purpose, .. } => bytes.extend_from_slice(&purpose.to_le_bytes()),
            Word::Data { kind, bytes: message, .. } => {
                bytes.reserve_exact(2 + message.len());
                bytes.extend_from_slice(&kind.to_le_bytes());
                bytes.extend_from_slice(message);
            }
            Word::Credit { bytes: credit, .. } => bytes.extend_from_slice(&credit.to_le_bytes()),
            Word::Close { .. } => {}
        }
        Frame { to, kind, bytes }
    }

    /// The word in a message of another node, as this node sees it; `None` if the message is invalid.
    pub(super) fn read(kind: u16, bytes: &'a [u8]) -> Option<Word<'a>> {
        let (number, rest) = bytes.split_first_chunk::<4>()?;
        let number = u32::from_le_bytes(*number);
        let stream = StreamId { mine: number & MINE == 0, number: number & !MINE };
        match kind {
            1 => Some(Word::Open { stream, purpose: u16::from_le_bytes(rest.try_into().ok()?) }),
            2 => {
                let (kind, bytes) = rest.split_first_chunk::<2>()?;
                Some(Word::Data { stream, kind: u16::from_le_bytes(*kind), bytes })
            }
            3 => Some(Word::Credit { stream, bytes: u32::from_le_bytes(rest.try_into().ok()?) }),
            4 if rest.is_empty() => Some(Word::Close { stream }),
            _ => None,
        }
    }
}
