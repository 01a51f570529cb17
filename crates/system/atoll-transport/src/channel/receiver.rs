//! The receiving end of a channel: makes messages of lines, believing nothing that the peer claims.
//!
//! Stands on `consumer.rs`; the other end is `sender.rs`. No length is announced: lines are appended until one is marked as the
//! last, and never beyond `Settings::longest`.
//!
//! Source: the barrelfish paper, sections 3.4 and 5.5.

use std::time::Duration;

use rustix::process::{Pid, getpid};

use crate::channel::peer::{Peer, SLICE, Watch};
use crate::channel::settings::Settings;
use crate::channel::wait_set::Seat;
use crate::clock::Deadline;
use crate::ring::consumer::{BadHeader, Consumer};
use crate::ring::line::{FIRST, LAST};
use crate::ring::turns::Watched;

/// The reasons why nothing was received. After any but `TimedOut`, nothing will be received any more.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecvError {
    /// No whole message came in time.
    #[error("no message came in time")]
    TimedOut,
    /// The sender was dropped, and everything it sent was received.
    #[error("the sender is closed")]
    Closed,
    /// The peer's process has ended, and everything it sent whole was received.
    #[error("the peer's process has ended")]
    PeerDied,
    /// The peer sent more than the channel's settings allow.
    #[error("the peer broke the channel: its message is longer than {longest} bytes")]
    TooLong {
        /// The greatest number of bytes of a message.
        longest: usize,
    },
    /// The peer wrote to the ring what no sender writes.
    #[error("the peer broke the channel: a line that no sender writes")]
    Malformed,
}

/// A received message. Receiving into the same one repeatedly allocates nothing once it has grown.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Message {
    /// The kind that the sender gave.
    pub kind: u16,
    /// The content.
    pub bytes: Vec<u8>,
}

/// The end that receives. Dropping it closes it: the sender then gets `Closed`.
pub struct Receiver {
    consumer: Consumer,
    watch: Watch,
    longest: usize,
    spins: u32,
    /// The kind of the message of which only some lines came yet, if there is one.
    partial: Option<u16>,
    bytes: Vec<u8>,
    ended: Option<RecvError>,
    /// The receiver's place in a wait set, which is free again when the receiver is dropped.
    seat: Option<Seat>,
    /// The process that may close the ring; a child that inherited this value over a fork may not.
    owner: Pid,
}

impl Receiver {
    pub(crate) fn new(consumer: Consumer, peer: Peer, settings: &Settings, seat: Option<Seat>) -> Receiver {
        Receiver {
            consumer,
            watch: Watch::new(peer),
            longest: settings.longest,
            spins: settings.spins,
            partial: None,
            bytes: Vec::new(),
            ended: None,
            seat,
            owner: getpid(),
        }
    }

    /// Receives the next message into `message` if all of it has come; returns whether it did. Never waits.
    #[inline]
    pub fn try_recv(&mut self, message: &mut Message) -> Result<bool, RecvError> {
        if let Some(ended) = self.ended {
            return Err(ended);
        }
        // A message of one line is read directly into its place.
        if self.partial.is_none() {
            message.bytes.clear();
            match self.consumer.take(&mut message.bytes) {
                Ok(Some(header)) if header.flags == FIRST | LAST => {
                    message.kind = header.kind;
                    return Ok(true);
                }
                Ok(Some(header)) if header.flags == FIRST => {
                    self.partial = Some(header.kind);
                    std::mem::swap(&mut self.bytes, &mut message.bytes);
                }
                Ok(None) => return self.nothing(),
                Ok(Some(_)) | Err(BadHeader) => return Err(self.end(RecvError::Malformed)),
            }
        }
        self.reassemble(message)
    }

    /// Receives the next message into `message`. Waits for it for at most `timeout` (`None`: for ever, or until the peer dies
    /// or closes).
    #[inline]
    pub fn recv(&mut self, message: &mut Message, timeout: Option<Duration>) -> Result<(), RecvError> {
        let mut deadline = Deadline::new(timeout);
        loop {
            if self.try_recv(message)? {
                return Ok(());
            }
            self.wait(&mut deadline)?;
        }
    }

