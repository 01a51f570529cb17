//! The reasons why a file cannot be read as a trace.
//!
//! These are all errors that [`reader`](super::reader) and [`frame`](super::frame) can find, each with the byte where it is.

use std::io;

use super::frame::VERSION;

/// The reason why a file cannot be read as a trace.
#[derive(thiserror::Error, Debug)]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("{0} cannot be opened: {1}")]
    Open(String, io::Error),
    /// The file is not a trace.
    #[error("this is not a trace of atoll: it does not start with ATOLLTRC")]
    NotATrace,
    /// The file was written by a later atoll.
    #[error("the trace has format {found}, this atoll reads up to {VERSION}: read it with a later atoll")]
    LaterVersion {
        /// The file's format.
        found: u32,
    },
    /// The file ends too early.
    #[error("the trace is cut off at byte {offset}: {missing}")]
    Cut {
        /// Where the file ends.
        offset: u64,
        /// The part that should have followed.
        missing: &'static str,
    },
    /// A checksum, a length or an event is wrong.
    #[error("the trace is damaged at byte {offset}: {what}")]
    Damaged {
        /// Where the damaged part starts.
        offset: u64,
        /// The kind of damage.
        what: &'static str,
    },
    /// The file could not be read.
    #[error("the trace cannot be read at byte {offset}: {error}")]
    Io {
        /// The offset that reading reached.
        offset: u64,
        /// The system's error.
        error: io::Error,
    },
}

impl TraceError {
    /// Returns the byte of the file that the error is about; `None` where there is none.
    pub fn offset(&self) -> Option<u64> {
        match *self {
            Self::Cut { offset, .. } | Self::Damaged { offset, .. } | Self::Io { offset, .. } => Some(offset),
            Self::NotATrace => Some(0),
            Self::LaterVersion { .. } => Some(8),
            Self::Open(..) => None,
        }
    }
}
