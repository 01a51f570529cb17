//! Why a pool cannot be had, a buffer is not sent, and what a peer did wrong.

use std::io;

use crate::bulk::error::MemoryError;
use crate::bulk::pool::Buffer;
use atoll_transport::SendError;
use atoll_transport::socket::SocketError;

/// Why a pool cannot be made, attached to or handed over.
#[derive(thiserror::Error, Debug)]
pub enum PoolError {
    /// The number of buffers is out of range.
    #[error("a pool of {0} buffers is not possible: from 1 to 65536")]
    Count(u32),
    /// The size of the buffers is none that they can have.
    #[error("buffers of {0} bytes are not possible: a power of two from 4096 to 2^30")]
    Bytes(u64),
    /// The memory cannot be had.
    #[error("{0}")]
    Memory(#[from] MemoryError),
    /// The file is something else.
    #[error("the file is no pool of atoll's: it begins with {0:#018x}")]
    NotAPool(u64),
    /// Made by an older or newer atoll.
    #[error("the pool has format {theirs}, this atoll speaks {ours}")]
    Version {
        /// The pool's.
        theirs: u32,
        /// This end's.
        ours: u32,
    },
    /// The file is shorter than what it must hold.
    #[error("the pool's file has {bytes} bytes and must have {least}: it is cut off")]
    Truncated {
        /// It has.
        bytes: u64,
        /// It must have.
        least: u64,
    },
    /// A pool has one way to its owner, and the owner none.
    #[error("the pool had its link to its owner already (attach to it anew), or this process is the owner")]
    HomeTaken,
    /// What came over the socket is no pool.
    #[error("the peer did not hand over a pool")]
    NothingHandedOver,
    /// The peer did not hand one over in time.
    #[error("the peer did not hand over a pool in time")]
    TimedOut,
    /// The system refuses something: what, and why.
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

/// What a peer sent against the protocol; nothing has changed by it. The channel to such a peer is best
/// dropped.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolError {
    /// No message of a pool's.
    #[error("a message of {0} bytes is none that a pool's peer sends")]
    Malformed(usize),
    /// There is no such buffer.
    #[error("the peer sent buffer {number}, and the pool has {count}")]
    NoSuchBuffer {
        /// Its number.
        number: u32,
        /// How many there are.
        count: u32,
    },
    /// The peer does not hold it.
    #[error("the peer sent buffer {0}, which it does not hold")]
    NotTheirs(u32),
    /// More bytes are said to be used than a buffer has.
    #[error("the peer sent a buffer with {used} bytes used of {bytes}")]
    TooLong {
        /// Said to be used.
        used: u64,
        /// A buffer's size.
        bytes: u64,
    },
}

/// A buffer that was not sent, and is still here.
#[derive(thiserror::Error, Debug)]
#[error("{why}")]
pub struct Unsent {
    /// The buffer.
    pub buffer: Buffer,
    /// Why.
    pub why: Why,
}

/// Why a buffer was not sent.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// It is of another pool than the link.
    #[error("the buffer is of another pool than the link")]
    OtherPool,
    /// A transfer reads or writes it, or a clone of its memory is held.
    #[error("a transfer of the buffer is not finished, or its memory is held elsewhere")]
    InUse,
    /// More bytes are said to be used than it has.
    #[error("{used} bytes cannot be used of a buffer of {bytes}")]
    TooLong {
        /// Said to be used.
        used: u64,
        /// Its size.
        bytes: u64,
    },
    /// The channel did not take the message.
    #[error("{0}")]
    Channel(#[from] SendError),
}
