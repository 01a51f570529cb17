//! The letter, which a started process finds in the socket that it inherited, before anything else.
//!
//! Written by `child.rs`, read by `parent.rs`, which believes the process that started it, but not that it has the same
//! version.
//!
//! | bytes | holds, little-endian |
//! | --- | --- |
//! | 0–7 | `ATOLLPAR` |
//! | 8–11 | format: 1 |
//! | 12–15 | bytes of what follows |
//! | 16– | the contents, in postcard's format |

use std::io::{self, Read};
use std::os::fd::AsFd;

use rustix::net::{SendFlags, send};
use serde::{Deserialize, Serialize};

use crate::spawn::order::{MOST_CAPABILITY, ProcessId};
use atoll_transport::decode;

const MAGIC: &[u8; 8] = b"ATOLLPAR";
const FORMAT: u32 = 1;
/// The most bytes of the contents.
const LONGEST: usize = MOST_CAPABILITY + 64;

/// The environment variable that holds the number of the inherited descriptor.
pub(super) const VARIABLE: &str = "ATOLL_PARENT";

/// The contents of a letter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Letter {
    pub(super) id: ProcessId,
    #[serde(with = "serde_bytes")]
    pub(super) capability: Vec<u8>,
    /// Whether the service makes channels with the process now.
    pub(super) worker: bool,
}

impl Letter {
    /// Writes the letter to a socket to which nothing was written before, so that there is room. Fails if the reader is gone.
    pub(super) fn send(&self, socket: impl AsFd) -> io::Result<()> {
        let bytes = self.bytes()?;
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        if send(socket, &bytes, flags)? == bytes.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    fn bytes(&self) -> io::Result<Vec<u8>> {
        let contents = postcard::to_stdvec(self).map_err(io::Error::other)?;
        let mut bytes = Vec::with_capacity(16 + contents.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&(contents.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&contents);
        Ok(bytes)
    }

    /// Reads a letter; the error is `InvalidData` if the bytes are not one.
    pub(super) fn read(mut from: impl Read) -> io::Result<Letter> {
        let invalid = |why| io::Error::new(io::ErrorKind::InvalidData, why);
        let mut begin = [0; 16];
        from.read_exact(&mut begin)?;
        let (magic, rest) = begin.split_at(8);
        let (format, length) = rest.split_at(4);
        if magic != MAGIC {
            return Err(invalid("the inherited socket does not begin with a letter"));
        }
        if format != FORMAT.to_le_bytes() {
            return Err(invalid("the letter has the format of another version"));
        }
        let length = length.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        if length > LONGEST {
            return Err(invalid("the letter is too long"));
        }
        let mut contents = vec![0; length];
        from.read_exact(&mut contents)?;
        decode(&contents).map_err(|_| invalid("the letter cannot be read"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use atoll_transport::Node;

    proptest! {
        #[test]
        fn a_letter_arrives(
            node: u32, serial: u64, process: u32, worker: bool,
            capability in prop::collection::vec(any::<u8>(), 0..=MOST_CAPABILITY),
        ) {
            let id = ProcessId { node: Node(node), serial, process };
            let letter = Letter { id, capability, worker };
            let mut bytes = letter.bytes().unwrap();
            prop_assert_eq!(Letter::read(bytes.as_slice()).unwrap(), letter);
            bytes.pop();
            prop_assert!(Letter::read(bytes.as_slice()).is_err());
        }

        #[test]
        fn any_bytes_are_a_letter_or_an_error(mut bytes in prop::collection::vec(any::<u8>(), 0..100), good: bool) {
            if good {
                let mut begin = Vec::from(*MAGIC);
                begin.extend_from_slice(&FORMAT.to_le_bytes());
                begin.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                bytes.splice(0..0, begin);
            }
            let _ = Letter::read(bytes.as_slice());
        }
    }
}
