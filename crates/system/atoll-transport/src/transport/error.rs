//! The errors of a transport once it has been made.
//!
//! The errors of joining are defined in `shm/` and `ucx/`.

use super::{Buffer, RESERVED_KINDS};
use crate::Node;

/// The reasons why an operation was not done.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum TransportError {
    /// There is no such node, or it is this one.
    #[error("{node} is not one of the other nodes: the job has {nodes}")]
    NoSuchNode {
        /// The node.
        node: Node,
        /// The number of nodes.
        nodes: u32,
    },
    /// The node is lost.
    #[error("{0} is lost")]
    Lost(Node),
    /// The node has not yet proven that it knows the job's secret.
    #[error("{0} has not proven that it belongs to the job")]
    NotProven(Node),
    /// The kind of a message is one that layers reserve.
    #[error("{0} is not a kind of message: kinds are below {RESERVED_KINDS}")]
    Kind(u16),
    /// The message is longer than the transport allows.
    #[error("the message has {length} bytes, and the transport's longest has {longest}")]
    TooLong {
        /// The message's bytes.
        length: usize,
        /// The greatest number of bytes of a message.
        longest: usize,
    },
    /// There is no room now for another message or operation to this node; it can be tried again after some progress.
    #[error("too much is under way to {0}: try again after some progress")]
    Full(Node),
    /// The range lies outside of the other node's memory.
    #[error("bytes {offset} to {offset} + {length} are outside of the {bytes} bytes of {owner}'s memory")]
    OutOfRange {
        /// The memory's owner.
        owner: Node,
        /// The offset in the memory.
        offset: u64,
        /// The length of the range.
        length: u64,
        /// The memory's bytes.
        bytes: u64,
    },
    /// The remote memory was detached, or another transport gave it out.
    #[error("this transport knows no such memory of {0}: it was detached, or attached by another transport")]
    NotAttached(Node),
    /// The key cannot be attached to.
    #[error("the key of {owner}'s memory is not usable: {why}")]
    Key {
        /// The owner that was given with it.
        owner: Node,
        /// The reason.
        why: KeyError,
    },
    /// The operation was given up because the memory could not be reached.
    #[error("{what} failed: {why}")]
    Failed {
        /// The operation.
        what: &'static str,
        /// The reason, in the words of the system or of UCX.
        why: String,
    },
}

/// The reasons why the bytes of a key are not usable.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum KeyError {
    /// The key is too short for its content.
    #[error("it is cut off")]
    Truncated,
    /// The key is longer than its content, or than any key.
    #[error("it is too long")]
    TooLong,
    /// The key is damaged, or not one of this version of atoll.
    #[error("it is damaged, or no key of this version")]
    Damaged,
    /// The key is one of another kind of transport.
    #[error("it is the key of another kind of transport")]
    OtherTransport,
    /// The key is of another node's memory.
    #[error("it is the memory of {0}")]
    OtherNode(Node),
    /// The key is of another run of that node.
    #[error("it comes from another run of the node")]
    OtherRun,
    /// The memory is not there, or not what the key says.
    #[error("the memory cannot be reached: {0}")]
    Unreachable(String),
}

/// The reasons why a node is lost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LostReason {
    /// The node closed its transport after everything was sent.
    Closed,
    /// The node's process has ended, or nothing comes through any more; the text is the system's or UCX's.
    Died(String),
    /// The node did not know the job's secret.
    WrongSecret,
    /// The node broke the protocol; the text tells how.
    Broken(&'static str),
    /// This node declared the other lost.
    Cut,
    /// The other node declared this one lost.
    CutByPeer,
}

impl std::fmt::Display for LostReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LostReason::Closed => write!(f, "it has closed"),
            LostReason::Died(why) => write!(f, "it has died or cannot be reached: {why}"),
            LostReason::WrongSecret => write!(f, "it does not know the job's secret"),
            LostReason::Broken(what) => write!(f, "it broke the protocol: {what}"),
            LostReason::Cut => write!(f, "this node cut the connection"),
            LostReason::CutByPeer => write!(f, "it cut the connection"),
        }
    }
}

/// A put or get that was not started; returns the buffer.
#[derive(thiserror::Error, Debug)]
#[error("{why}")]
pub struct Refused {
    /// The reason.
    pub why: TransportError,
    /// The buffer, unchanged.
    pub buffer: Buffer,
}
