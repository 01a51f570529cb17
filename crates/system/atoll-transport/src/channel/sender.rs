//! The sending end of a channel: makes lines of messages, and waits while the ring is full.
//!
//! Stands on `producer.rs`; the other end is `receiver.rs`. A message is delivered whole or not at all: the first line of the
//! next message cancels one that a timeout left half sent, and the receiver drops it.
//!
//! Source: the barrelfish paper, sections 3.4 and 5.5.

use std::time::Duration;

use rustix::process::{Pid, getpid};

use crate::channel::peer::{Peer, SLICE, Watch};
use crate::channel::settings::Settings;
use crate::clock::Deadline;
use crate::ring::line::{FIRST, LAST, PAYLOAD};
use crate::ring::producer::{FalseCredit, Producer};
use crate::ring::ready::ReadySet;

/// The reasons why a message was not sent. After `Closed`, `PeerDied` and `Broken` no other will be sent either.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// The message is longer than the channel's settings allow.
    #[error("the message has {length} bytes, and the channel's longest has {longest}")]
    TooLong {
        /// The message's bytes.
        length: usize,
        /// The greatest number of bytes of a message.
        longest: usize,
    },
    /// The message is longer than the whole ring, so only `send`, which waits, can send it.
    #[error(
        "the message has {length} bytes, and the ring holds {most} at once: it can only be sent by waiting"
    )]
    NeverFits {
        /// The message's bytes.
        length: usize,
        /// The bytes that the ring's lines hold.
        most: usize,
    },
    /// There is no room for the message now. Nothing was sent.
    #[error("the ring is full")]
    Full,
    /// There was no room for the message in time. The receiver will not see it.
    #[error("the ring was full until the time was over")]
    TimedOut,
    /// The receiver was dropped.
    #[error("the receiver is closed")]
    Closed,
    /// The peer's process has ended.
    #[error("the peer's process has ended")]
    PeerDied,
    /// The peer wrote to the ring what no receiver writes.
    #[error("the peer broke the channel: it acknowledged a message that was never sent")]
    Broken,
}

/// The wait set and the seat to notify when there is something to read, if the receiver sits in a wait set.
#[derive(Clone)]
pub(crate) struct Doorbell {
    pub(crate) set: ReadySet,
    pub(crate) seat: u32,
}

/// The end that sends. Dropping it closes it: the receiver gets what was sent, and then `Closed`.
pub struct Sender {
    producer: Producer,
    doorbell: Option<Doorbell>,
    watch: Watch,
    longest: usize,
    spins: u32,
    ended: Option<SendError>,
    /// The process that may close the ring; a child that inherited this value over a fork may not.
    owner: Pid,
}

impl Sender {
    pub(crate) fn new(
        producer: Producer,
        doorbell: Option<Doorbell>,
        peer: Peer,
        settings: &Settings,
    ) -> Sender {
        Sender {
            producer,
            doorbell,
            watch: Watch::new(peer),
            longest: settings.longest,
            spins: settings.spins,
            ended: None,
            owner: getpid(),
        }
    }

    /// Sends a message of at most `Settings::longest` bytes; the meaning of `kind` is up to the program. While the ring is full
    /// it waits for the receiver, for at most `timeout` (`None`: for ever, or until the peer dies).
    ///
    /// A message of 56 bytes or less takes one line and no system call, unless the receiver sleeps.
    #[inline]
    pub fn send(&mut self, kind: u16, bytes: &[u8], timeout: Option<Duration>) -> Result<(), SendError> {
        self.check(bytes)?;
        if bytes.len() <= PAYLOAD && self.room(1)? > 0 {
            self.producer.publish(kind, FIRST | LAST, bytes);
            self.notify();
            return Ok(());
        }
        self.send_slowly(kind, bytes, timeout)
    }

