//! What can go wrong with a transport once it stands.
//!
//! Errors of joining are beside what joins: `shm/`, `ucx/`.

use super::{Buffer, RESERVED_KINDS};
use crate::Node;

/// Why something was not done.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum TransportError {
    /// There is no such node, or it is this one.
    #[error("{node} is not one of the other nodes: the job has {nodes}")]
    NoSuchNode {
        /// Which.
        node: Node,
        /// How many there are.
        nodes: u32,
    },
    /// The node is gone.
    #[error("{0} is lost")]
    Lost(Node),
    /// The node has not proven the job's secret (yet).
    #[error("{0} has not proven that it belongs to the job")]
    NotProven(Node),
    /// The kind of a message is one of those that layers keep to themselves.
    #[error("{0} is no kind of a message: kinds are below {RESERVED_KINDS}")]
    Kind(u16),
    /// The message is longer than the transport allows.
    #[error("the message has {length} bytes, and the transport's longest has {longest}")]
    TooLong {
        /// Its bytes.
        length: usize,
        /// Most bytes of a message.
        longest: usize,
    },
    /// There is no room now for another message or operation to this node: to be tried again after some progress.
    #[error("too much is under way to {0}: try again after some progress")]
    Full(Node),
    /// What was asked for lies outside of the other node's memory.
    #[error("bytes {offset} to {offset} + {length} are outside of the {bytes} bytes of {owner}'s memory")]
    OutOfRange {
        /// Whose memory.
        owner: Node,
        /// Where in it.
        offset: u64,
        /// How much.
        length: u64,
        /// How much there is.
        bytes: u64,
    },
    /// The remote memory was detached, or another transport gave it out.
    #[error("this transport knows no such memory of {0}: it was detached, or attached by another transport")]
    NotAttached(Node),
    /// A key that cannot be attached to.
    #[error("the key of {owner}'s memory is not usable: {why}")]
    Key {
        /// Whose it should be.
        owner: Node,
        /// What is wrong.
        why: KeyError,
    },
    /// The operation was given up as the memory could not be reached.
    #[error("{what} failed: {why}")]
    Failed {
        /// Which operation.
        what: &'static str,
        /// In the words of the system or of UCX.
        why: String,
    },
}

/// Why the bytes of a key are not usable.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum KeyError {
    /// Too short for what they should hold.
    #[error("it is cut off")]
    Truncated,
    /// Longer than what it says, or than any key.
    #[error("it is too long")]
    TooLong,
    /// Not a key of this version of atoll, or damaged.
    #[error("it is damaged, or no key of this version")]
    Damaged,
    /// Another transport's.
    #[error("it is the key of another kind of transport")]
    OtherTransport,
    /// The memory of another node.
    #[error("it is the memory of {0}")]
    OtherNode(Node),
    /// Of another run of that node.
    #[error("it comes from another run of the node")]
    OtherRun,
    /// The memory is not there, or not what the key says.
    #[error("the memory cannot be reached: {0}")]
    Unreachable(String),
}

/// Why a node is lost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LostWhy {
    /// It closed its transport, having sent everything.
    Closed,
    /// Its process has ended, or nothing comes through any more; in the words of the system or of UCX.
    Died(String),
    /// It did not know the job's secret.
    WrongSecret,
    /// It broke the protocol: what it did.
    Broken(&'static str),
    /// This node took it for lost.
    Cut,
    /// It took this node for lost.
    CutByPeer,
}

impl std::fmt::Display for LostWhy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LostWhy::Closed => write!(f, "it has closed"),
            LostWhy::Died(why) => write!(f, "it has died or cannot be reached: {why}"),
            LostWhy::WrongSecret => write!(f, "it does not know the job's secret"),
            LostWhy::Broken(what) => write!(f, "it broke the protocol: {what}"),
            LostWhy::Cut => write!(f, "this node cut the connection"),
            LostWhy::CutByPeer => write!(f, "it cut the connection"),
        }
    }
}

/// A put or get that was not started, with its buffer.
#[derive(thiserror::Error, Debug)]
#[error("{why}")]
pub struct Refused {
    /// Why.
    pub why: TransportError,
    /// As it was given.
    pub buffer: Buffer,
}
