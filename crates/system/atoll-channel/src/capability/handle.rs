//! The values that travel between nodes: handles, holders, and ranges of bytes.
//!
//! `table.rs` gives handles out and takes them back. All of this is serialised with serde, and nothing is believed when it
//! comes back: a handle is a claim, which the table of its node checks.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use atoll_transport::Node;

/// The holder of a capability: one process of one node. A caller of the table knows from the channel which process is at its
/// other end; the holder is never taken from the message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Holder {
    /// The node that the process belongs to.
    pub node: Node,
    /// The process's number on its node. It is never given to another one in the same job, so it is not the system's process
    /// number.
    pub process: u64,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of {}", self.process, self.node)
    }
}

/// A name for a capability in the table of node `node`. It may be copied, kept and sent to anybody, but is of use to its holder
/// only, and to nobody once it is revoked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Handle {
    /// The node that has the memory, and the table that knows the capability.
    pub node: Node,
    /// The place in that table.
    pub slot: u32,
    /// The number of capabilities that this place had before.
    pub generation: u32,
    /// A check word that only the table can compute from the rest: a handle with another one was never given out.
    pub check: u64,
}

/// A range of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Span {
    /// The start, in bytes.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
}

impl Span {
    /// The bytes `part` of this range, counted from its start; `None` if they are not all in it.
    #[must_use]
    pub fn part(self, part: Span) -> Option<Span> {
        let end = part.offset.checked_add(part.length)?;
        if end > self.length {
            return None;
        }
        Some(Span { offset: self.offset.checked_add(part.offset)?, length: part.length })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {}", self.length, self.offset)
    }
}

/// The key by which a table's handles are checked: 128 random bits, fixed for the table.
#[derive(Clone)]
pub struct Secret(pub [u8; 16]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret")
    }
}

impl Secret {
    /// The handle of a place and generation, with its check word. SipHash is a pseudo-random function: nobody can compute
    /// another handle from any number of handles.
    pub(super) fn handle(&self, node: Node, slot: u32, generation: u32) -> Handle {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(&node.0.to_le_bytes());
        hasher.write(&slot.to_le_bytes());
        hasher.write(&generation.to_le_bytes());
        Handle { node, slot, generation, check: hasher.finish() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_inside_or_refused() {
        let whole = Span { offset: 100, length: 50 };
        let part =
            |offset, length| whole.part(Span { offset, length }).map(|span| (span.offset, span.length));
        assert_eq!(part(0, 50), Some((100, 50)));
        assert_eq!(part(50, 0), Some((150, 0)));
        assert_eq!(part(49, 1), Some((149, 1)));
        for (offset, length) in
            [(0, 51), (50, 1), (51, 0), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)]
        {
            assert_eq!(part(offset, length), None);
        }
        let last = Span { offset: u64::MAX, length: 10 };
        assert_eq!(last.part(Span { offset: 1, length: 1 }), None);
    }

    #[test]
    fn handles_survive_their_bytes_and_differ() {
        let secret = Secret([7; 16]);
        let handle = secret.handle(Node(3), 5, 9);
        let bytes = postcard::to_allocvec(&handle).unwrap();
        assert_eq!(postcard::from_bytes::<Handle>(&bytes), Ok(handle));
        let others =
            [secret.handle(Node(4), 5, 9), secret.handle(Node(3), 6, 9), secret.handle(Node(3), 5, 8)];
        assert!(others.iter().all(|other| other.check != handle.check));
        assert_ne!(Secret([8; 16]).handle(Node(3), 5, 9).check, handle.check);
        assert_eq!(format!("{secret:?}"), "Secret");
    }
}
