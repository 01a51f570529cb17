//! The words of agents of different nodes to each other, and their bytes.
//!
//! `agent` sends and receives. The coherence protocol's own messages are one kind among them, and those of the program, which
//! travel as bytes, another.

use atoll_coherence::agent::Message;
use serde::{Deserialize, Serialize};

use crate::files::Mapped;
use crate::identity::Identity;
use crate::mail::Service;
use crate::numbers::Numbers;
use crate::races::Found;
use crate::region::Region;

/// A page's content.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(crate) enum Content {
    /// All zeros.
    Zeros,
    /// The bytes of the page, all of them.
    Bytes(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The page is to be read where it lies, in the sender's files.
    There,
}

/// The changes of a page, as `atoll_coherence::diff` writes them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(crate) struct Diff(#[serde(with = "serde_bytes")] pub(crate) Vec<u8>);

/// A message between agents.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Packet {
    /// The sender's identity and its process, before anything else.
    Hello(Identity, Numbers),
    /// The sender's files of pages: its process's descriptors.
    Files(Numbers, Vec<i32>),
    /// The sender can read the receiver's files of pages.
    Reads,
    /// A message of the coherence protocol.
    Coherence(Message<Content, Diff>),
    /// A message between the program's parts, which only they understand.
    Program(#[serde(with = "serde_bytes")] Vec<u8>),
    /// From the origin: a region begins.
    Region(Region),
    /// From the origin: a value that a worker of it gives to all nodes.
    Publish(u64),
    /// To the origin: a worker asks for a service.
    Ask { service: Service, words: [u64; 3], by: u32 },
    /// From the origin: the answer to a worker that asked.
    Answer { by: u32, answers: [u64; 2] },
    /// A worker touched this address, where the receiver may have a file mapped.
    Touched { at: u64, by: u32 },
    /// The answer to [`Self::Touched`]: the sender has this mapped there.
    Mapped { by: u32, found: Option<Mapped> },
    /// The sender has unmapped a stretch, which the receiver is to do, too.
    Forget { at: u64, len: u64, by: u32 },
    /// The answer to [`Self::Forget`]: the sender has unmapped the stretch.
    Forgotten { by: u32 },
    /// A worker calls a function on the receiver's node.
    Call {
        by: u32,
        words: [u64; 4],
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// The answer to [`Self::Call`].
    Called {
        by: u32,
        result: i64,
        errno: i32,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// A block of the receiver's heap is free.
    Free(u64),
    /// To the origin: words that several nodes wrote.
    Races(Vec<Found>),
    /// To the origin: the twins of the region of this code take too much of near memory.
    Crowded(u64),
    /// To the origin: the pages of the region that runs go to and fro.
    Thrashes,
    /// From the origin: the region that runs is calmed.
    Calm,
    /// To the origin, now and then: what the node counted, by `atoll_memory::control::NodeCount`.
    Counts(Vec<u64>),
    /// To the origin, at the end: the same counters, behind all else that the node says.
    Goodbye(Vec<u64>),
    /// To the origin: a signal came for the program; whether a worker of it sent it.
    Signal { signal: i32, raised: bool },
    /// From the origin: the program has ended.
    Exit(i32),
    /// To the origin: a worker ends the program; whether what it registered for its end is to run.
    Leave { status: i32, handlers: bool },
}

impl Packet {
    /// May a worker that steps the agent do what the packet says? Only the agent's own thread ends a process.
    pub(crate) fn is_for_anybody(&self) -> bool {
        !matches!(
            self,
            Packet::Hello(..)
                | Packet::Exit(_)
                | Packet::Leave { .. }
                | Packet::Goodbye(..)
                | Packet::Free(_)
        )
    }
}

/// The bytes of packets that travel together, in `room`, whose content goes and whose memory is used again.
pub(crate) fn encode(packets: &[Packet], mut room: Vec<u8>) -> Vec<u8> {
    room.clear();
    // Into memory, of types that all have a form: it cannot fail.
    postcard::to_extend(packets, room).unwrap_or_default()
}

/// The packets that the bytes stand for; none if they make no sense.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<Packet>> {
    match postcard::take_from_bytes(bytes) {
        Ok((packets, [])) => Some(packets),
        _ => None,
    }
}