    /// Sends a message if there is room for all of it now. Never waits.
    #[inline]
    pub fn try_send(&mut self, kind: u16, bytes: &[u8]) -> Result<(), SendError> {
        self.check(bytes)?;
        let needed = bytes.len().div_ceil(PAYLOAD).max(1);
        // A longer message would find the ring full for ever, as the receiver keeps some room back.
        let lines = self.producer.ring().sure();
        if needed > lines as usize {
            return Err(SendError::NeverFits { length: bytes.len(), most: lines as usize * PAYLOAD });
        }
        if (self.room(needed as u32)? as usize) < needed {
            return Err(SendError::Full);
        }
        self.put(kind, bytes, FIRST, needed);
        self.notify();
        Ok(())
    }

    /// The process at the other end.
    pub fn peer(&self) -> &Peer {
        self.watch.peer()
    }

    /// Checks whether anything can be sent, and this message in particular.
    #[inline]
    fn check(&mut self, bytes: &[u8]) -> Result<(), SendError> {
        if bytes.len() > self.longest {
            return Err(SendError::TooLong { length: bytes.len(), longest: self.longest });
        }
        if let Some(ended) = self.ended {
            return Err(ended);
        }
        if self.producer.consumer_closed() {
            return Err(self.end(SendError::Closed));
        }
        if self.watch.died() {
            return Err(self.end(SendError::PeerDied));
        }
        Ok(())
    }

    #[inline]
    fn room(&mut self, wanted: u32) -> Result<u32, SendError> {
        match self.producer.room(wanted) {
            Ok(room) => Ok(room),
            Err(FalseCredit) => Err(self.end(SendError::Broken)),
        }
    }

    #[cold]
    fn end(&mut self, why: SendError) -> SendError {
        self.ended = Some(why);
        why
    }

    /// Publishes the next `lines` lines of a message of which `bytes` are left, the first of them with the flag `begin`.
    /// Returns the bytes that are left then.
    fn put<'a>(&mut self, kind: u16, mut bytes: &'a [u8], begin: u8, lines: usize) -> &'a [u8] {
        let mut flags = begin;
        for _ in 0..lines {
            let (now, rest) = bytes.split_at(bytes.len().min(PAYLOAD));
            if rest.is_empty() {
                flags |= LAST;
            }
            self.producer.publish(kind, flags, now);
            flags = 0;
            bytes = rest;
        }
        bytes
    }

    /// Sends a message of many lines, or one that must wait.
    #[cold]
    fn send_slowly(&mut self, kind: u16, bytes: &[u8], timeout: Option<Duration>) -> Result<(), SendError> {
        let mut deadline = Deadline::new(timeout);
        let mut rest = bytes;
        let mut left = bytes.len().div_ceil(PAYLOAD).max(1);
        let mut begin = FIRST;
        loop {
            let lines = left.min(self.room(1)? as usize);
            if lines > 0 {
                rest = self.put(kind, rest, begin, lines);
                left -= lines;
                begin = 0;
                self.notify();
                if left == 0 {
                    return Ok(());
                }
            }
            self.wait_for_room(&mut deadline)?;
        }
    }

    fn wait_for_room(&mut self, deadline: &mut Deadline) -> Result<(), SendError> {
        // A handle of its own to the ring, since the closures below need the producer.
        let ring = self.producer.ring().clone();
        let (producer, watch) = (&mut self.producer, &mut self.watch);
        let spins = if deadline.none_left() { 0 } else { self.spins };
        let waited = ring.control().producer.bell.wait(
            spins,
            || producer.room(1) != Ok(0) || ring.consumer_closed(),
            || {
                if watch.died() {
                    return Err(SendError::PeerDied);
                }
                deadline.left(SLICE).ok_or(SendError::TimedOut)
            },
        );
        match waited {
            Ok(()) if self.producer.consumer_closed() => Err(self.end(SendError::Closed)),
            Ok(()) => Ok(()),
            Err(SendError::TimedOut) => Err(SendError::TimedOut),
            Err(why) => Err(self.end(why)),
        }
    }

    #[inline]
    fn notify(&self) {
        self.producer.notify(|| {
            if let Some(doorbell) = &self.doorbell {
                doorbell.set.ring(doorbell.seat);
            }
        });
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if getpid() == self.owner {
            self.producer.close();
            self.notify();
        }
    }
}
