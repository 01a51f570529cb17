//! The errors of making, attaching to and connecting channels and wait sets; those of sending and receiving are defined beside
//! these calls.
//!
//! Used by `ring_file.rs`, `set_file.rs`, `pair.rs` and `connect.rs`.

use std::io;

use crate::channel::settings::SettingsError;
use crate::socket::SocketError;

/// The reasons why the memory of a channel or a wait set cannot be made.
#[derive(thiserror::Error, Debug)]
pub enum CreateError {
    /// A setting is out of range.
    #[error("{0}")]
    Settings(#[from] SettingsError),
    /// The number of seats is not from 1 to 262,144.
    #[error("a wait set of {0} seats is not possible: from 1 to 262144")]
    Seats(u32),
    /// The system refuses a call; the text names it.
    #[error("{0}: {1}")]
    Os(&'static str, #[source] io::Error),
}

/// The reasons why this end cannot attach to memory that it was handed.
#[derive(thiserror::Error, Debug)]
pub enum AttachError {
    /// The file's size is not sealed, so its maker could truncate it while it is mapped.
    #[error("the file is not a channel of atoll's: its size is not sealed")]
    NotSealed,
    /// The file is no ordinary shared memory.
    #[error("the file is not a channel of atoll's: it is not ordinary shared memory")]
    NotMemory,
    /// The file is shorter than a ring or a wait set of its settings.
    #[error("the file is truncated: it has {bytes} bytes and must have {least}")]
    Truncated {
        /// The file's size in bytes.
        bytes: usize,
        /// The least size in bytes.
        least: usize,
    },
    /// The file does not begin with the magic number of a ring or a wait set.
    #[error("the file is not a channel of atoll's: it begins with {0:#018x}")]
    NotAChannel(u64),
    /// An older or newer atoll made the channel.
    #[error("the channel has format {theirs}, this atoll speaks {ours}")]
    Version {
        /// The format of the memory that was handed over.
        theirs: u32,
        /// This end's format.
        ours: u32,
    },
    /// The two ends chose different settings.
    #[error("the ends disagree on {what}: the peer has {theirs}, this end {ours}")]
    Settings {
        /// The name of the setting.
        what: &'static str,
        /// The peer's value.
        theirs: u64,
        /// This end's value.
        ours: u64,
    },
    /// A process attached as this end before.
    #[error("this end of the channel is taken")]
    Taken,
    /// The peer's wait set has no such seat.
    #[error("the peer's wait set has {seats} seats, and the channel is to have number {seat}")]
    Seat {
        /// The seat's number.
        seat: u32,
        /// The number of seats.
        seats: u32,
    },
    /// The descriptor that should be the peer process's is not that of a process.
    #[error("the descriptor of the peer's process is not that of a process")]
    NotAProcess,
    /// The system refuses a call; the text names it.
    #[error("{0}: {1}")]
    Os(&'static str, #[source] io::Error),
}

/// The reasons why two ends did not connect over a socket.
#[derive(thiserror::Error, Debug)]
pub enum ConnectError {
    /// This end's part of the memory cannot be made.
    #[error("{0}")]
    Create(#[from] CreateError),
    /// The memory that the peer handed over is not usable.
    #[error("{0}")]
    Attach(#[from] AttachError),
    /// The bytes that came over the socket are not a greeting of atoll's; the text tells why.
    #[error("the peer does not speak atoll's channels: its greeting is {0}")]
    Greeting(&'static str),
    /// The peer closed the socket before the channel was made.
    #[error("the peer closed the connection before the channel was made")]
    Closed,
    /// The peer cannot use what this end handed over; only the peer knows why.
    #[error("the peer refused the channel")]
    Refused,
    /// The peer did not answer in time.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// The system refuses a call; the text names it.
    #[error("{0}: {1}")]
    Os(&'static str, #[source] io::Error),
}

impl From<SocketError> for ConnectError {
    fn from(why: SocketError) -> ConnectError {
        match why {
            SocketError::Closed => ConnectError::Closed,
            SocketError::TimedOut => ConnectError::TimedOut,
            SocketError::Os(what, why) => ConnectError::Os(what, why),
        }
    }
}
