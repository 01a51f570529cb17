//! A line: 64 bytes, the unit that a ring hands from one CPU to another; its header is part of the line.
//!
//! `memory.rs` arranges lines in a ring, `producer.rs` writes and `consumer.rs` reads them. A header is one 64-bit word, so one
//! store publishes a line and one load receives it. All words are atomics: the other end is another process that may write when
//! it should not, and a read then returns arbitrary bytes, but is never undefined.
//!
//! Source: the barrelfish paper, section 5.5 (user-level message passing: cache-line messages with the header in the
//! line).

use crate::ring::sync::{AtomicU64, Ordering};

/// The words of payload in a line. Under the model checker one is enough, and each more costs it time.
#[cfg(not(loom))]
const WORDS: usize = 7;
#[cfg(loom)]
const WORDS: usize = 1;

/// The bytes of payload in a line.
pub(crate) const PAYLOAD: usize = WORDS * 8;

/// The flag of a line that begins a message. An earlier message that was not ended is thereby given up.
pub(crate) const FIRST: u8 = 1;
/// The flag of a line that ends a message.
pub(crate) const LAST: u8 = 2;

/// The header of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// The line's number in its ring, from 1, modulo 2^32, which differs from that of the lap before.
    pub(crate) sequence: u32,
    /// The kind of the message, whose meaning is up to its readers.
    pub(crate) kind: u16,
    /// The bytes of payload in this line.
    pub(crate) length: u8,
    /// The flags `FIRST` and `LAST`.
    pub(crate) flags: u8,
}

impl Header {
    /// The header as a word: from the lowest bit, sequence (32), kind (16), length (8), flags (8).
    #[inline]
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.sequence)
            | u64::from(self.kind) << 32
            | u64::from(self.length) << 48
            | u64::from(self.flags) << 56
    }

    /// The header in a word. Nothing in it has been checked.
    #[inline]
    pub(crate) fn unpack(word: u64) -> Header {
        Header {
            sequence: word as u32,
            kind: (word >> 32) as u16,
            length: (word >> 48) as u8,
            flags: (word >> 56) as u8,
        }
    }
}

/// The 64 bytes of one slot of a ring.
#[repr(C, align(64))]
pub(crate) struct Line {
    header: AtomicU64,
    payload: [AtomicU64; WORDS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Line>() == 64);

impl Line {
    /// A line that nobody wrote; in a mapping, zeros are the same.
    #[cfg(any(test, loom))]
    pub(crate) fn new() -> Line {
        Line { header: AtomicU64::new(0), payload: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// The producer's side: writes the payload, then publishes it. `bytes` are at most `PAYLOAD`.
    #[inline]
    pub(crate) fn publish(&self, header: Header, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        let mut words = self.payload.iter();
        for (chunk, word) in chunks.by_ref().zip(words.by_ref()) {
            let mut whole = [0; 8];
            whole.copy_from_slice(chunk);
            word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
        }
        let rest = chunks.remainder();
        if let Some(word) = words.next()
            && !rest.is_empty()
        {
            let mut whole = [0; 8];
            whole[..rest.len()].copy_from_slice(rest);
            word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `header`; a consumer that sees this header sees the payload.
        self.header.store(header.pack(), Ordering::Release);
    }

    /// The consumer's side: the header as it is now.
    #[inline]
    pub(crate) fn header(&self) -> Header {
        // Acquire: pairs with the Release in `publish`.
        Header::unpack(self.header.load(Ordering::Acquire))
    }

    /// The consumer's side, after it saw the header: appends the first `length` bytes of the payload, or all of it if `length`
    /// is larger.
    #[inline]
    pub(crate) fn read(&self, length: usize, into: &mut Vec<u8>) {
        let mut all = [0; PAYLOAD];
        let needed = length.min(PAYLOAD).div_ceil(8);
        for (word, bytes) in self.payload[..needed].iter().zip(all.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        into.extend_from_slice(&all[..length.min(PAYLOAD)]);
    }

    /// Writes any words to the line, as a hostile peer may.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn scribble(&self, words: [u64; 8]) {
        for (word, value) in self.payload.iter().zip(&words[1..]) {
            word.store(*value, Ordering::Relaxed);
        }
        self.header.store(words[0], Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_its_word() {
        let header = Header { sequence: 0xffff_fffe, kind: 0x1234, length: 56, flags: FIRST | LAST };
        assert_eq!(Header::unpack(header.pack()), header);
    }

    #[test]
    fn every_length_arrives_as_it_was() {
        let line = Line::new();
        let bytes: Vec<u8> = (1..=PAYLOAD as u8).collect();
        for length in 0..=PAYLOAD {
            let header = Header { sequence: 1, kind: 0, length: length as u8, flags: FIRST | LAST };
            line.publish(header, &bytes[..length]);
            let mut read = vec![9];
            line.read(line.header().length.into(), &mut read);
            assert_eq!(read[0], 9);
            assert_eq!(read[1..], bytes[..length]);
        }
    }
}
