//! The sending end of a channel: makes lines of messages, and waits where the ring is full.
//!
//! Stands on `producer.rs`; the other end is `receiver.rs`. A message is delivered whole or not at all: what a
//! timeout left half sent is given up by the next message's first line, and the receiver forgets it.
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

/// Why a message was not sent. After `Closed`, `PeerDied` and `Broken` no other will be either.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// It is longer than the channel's settings allow.
    #[error("the message has {length} bytes, and the channel's longest has {longest}")]
    TooLong {
        /// Its bytes.
        length: usize,
        /// Most bytes of a message.
        longest: usize,
    },
    /// It is longer than the whole ring, so only `send` can send it, which waits.
    #[error(
        "the message has {length} bytes, and the ring holds {most} at once: it can only be sent by waiting"
    )]
    NeverFits {
        /// Its bytes.
        length: usize,
        /// Bytes that the ring's lines hold.
        most: usize,
    },
    /// There is no room for it now. Nothing was sent.
    #[error("the ring is full")]
    Full,
    /// There was no room for it in time. The receiver will not see it.
    #[error("the ring was full until the time was over")]
    TimedOut,
    /// The receiver was dropped.
    #[error("the receiver is closed")]
    Closed,
    /// The peer's process has ended.
    #[error("the peer's process has ended")]
    PeerDied,
    /// The peer wrote into the ring what no receiver writes.
    #[error("the peer broke the channel: it acknowledged what was never sent")]
    Broken,
}

/// Where to tell that there is something to read, if the receiver sits in a wait set.
#[derive(Clone)]
pub(crate) struct Doorbell {
    pub(crate) set: ReadySet,
    pub(crate) seat: u32,
}

/// The end that sends. Dropped, it closes: the receiver gets what was sent, and `Closed` behind it.
pub struct Sender {
    producer: Producer,
    doorbell: Option<Doorbell>,
    watch: Watch,
    longest: usize,
    spins: u32,
    ended: Option<SendError>,
    /// Who may close the ring: a child that inherited this value over a fork may not.
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

    /// Sends a message of at most `Settings::longest` bytes; `kind` is what its readers make of it. Where the ring is
    /// full it waits for the receiver, at most `timeout` (none: for ever, or until the peer dies).
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
        // A message longer than this would find the ring full for ever, as the receiver keeps some room back.
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

    /// Whether anything can be sent at all, and this message.
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

    /// Publishes the next `lines` lines of a message of which `bytes` are left, the first of them with `begin`.
    /// Returns what is left then.
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

    /// A message of many lines, or one that must wait.
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
        // The ring's own handle: the closures below need the producer.
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
