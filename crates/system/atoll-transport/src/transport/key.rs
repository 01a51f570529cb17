//! Keys: the bytes that stand for a node's registered memory and are sent to other nodes.
//!
//! `shm/` and `ucx/` make keys and attach to them. The checksum finds damage, but no forgery: `proof.rs` decides who may send a
//! key at all.

use super::error::KeyError;
use crate::Node;

const MAGIC: u32 = u32::from_le_bytes(*b"atmk");
const VERSION: u16 = 1;
const HEAD: usize = 4 + 2 + 2 + 4 + 16 + 8 + 8 + 4;
const SUM: usize = 8;
/// The most bytes that a transport adds.
pub(super) const MOST_EXTRA: usize = 32 << 10;

/// The kinds of transports that make keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Shm = 1,
    Ucx = 2,
}

/// The content of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Key {
    pub(super) kind: Kind,
    pub(super) owner: Node,
    /// A random number that the owner's transport chose at its start.
    pub(super) run: [u8; 16],
    /// The memory's length in bytes.
    pub(super) bytes: u64,
    /// The memory's address in the owner.
    pub(super) address: u64,
    /// Further bytes that the transport needs.
    pub(super) extra: Vec<u8>,
}

impl Key {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + self.extra.len() + SUM);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(self.kind as u16).to_le_bytes());
        out.extend_from_slice(&self.owner.0.to_le_bytes());
        out.extend_from_slice(&self.run);
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&self.address.to_le_bytes());
        out.extend_from_slice(&(self.extra.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.extra);
        let sum = sum(&out);
        out.extend_from_slice(&sum);
        out
    }

    /// Decodes a key from `owner`, whose run is `run`, over a transport of `kind`.
    pub(super) fn decode(bytes: &[u8], kind: Kind, owner: Node, run: &[u8; 16]) -> Result<Key, KeyError> {
        if bytes.len() < HEAD + SUM {
            return Err(KeyError::Truncated);
        }
        if bytes.len() > HEAD + MOST_EXTRA + SUM {
            return Err(KeyError::TooLong);
        }
        let mut rest = Reader(bytes);
        if u32::from_le_bytes(rest.take()?) != MAGIC || u16::from_le_bytes(rest.take()?) != VERSION {
            return Err(KeyError::Damaged);
        }
        let made_by = u16::from_le_bytes(rest.take()?);
        let key_owner = Node(u32::from_le_bytes(rest.take()?));
        let key_run = rest.take()?;
        let length = u64::from_le_bytes(rest.take()?);
        let address = u64::from_le_bytes(rest.take()?);
        let extra_length = u32::from_le_bytes(rest.take()?) as usize;
        let whole = HEAD + extra_length + SUM;
        if bytes.len() < whole {
            return Err(KeyError::Truncated);
        }
        if bytes.len() > whole {
            return Err(KeyError::TooLong);
        }
        let (body, end) = bytes.split_at(whole - SUM);
        if sum(body) != end {
            return Err(KeyError::Damaged);
        }
        if made_by != kind as u16 {
            return Err(KeyError::OtherTransport);
        }
        if key_owner != owner {
            return Err(KeyError::OtherNode(key_owner));
        }
        if key_run != *run {
            return Err(KeyError::OtherRun);
        }
        if address.checked_add(length).is_none() {
            return Err(KeyError::Damaged);
        }
        Ok(Key { kind, owner, run: key_run, bytes: length, address, extra: body[HEAD..].to_vec() })
    }
}

/// A checksum of `bytes`, which damage changes.
pub(super) fn sum(bytes: &[u8]) -> [u8; SUM] {
    let mut sum = [0; SUM];
    sum.copy_from_slice(&blake3::hash(bytes).as_bytes()[..SUM]);
    sum
}

/// Takes arrays from the front of a byte slice.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], KeyError> {
        let (first, rest) = self.0.split_first_chunk().ok_or(KeyError::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> Key {
        Key {
            kind: Kind::Ucx,
            owner: Node(3),
            run: [7; 16],
            bytes: 4096,
            address: 1 << 40,
            extra: vec![9; 50],
        }
    }

    fn decode(bytes: &[u8]) -> Result<Key, KeyError> {
        Key::decode(bytes, Kind::Ucx, Node(3), &[7; 16])
    }

    #[test]
    fn a_key_of_another_owner_run_or_transport_is_refused() {
        let bytes = key().encode();
        assert_eq!(decode(&bytes), Ok(key()));
        let other = |kind, owner, run| Key::decode(&bytes, kind, owner, run).unwrap_err();
        assert_eq!(other(Kind::Shm, Node(3), &[7; 16]), KeyError::OtherTransport);
        assert_eq!(other(Kind::Ucx, Node(2), &[7; 16]), KeyError::OtherNode(Node(3)));
        assert_eq!(other(Kind::Ucx, Node(3), &[8; 16]), KeyError::OtherRun);
        let wraps = Key { address: u64::MAX - 4000, ..key() };
        assert_eq!(decode(&wraps.encode()), Err(KeyError::Damaged));
        let huge = Key { extra: vec![0; MOST_EXTRA + 1], ..key() };
        assert_eq!(decode(&huge.encode()), Err(KeyError::TooLong));
    }

    proptest! {
        #[test]
        fn a_cut_longer_or_changed_key_is_refused(at in 0..key().encode().len(), bit in 0u8..8) {
            let bytes = key().encode();
            prop_assert!(decode(&bytes[..at]).is_err());
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            prop_assert!(decode(&changed).is_err());
            let mut longer = bytes;
            longer.push(0);
            prop_assert!(decode(&longer).is_err());
        }

        #[test]
        fn any_bytes_are_taken_without_a_crash(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }
    }
}
