//! The receiving end of a channel: makes messages of lines, believing nothing that the peer claims.
//!
//! Stands on `consumer.rs`; the other end is `sender.rs`. No length is announced: lines are appended until one says
//! that it is the last, and never beyond `Settings::longest`.
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

/// Why nothing was received. After anything but `TimedOut` nothing will be any more.
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
        /// Most bytes of a message.
        longest: usize,
    },
    /// The peer wrote into the ring what no sender writes.
    #[error("the peer broke the channel: a line that no sender writes")]
    Malformed,
}

/// A received message. Receiving into the same one again and again allocates nothing once it has grown.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Message {
    /// What the sender gave as its kind.
    pub kind: u16,
    /// What it says.
    pub bytes: Vec<u8>,
}

/// The end that receives. Dropped, it closes: the sender gets `Closed`.
pub struct Receiver {
    consumer: Consumer,
    watch: Watch,
    longest: usize,
    spins: u32,
    /// The message of which not all lines came yet, if there is one.
    partial: Option<u16>,
    bytes: Vec<u8>,
    ended: Option<RecvError>,
    /// Its place in a wait set, free again when this is dropped.
    seat: Option<Seat>,
    /// Who may close the ring: a child that inherited this value over a fork may not.
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

    /// Receives the next message into `message` if all of it is there; false if not. Never waits.
    #[inline]
    pub fn try_recv(&mut self, message: &mut Message) -> Result<bool, RecvError> {
        if let Some(ended) = self.ended {
            return Err(ended);
        }
        // A message of one line goes where it belongs at once.
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

    /// Receives the next message into `message`. Waits for it at most `timeout` (none: for ever, or until the peer
    /// dies or closes).
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

    /// `try_recv` would return something: a message, part of one, or an error.
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

    /// Its place in a wait set, if it was made with one.
    pub(crate) fn seat(&self) -> Option<&Seat> {
        self.seat.as_ref()
    }

    /// The peer was seen dead by the wait set.
    pub(crate) fn note_death(&mut self) {
        self.watch.note_death();
    }

    #[cold]
    fn end(&mut self, why: RecvError) -> RecvError {
        self.ended = Some(why);
        // What came of a message that will never be whole.
        self.bytes = Vec::new();
        why
    }

    /// Goes on with a message of many lines, for at most one lap: a peer that never ends it does not hold this call.
    fn reassemble(&mut self, message: &mut Message) -> Result<bool, RecvError> {
        for _ in 0..self.consumer.ring().count() {
            let before = self.bytes.len();
            let header = match self.consumer.take(&mut self.bytes) {
                Ok(Some(header)) => header,
                Ok(None) => return self.nothing(),
                Err(BadHeader) => return Err(self.end(RecvError::Malformed)),
            };
            if header.flags & FIRST != 0 {
                // The sender gave up the message before.
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

    /// There is no line: because none came yet, or because none will.
    #[inline]
    fn nothing(&mut self) -> Result<bool, RecvError> {
        let why = if self.consumer.producer_closed() {
            RecvError::Closed
        } else if self.watch.died() {
            RecvError::PeerDied
        } else {
            return Ok(false);
        };
        // What it published before it closed or died is seen now, if it was not a moment ago.
        if self.consumer.readable() { Ok(false) } else { Err(self.end(why)) }
    }

    fn wait(&mut self, deadline: &mut Deadline) -> Result<(), RecvError> {
        let (consumer, watch) = (&self.consumer, &mut self.watch);
        let spins = if deadline.none_left() { 0 } else { self.spins };
        let waited = consumer.ring().control().consumer.bell.wait(
            spins,
            || consumer.readable() || consumer.producer_closed(),
            // Dead: `nothing` tells that from what is still to be read.
            || if watch.died() { Err(None) } else { deadline.left(SLICE).ok_or(Some(RecvError::TimedOut)) },
        );
        match waited {
            // A peer that always has another line, but never a message's last, does not outlive the deadline either.
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
