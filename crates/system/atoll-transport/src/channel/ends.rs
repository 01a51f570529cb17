//! A channel as one process holds it: a sender and a receiver, each attached to a ring.
//!
//! Made by `pair.rs` (descriptors inherited over a fork) and `connect.rs` (handed over through a socket).

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::channel::error::AttachError;
use crate::channel::peer::Peer;
use crate::channel::receiver::{Message, Receiver, RecvError};
use crate::channel::ring_file;
use crate::channel::sender::{Doorbell, SendError, Sender};
use crate::channel::set_file;
use crate::channel::settings::Settings;
use crate::channel::wait_set::Seat;
use crate::ring::consumer::Consumer;
use crate::ring::producer::Producer;

/// One end of a channel. Its halves may go to different threads.
pub struct Channel {
    /// Sends to the peer.
    pub sender: Sender,
    /// Receives from the peer.
    pub receiver: Receiver,
}

/// The files and processes that an end attaches to.
pub(crate) struct Parts<'a> {
    pub(crate) outgoing: BorrowedFd<'a>,
    pub(crate) incoming: BorrowedFd<'a>,
    /// The peer's wait set and the channel's seat there.
    pub(crate) peers_set: Option<(BorrowedFd<'a>, u32)>,
    /// This end's seat in a wait set.
    pub(crate) seat: Option<Seat>,
    pub(crate) peer: Peer,
}

impl Channel {
    /// Checks all parts, then takes this end of both rings.
    pub(crate) fn attach(parts: Parts<'_>, settings: &Settings) -> Result<Channel, AttachError> {
        let outgoing = ring_file::attach(parts.outgoing.as_fd(), settings)?;
        let incoming = ring_file::attach(parts.incoming.as_fd(), settings)?;
        let doorbell = match parts.peers_set {
            None => None,
            Some((file, seat)) => {
                let set = set_file::attach(file)?;
                if seat >= set.seats() {
                    return Err(AttachError::Seat { seat, seats: set.seats() });
                }
                Some(Doorbell { set, seat })
            }
        };
        ring_file::take(&outgoing.control().producer)?;
        ring_file::take(&incoming.control().consumer)?;
        let producer = Producer::new(outgoing);
        let consumer = Consumer::new(incoming);
        Ok(Channel {
            sender: Sender::new(producer, doorbell, parts.peer.clone(), settings),
            receiver: Receiver::new(consumer, parts.peer, settings, parts.seat),
        })
    }

    /// Sends a message as [`Sender::send`] does.
    #[inline]
    pub fn send(&mut self, kind: u16, bytes: &[u8], timeout: Option<Duration>) -> Result<(), SendError> {
        self.sender.send(kind, bytes, timeout)
    }

    /// Receives a message as [`Receiver::recv`] does.
    #[inline]
    pub fn recv(&mut self, message: &mut Message, timeout: Option<Duration>) -> Result<(), RecvError> {
        self.receiver.recv(message, timeout)
    }
}
