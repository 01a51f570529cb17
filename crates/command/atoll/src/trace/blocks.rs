//! Takes the bytes from the engines' pipe apart into blocks of words.
//!
//! `team` knows the meaning of the words.

use atoll_trace_wire::{BLOCK_WORDS, word};

/// The bytes in the pipe are not what engines send: another process wrote into it.
#[derive(thiserror::Error, Debug, PartialEq, Eq)]
#[error(
    "the engine's pipe carries what no engine sends, at its byte {at}: something else wrote to the program's descriptor"
)]
pub(crate) struct Foreign {
    /// The number of bytes before it.
    pub(crate) at: u64,
}

/// Bytes that are collected into blocks.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    bytes: Vec<u8>,
    words: Vec<u64>,
    taken: u64,
}

impl Blocks {
    /// Adds bytes and calls `each` with the thread and the words of each block that is then whole.
    ///
    /// # Errors
    /// The bytes are no blocks.
    pub(crate) fn add(&mut self, bytes: &[u8], mut each: impl FnMut(u32, &[u64])) -> Result<(), Foreign> {
        self.bytes.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(head) = self.bytes.get(at..at + 8) {
            let (count, thread) = word::parse_head(word_of(head));
            let count = count as usize;
            if count == 0 || count >= BLOCK_WORDS {
                return Err(Foreign { at: self.taken + at as u64 });
            }
            let Some(payload) = self.bytes.get(at + 8..at + 8 + count * 8) else { break };
            self.words.clear();
            self.words.extend(payload.chunks_exact(8).map(word_of));
            each(thread, &self.words);
            at += 8 + count * 8;
        }
        self.bytes.drain(..at);
        self.taken += at as u64;
        Ok(())
    }
}

fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_whole_however_the_bytes_come() {
        let mut bytes = Vec::new();
        for block in [&[word::head(2, 5), 10, 11][..], &[word::head(1, u32::MAX), 12]] {
            bytes.extend(block.iter().flat_map(|w| w.to_le_bytes()));
        }
        for step in [1, 3, 8, 100] {
            let (mut blocks, mut found) = (Blocks::default(), Vec::new());
            for piece in bytes.chunks(step) {
                blocks.add(piece, |thread, words| found.push((thread, words.to_vec()))).unwrap();
            }
            assert_eq!(found, [(5, vec![10, 11]), (u32::MAX, vec![12])]);
        }
        assert_eq!(Blocks::default().add(&[0; 16], |_, _| {}), Err(Foreign { at: 0 }));
        assert_eq!(Blocks::default().add(b"hello, world", |_, _| {}), Err(Foreign { at: 0 }));
    }
}
