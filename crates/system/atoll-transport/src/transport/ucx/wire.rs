//! The header of each message over UCX, and the addresses that nodes exchange at the start.
//!
//! UCX does not order messages of different sizes and does not tell their senders, so the header does. All numbers are
//! little-endian and the same on every instruction set. `hub.rs` decodes headers, `order.rs` sorts messages by their numbers.

use super::deaths::Identity;
use crate::transport::key::{Reader, sum};

/// The format of headers and addresses; a change to either needs a new number.
const VERSION: u16 = 1;

/// The bytes of a header.
pub(super) const HEADER: usize = 40;

/// The purpose of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// A message for the transport's user.
    Message = 0,
    /// The first message of each node to each other, which sets up the connection.
    Hello = 1,
    /// The sender has nothing more to send.
    Bye = 2,
    /// The sender has received everything up to the receiver's bye.
    ByeSeen = 3,
    /// The sender has declared the receiver lost.
    Cut = 4,
    /// No content: the sender is alive.
    Alive = 5,
}

/// A message's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) class: Class,
    pub(super) kind: u16,
    pub(super) from: u32,
    pub(super) to: u32,
    /// The message's number from this sender to this receiver, from 0.
    pub(super) number: u64,
    pub(super) tag: [u8; 16],
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..2].copy_from_slice(&VERSION.to_le_bytes());
        out[2] = self.class as u8;
        out[4..6].copy_from_slice(&self.kind.to_le_bytes());
        out[8..12].copy_from_slice(&self.from.to_le_bytes());
        out[12..16].copy_from_slice(&self.to.to_le_bytes());
        out[16..24].copy_from_slice(&self.number.to_le_bytes());
        out[24..].copy_from_slice(&self.tag);
        out
    }

    /// Decodes a header; `None` if no node of this version made it.
    pub(super) fn decode(bytes: &[u8]) -> Option<Header> {
        let bytes: &[u8; HEADER] = bytes.try_into().ok()?;
        let mut rest = Reader(bytes);
        if u16::from_le_bytes(rest.take().ok()?) != VERSION {
            return None;
        }
        let class = match rest.take().ok()? {
            [0, 0] => Class::Message,
            [1, 0] => Class::Hello,
            [2, 0] => Class::Bye,
            [3, 0] => Class::ByeSeen,
            [4, 0] => Class::Cut,
            [5, 0] => Class::Alive,
            _ => return None,
        };
        let kind = u16::from_le_bytes(rest.take().ok()?);
        if rest.take().ok()? != [0, 0] {
            return None;
        }
        Some(Header {
            class,
            kind,
            from: u32::from_le_bytes(rest.take().ok()?),
            to: u32::from_le_bytes(rest.take().ok()?),
            number: u64::from_le_bytes(rest.take().ok()?),
            tag: rest.take().ok()?,
        })
    }
}

/// The address that a node gives to all others before anything else, through the job's starter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Address {
    pub(super) node: u32,
    pub(super) nodes: u32,
    pub(super) longest: u64,
    pub(super) queue: u64,
    pub(super) run: [u8; 16],
    pub(super) process: Identity,
    pub(super) worker: Vec<u8>,
}

const ADDRESS_MAGIC: [u8; 4] = *b"atux";

impl Address {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(96 + self.worker.len());
        out.extend_from_slice(&ADDRESS_MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.node.to_le_bytes());
        out.extend_from_slice(&self.nodes.to_le_bytes());
        out.extend_from_slice(&self.longest.to_le_bytes());
        out.extend_from_slice(&self.queue.to_le_bytes());
        out.extend_from_slice(&self.run);
        out.extend_from_slice(&self.process.host);
        out.extend_from_slice(&self.process.process.to_le_bytes());
        out.extend_from_slice(&self.process.started.to_le_bytes());
        out.extend_from_slice(&self.worker);
        let sum = sum(&out);
        out.extend_from_slice(&sum);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Address, &'static str> {
        const CUT: &str = "it is cut off";
        let (body, end) = bytes.split_last_chunk::<8>().ok_or(CUT)?;
        let mut rest = Reader(body);
        let magic: [u8; 4] = rest.take().map_err(|_| CUT)?;
        let version = u16::from_le_bytes(rest.take().map_err(|_| CUT)?);
        if magic != ADDRESS_MAGIC {
            return Err("it is none of atoll's");
        }
        if version != VERSION {
            return Err("it comes from another version of atoll");
        }
        if sum(body) != *end {
            return Err("it is damaged");
        }
        Ok(Address {
            node: u32::from_le_bytes(rest.take().map_err(|_| CUT)?),
            nodes: u32::from_le_bytes(rest.take().map_err(|_| CUT)?),
            longest: u64::from_le_bytes(rest.take().map_err(|_| CUT)?),
            queue: u64::from_le_bytes(rest.take().map_err(|_| CUT)?),
            run: rest.take().map_err(|_| CUT)?,
            process: Identity {
                host: rest.take().map_err(|_| CUT)?,
                process: u32::from_le_bytes(rest.take().map_err(|_| CUT)?),
                started: u64::from_le_bytes(rest.take().map_err(|_| CUT)?),
            },
            worker: rest.0.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn headers_come_back_and_nonsense_does_not(
            class in 0u8..6, kind: u16, from: u32, to: u32, number: u64, tag: [u8; 16],
            nonsense in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let class = [Class::Message, Class::Hello, Class::Bye, Class::ByeSeen, Class::Cut, Class::Alive][usize::from(class)];
            let header = Header { class, kind, from, to, number, tag };
            prop_assert_eq!(Header::decode(&header.encode()), Some(header));
            if let Some(read) = Header::decode(&nonsense) {
                prop_assert_eq!(&read.encode()[..], &nonsense[..]);
            }
        }

        #[test]
        fn a_damaged_address_is_refused(at in 0usize..110, bit in 0u8..8) {
            let process = Identity { host: [7; 16], process: 8, started: 9 };
            let address =
                Address { node: 1, nodes: 2, longest: 3, queue: 4, run: [5; 16], process, worker: vec![6; 30] };
            let bytes = address.encode();
            prop_assert_eq!(Address::decode(&bytes), Ok(address));
            prop_assert!(Address::decode(&bytes[..at]).is_err());
            let mut changed = bytes;
            changed[at] ^= 1 << bit;
            prop_assert!(Address::decode(&changed).is_err());
        }
    }
}
