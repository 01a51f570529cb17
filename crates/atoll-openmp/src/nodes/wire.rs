//! What agents of different nodes say to each other, and its bytes.
//!
//! `agent` sends and receives; the coherence protocol's own messages are one kind among them.

use atoll_coherence::agent::Message;
use serde::{Deserialize, Serialize};

use super::chunks::Wish;
use super::files::Mapped;
use super::identity::Identity;
use super::measure::{Counted, Told};
use super::races::Found;
use super::region::Order;
use crate::wrap::process::Numbers;

/// A page's content.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(super) enum Content {
    /// All zeros.
    Zeros,
    /// These bytes, as many as a page has.
    Bytes(#[serde(with = "serde_bytes")] Vec<u8>),
    /// It is to be read where it lies, in the sender's files.
    There,
}

/// What changed in a page: see `atoll_coherence::diff`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(super) struct Diff(#[serde(with = "serde_bytes")] pub(super) Vec<u8>);

/// A message between agents.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Packet {
    /// What the sender is, before anything else; and its process.
    Hello(Identity, Numbers),
    /// The sender's files of pages: its process's descriptors.
    Files(Numbers, Vec<i32>),
    /// The sender can read the receiver's.
    Reads,
    /// The coherence protocol's.
    Coherence(Message<Content, Diff>),
    /// From the origin: what has changed of the main thread's variables, by address.
    Variables(Vec<(u64, Diff)>),
    /// From the origin: a region begins.
    Region(Order),
    /// From the origin: the value that `copyprivate` gives to all.
    Publish(u64),
    /// To the origin: a worker wants a lock; whether it waits for it.
    Lock { name: u64, by: u32, wait: bool },
    /// From the origin: whether the worker has it.
    Locked { by: u32, taken: bool },
    /// To the origin.
    Unlock(u64),
    /// To the origin: a worker is its node's first at the `single` construct of this number; the answer is [`Self::Locked`].
    Single { number: u64, by: u32 },
    /// A worker touched this address, where the receiver may have a file mapped.
    Touched { at: u64, by: u32 },
    /// What it has mapped there.
    Mapped { by: u32, found: Option<Mapped> },
    /// The sender has unmapped this: the receiver is to do so, too.
    Forget { at: u64, len: u64, by: u32 },
    /// It has.
    Forgotten { by: u32 },
    /// To the origin: a question about pools.
    Pool { words: [u64; 3], by: u32 },
    /// To the origin: a question about who sleeps on a word.
    Futex { words: [u64; 3], by: u32 },
    /// From the origin: the answer to either.
    Answer { by: u32, answer: u64 },
    /// A worker calls a function on the receiver's node.
    Call {
        by: u32,
        words: [u64; 4],
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// What it gave back.
    Called {
        by: u32,
        result: i64,
        errno: i32,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// To the origin: a worker wants so many threads of at most so many, and gives some back.
    Threads { wanted: u32, limit: u32, back: u32, by: u32 },
    /// From the origin: it may have so many.
    Granted { by: u32, threads: u32 },
    /// To the origin: a node wants iterations of a loop.
    Chunk { share: u64, wish: Wish, by: u32 },
    /// From the origin: they are these.
    Chunks { by: u32, from: u64, to: u64 },
    /// Blocks of the receiver's heap that are free.
    Free(u64),
    /// To the origin: words that several nodes wrote.
    Races(Vec<Found>),
    /// To the origin: the twins of the region of this function take too much of near memory.
    Crowded(u64),
    /// To the origin, before a region's last barrier: what the node's part of it took.
    Part(Told),
    /// To the origin, now and then: what the node counted, by `atoll_memory::control::NodeCount`.
    Counts(Vec<u64>),
    /// To the origin, at the end: the same, and what it counted of each region.
    Goodbye(Vec<u64>, Vec<Counted>),
    /// From the origin: what the program has handle signals since: the signal, and the kernel's structure.
    Actions(Vec<(i32, [u64; 4])>),
    /// To the origin: a signal came for the program; whether a worker of it sent it.
    Signal { signal: i32, raised: bool },
    /// From the origin: the program has ended.
    Exit(i32),
    /// To the origin: a worker ends the program; whether what it registered for its end is to run.
    Leave { status: i32, handlers: bool },
}

impl Packet {
    /// May a worker that steps the agent do what it says? What ends a process is the agent's thread's.
    pub(super) fn is_for_anybody(&self) -> bool {
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

/// The bytes of packets that travel together.
pub(super) fn encode(packets: &[Packet]) -> Vec<u8> {
    // Into memory, of types that all have a form: it cannot fail.
    postcard::to_stdvec(packets).unwrap_or_default()
}

/// What the bytes mean; none if nothing.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<Packet>> {
    match postcard::take_from_bytes(bytes) {
        Ok((packets, [])) => Some(packets),
        _ => None,
    }
}
