//! The errors of pools: of making them, of sending buffers, and of peers that break the protocol.

use std::io;

use crate::bulk::error::MemoryError;
use crate::bulk::pool::Buffer;
use atoll_transport::SendError;
use atoll_transport::socket::SocketError;

/// The reasons why a pool cannot be made, attached to or handed over.
#[derive(thiserror::Error, Debug)]
pub enum PoolError {
    /// The number of buffers is out of range.
    #[error("a pool of {0} buffers is not possible: from 1 to 65536")]
    Count(u32),
    /// The size of the buffers is out of range, or not a power of two.
    #[error("buffers of {0} bytes are not possible: a power of two from 4096 to 2^30")]
    Bytes(u64),
    /// The memory cannot be made or mapped.
    #[error("{0}")]
    Memory(#[from] MemoryError),
    /// The file does not begin as a pool does.
    #[error("the file is not a pool of atoll's: it begins with {0:#018x}")]
    NotAPool(u64),
    /// An older or newer atoll made the pool.
    #[error("the pool has format {theirs}, this atoll speaks {ours}")]
    Version {
        /// The format of the pool.
        theirs: u32,
        /// The format of this end.
        ours: u32,
    },
    /// The file is shorter than a pool of its size.
    #[error("the pool's file is truncated: it has {bytes} bytes and must have {least}")]
    Truncated {
        /// The file's size in bytes.
        bytes: u64,
        /// The least size in bytes.
        least: u64,
    },
    /// A pool has one link to its owner, and none at the owner.
    #[error("the pool had its link to its owner already (attach to it anew), or this process is the owner")]
    HomeTaken,
    /// The bytes that came over the socket are no pool.
    #[error("the peer did not hand over a pool")]
    NothingHandedOver,
    /// The peer did not hand a pool over in time.
    #[error("the peer did not hand over a pool in time")]
    TimedOut,
    /// The system refuses a call; the text names it.
    #[error("{0}: {1}")]
    Os(&'static str, #[source] io::Error),
}

impl From<SocketError> for PoolError {
    fn from(why: SocketError) -> PoolError {
        match why {
            SocketError::Closed => PoolError::NothingHandedOver,
            SocketError::TimedOut => PoolError::TimedOut,
            SocketError::Os(what, why) => PoolError::Os(what, why),
        }
    }
}

/// The ways in which a peer broke the protocol; nothing has changed by its message. It is best to drop the channel to such a
/// peer.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolError {
    /// The message is not one of a pool.
    #[error("a message of {0} bytes is not one that a pool's peer sends")]
    Malformed(usize),
    /// There is no such buffer.
    #[error("the peer sent buffer {number}, and the pool has {count}")]
    NoSuchBuffer {
        /// The number in the message.
        number: u32,
        /// The number of buffers.
        count: u32,
    },
    /// The peer does not hold the buffer.
    #[error("the peer sent buffer {0}, which it does not hold")]
    NotTheirs(u32),
    /// More bytes are declared as used than a buffer has.
    #[error("the peer sent a buffer with {used} bytes used of {bytes}")]
    TooLong {
        /// The bytes declared as used.
        used: u64,
        /// The size of a buffer.
        bytes: u64,
    },
}

/// A buffer that was not sent, and is still here.
#[derive(thiserror::Error, Debug)]
#[error("{why}")]
pub struct Unsent {
    /// The buffer.
    pub buffer: Buffer,
    /// The reason.
    pub why: UnsentReason,
}

/// The reasons why a buffer was not sent.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnsentReason {
    /// The buffer is of another pool than the link.
    #[error("the buffer is of another pool than the link")]
    OtherPool,
    /// A transfer uses the buffer, or a clone of its memory is held.
    #[error("a transfer of the buffer is not finished, or its memory is held elsewhere")]
    InUse,
    /// More bytes are declared as used than the buffer has.
    #[error("{used} bytes cannot be used of a buffer of {bytes}")]
    TooLong {
        /// The bytes declared as used.
        used: u64,
        /// The buffer's size.
        bytes: u64,
    },
    /// The channel did not take the message.
    #[error("{0}")]
    Channel(#[from] SendError),
}
