//! The trait of what carries calls: whole messages in order, each with a kind, between two ends.
//!
//! Implemented here for [`Channel`]; transports over a network implement it, too. The services of `atoll-channel` use it and
//! believe nothing that comes through it.

use std::time::Duration;

use crate::channel::{Channel, Message, RecvError, SendError};

/// The reasons why a message was not sent, or none was received.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum LinkError {
    /// The message was not sent or received in time. The link can still be used.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// The message is longer than the link allows. The link can still be used.
    #[error("the message has {length} bytes, and the link's longest has {longest}")]
    TooLong {
        /// The message's bytes.
        length: usize,
        /// The greatest number of bytes of a message.
        longest: usize,
    },
    /// The peer closed the link.
    #[error("the peer closed the link")]
    Closed,
    /// The peer is dead, or can no longer be reached.
    #[error("the peer has died")]
    Died,
    /// The peer, or the network between, broke the link; the text tells how.
    #[error("the link is broken: {0}")]
    Broken(String),
}

/// One end of a link to one peer.
///
/// Messages arrive whole and in the order in which they were sent. After `Closed`, `Died` and `Broken` none arrives any more.
pub trait Link {
    /// Sends a message. Waits for at most `timeout` (`None`: for ever, or until the peer dies) for room, not for the peer to
    /// receive it.
    fn send(&mut self, kind: u16, bytes: &[u8], timeout: Option<Duration>) -> Result<(), LinkError>;

    /// Receives the next message into `message`. Waits for it for at most `timeout` (`None`: for ever, or until the peer dies
    /// or closes).
    fn recv(&mut self, message: &mut Message, timeout: Option<Duration>) -> Result<(), LinkError>;
}

impl<L: Link + ?Sized> Link for &mut L {
    fn send(&mut self, kind: u16, bytes: &[u8], timeout: Option<Duration>) -> Result<(), LinkError> {
        (**self).send(kind, bytes, timeout)
    }

    fn recv(&mut self, message: &mut Message, timeout: Option<Duration>) -> Result<(), LinkError> {
        (**self).recv(message, timeout)
    }
}

impl<L: Link + ?Sized> Link for Box<L> {
    fn send(&mut self, kind: u16, bytes: &[u8], timeout: Option<Duration>) -> Result<(), LinkError> {
        (**self).send(kind, bytes, timeout)
    }

    fn recv(&mut self, message: &mut Message, timeout: Option<Duration>) -> Result<(), LinkError> {
        (**self).recv(message, timeout)
    }
}

impl Link for Channel {
    #[inline]
    fn send(&mut self, kind: u16, bytes: &[u8], timeout: Option<Duration>) -> Result<(), LinkError> {
        Ok(self.sender.send(kind, bytes, timeout)?)
    }

    #[inline]
    fn recv(&mut self, message: &mut Message, timeout: Option<Duration>) -> Result<(), LinkError> {
        Ok(self.receiver.recv(message, timeout)?)
    }
}

impl From<SendError> for LinkError {
    fn from(why: SendError) -> LinkError {
        match why {
            SendError::TimedOut | SendError::Full => LinkError::TimedOut,
            SendError::TooLong { length, longest } => LinkError::TooLong { length, longest },
            SendError::NeverFits { length, most } => LinkError::TooLong { length, longest: most },
            SendError::Closed => LinkError::Closed,
            SendError::PeerDied => LinkError::Died,
            SendError::Broken => LinkError::Broken(why.to_string()),
        }
    }
}

impl From<RecvError> for LinkError {
    fn from(why: RecvError) -> LinkError {
        match why {
            RecvError::TimedOut => LinkError::TimedOut,
            RecvError::Closed => LinkError::Closed,
            RecvError::PeerDied => LinkError::Died,
            RecvError::TooLong { .. } | RecvError::Malformed => LinkError::Broken(why.to_string()),
        }
    }
}