    /// Whether `try_recv` would return a message, part of one, or an error.
    pub fn ready(&self) -> bool {
        self.ended.is_some()
            || self.consumer.readable()
            || self.consumer.producer_closed()
            || self.watch.known_dead()
    }

    /// The process at the other end.
    pub fn peer(&self) -> &Peer {
        self.watch.peer()
    }

    /// The receiver's place in a wait set, if it was made with one.
    pub(crate) fn seat(&self) -> Option<&Seat> {
        self.seat.as_ref()
    }

    /// Notes that the wait set found the peer dead.
    pub(crate) fn note_death(&mut self) {
        self.watch.note_death();
    }

    #[cold]
    fn end(&mut self, why: RecvError) -> RecvError {
        self.ended = Some(why);
        // The lines of a message that will never be whole.
        self.bytes = Vec::new();
        why
    }

    /// Continues a message of many lines, for at most one lap of the ring, so that a peer that never ends its message does not
    /// hold this call.
    fn reassemble(&mut self, message: &mut Message) -> Result<bool, RecvError> {
        for _ in 0..self.consumer.ring().count() {
            let before = self.bytes.len();
            let header = match self.consumer.take(&mut self.bytes) {
                Ok(Some(header)) => header,
                Ok(None) => return self.nothing(),
                Err(BadHeader) => return Err(self.end(RecvError::Malformed)),
            };
            if header.flags & FIRST != 0 {
                // The sender gave up the message before this one.
                self.bytes.drain(..before);
                self.partial = Some(header.kind);
            }
            if self.partial != Some(header.kind) {
                return Err(self.end(RecvError::Malformed));
            }
            if self.bytes.len() > self.longest {
                return Err(self.end(RecvError::TooLong { longest: self.longest }));
            }
            if header.flags & LAST != 0 {
                self.partial = None;
                message.kind = header.kind;
                std::mem::swap(&mut self.bytes, &mut message.bytes);
                self.bytes.clear();
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns false if no line has come yet, or the error if none will.
    #[inline]
    fn nothing(&mut self) -> Result<bool, RecvError> {
        let why = if self.consumer.producer_closed() {
            RecvError::Closed
        } else if self.watch.died() {
            RecvError::PeerDied
        } else {
            return Ok(false);
        };
        // Lines that the peer published before it closed or died are seen now, if they were not a moment ago.
        if self.consumer.readable() { Ok(false) } else { Err(self.end(why)) }
    }

    fn wait(&mut self, deadline: &mut Deadline) -> Result<(), RecvError> {
        let (consumer, watch) = (&self.consumer, &mut self.watch);
        let spins = if deadline.none_left() { 0 } else { self.spins };
        let waited = consumer.ring().control().consumer.bell.wait(
            spins,
            || consumer.readable() || consumer.producer_closed(),
            // If it is dead, `nothing` decides whether there is something left to read.
            || if watch.died() { Err(None) } else { deadline.left(SLICE).ok_or(Some(RecvError::TimedOut)) },
        );
        match waited {
            // A peer that always sends another line, but never a message's last, cannot exceed the deadline either.
            Ok(()) if self.partial.is_some() => match deadline.left(SLICE) {
                Some(_) => Ok(()),
                None => Err(RecvError::TimedOut),
            },
            Ok(()) | Err(None) => Ok(()),
            Err(Some(timed_out)) => Err(timed_out),
        }
    }
}

impl Watched for Receiver {
    fn ready(&self) -> bool {
        Receiver::ready(self)
    }

    fn arm(&self) -> bool {
        !self.ready() && self.consumer.arm()
    }

    fn disarm(&self) {
        self.consumer.disarm();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if getpid() == self.owner {
            self.consumer.close();
        }
    }
}
