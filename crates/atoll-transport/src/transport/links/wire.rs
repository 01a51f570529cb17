//! What links say to each other: four kinds of the transport's messages.
//!
//! `streams.rs` makes them and takes them. Numbers are little-endian.
//!
//! | kind | bytes |
//! | --- | --- |
//! | 1, open | 0–3 stream; 4–5 what it is for |
//! | 2, message | 0–3 stream; 4–5 the message's kind; then its bytes |
//! | 3, credit | 0–3 stream; 4–7 bytes that were taken out of the queue |
//! | 4, close | 0–3 stream |
//!
//! Each node numbers the streams that it opens, from 0; the highest bit says that the sender of this opened it.

use crate::Node;

/// Bytes before those of a message.
pub(super) const HEADER: usize = 6;
/// In the number of a stream: the sender opened it.
const MINE: u32 = 1 << 31;

/// A stream, as one of its two nodes sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct StreamId {
    /// This node opened it.
    pub(super) mine: bool,
    /// In the order in which its node opened them, below 2^31.
    pub(super) number: u32,
}

/// What one message of the transport says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Word<'a> {
    Open { stream: StreamId, purpose: u16 },
    Data { stream: StreamId, kind: u16, bytes: &'a [u8] },
    Credit { stream: StreamId, bytes: u32 },
    Close { stream: StreamId },
}

/// A word on its way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    pub(super) to: Node,
    pub(super) kind: u16,
    pub(super) bytes: Vec<u8>,
}

impl<'a> Word<'a> {
    /// As a message to `to`.
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

    /// What a message of another node says, as this node sees it; none if it says nothing.
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
