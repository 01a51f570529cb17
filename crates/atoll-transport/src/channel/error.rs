//! Why a channel or a wait set cannot be made, attached to or connected; errors of sending and receiving are beside
//! those.
//!
//! Used by `ring_file.rs`, `set_file.rs`, `pair.rs` and `connect.rs`.

use std::io;

use crate::channel::settings::SettingsError;
use crate::socket::SocketError;

/// Why the memory of a channel or a wait set cannot be made.
#[derive(thiserror::Error, Debug)]
pub enum CreateError {
    /// A setting is out of range.
    #[error("{0}")]
    Settings(#[from] SettingsError),
    /// A wait set must have from 1 to 262,144 seats.
    #[error("a wait set of {0} seats is not possible: from 1 to 262144")]
    Seats(u32),
    /// The system refuses something: what, and why.
    #[error("{0}: {1}")]
    Os(&'static str, #[source] io::Error),
}

/// Why memory that was handed over is no channel that this end can attach to.
#[derive(thiserror::Error, Debug)]
pub enum AttachError {
    /// The file's size is not sealed, so its maker could cut it while it is mapped.
    #[error("the file's size is not sealed: it is no channel of atoll's")]
    NotSealed,
    /// The file is no ordinary shared memory.
    #[error("the file is no ordinary shared memory: it is no channel of atoll's")]
    NotMemory,
    /// The file is shorter than what it must hold.
    #[error("the file has {bytes} bytes and must have {least}: it is cut off")]
    Truncated {
        /// It has.
        bytes: usize,
        /// It must have at least.
        least: usize,
    },
    /// The file does not begin as a ring or a wait set does.
    #[error("the file is no channel of atoll's: it begins with {0:#018x}")]
    NotAChannel(u64),
    /// Made by an older or newer atoll.
    #[error("the channel has format {theirs}, this atoll speaks {ours}")]
    Version {
        /// The format of what was handed over.
        theirs: u32,
        /// This end's.
        ours: u32,
    },
    /// The two ends chose different settings.
    #[error("the ends disagree on {what}: the peer has {theirs}, this end {ours}")]
    Settings {
        /// Which one.
        what: &'static str,
        /// The peer's value.
        theirs: u64,
        /// This end's.
        ours: u64,
    },
    /// Somebody attached as this end before.
    #[error("this end of the channel is taken")]
    Taken,
    /// The peer's wait set has no such seat.
    #[error("the peer's wait set has {seats} seats, and the channel is to have number {seat}")]
    Seat {
        /// The seat.
        seat: u32,
        /// How many there are.
        seats: u32,
    },
    /// The descriptor that should stand for the peer's process does not.
    #[error("the descriptor of the peer's process is none of a process")]
    NotAProcess,
    /// The system refuses something: what, and why.
    #[error("{0}: {1}")]
    Os(&'static str, #[source] io::Error),
}

/// Why two ends did not come together over a socket.
#[derive(thiserror::Error, Debug)]
pub enum ConnectError {
    /// This end's part of the memory cannot be made.
    #[error("{0}")]
    Create(#[from] CreateError),
    /// What the peer handed over is not usable.
    #[error("{0}")]
    Attach(#[from] AttachError),
    /// What came over the socket is no greeting of atoll's.
    #[error("the peer does not speak atoll's channels: its greeting is {0}")]
    Greeting(&'static str),
    /// The peer closed the socket before the channel stood.
    #[error("the peer closed the connection before the channel stood")]
    Closed,
    /// The peer cannot use what this end handed over; it knows why.
    #[error("the peer refused the channel")]
    Refused,
    /// The peer did not answer in time.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// The system refuses something: what, and why.
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
