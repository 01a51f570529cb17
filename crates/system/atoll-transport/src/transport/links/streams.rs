//! The streams between this node and one other: which messages may be sent, which have come, and whether the other node keeps
//! the rules.
//!
//! This code decides and touches no transport: `mod.rs` carries its words. A side may have [`WINDOW`] bytes on the way and in
//! the other's queue, and gets room back for what was taken out. So a queue is bounded whatever its reader does, and a word
//! that has room never makes one of another stream wait.

use std::collections::{HashMap, VecDeque};

use super::wire::{StreamId, Word};
use crate::channel::Message;
use crate::link::LinkError;

/// The most bytes in one direction of a stream that were sent and not yet received, with [`OVERHEAD`] for each message.
pub(super) const WINDOW: usize = 1 << 20;
/// The bytes that count for a message besides its own.
pub(super) const OVERHEAD: usize = 64;
/// The bytes of the longest message. It is half a window, so that there is room for it before the other node gives back all.
pub(super) const LONGEST: usize = WINDOW / 2 - OVERHEAD;
/// The bytes taken out at which room is given back.
const PORTION: usize = WINDOW / 4;
/// The most streams between two nodes that are not closed by both.
const MOST_STREAMS: usize = 256;

/// How a peer broke the rules.
pub(super) type Broken = &'static str;

/// One stream.
#[derive(Default, Debug)]
struct Stream {
    inbox: VecDeque<Message>,
    /// The bytes sent for which the peer has not given room back.
    sent: usize,
    /// The bytes that came for which no room was given back to the peer.
    came: usize,
    /// The bytes of `came` that were taken out of the inbox.
    taken: usize,
    closed_here: bool,
    closed_there: bool,
}

/// All streams with one node.
#[derive(Default, Debug)]
pub(super) struct Streams {
    streams: HashMap<StreamId, Stream>,
    /// The numbers of the next streams that this node opens, and that the other opens.
    next: u32,
    next_theirs: u32,
    /// The streams that the other node opened and nobody has accepted.
    waiting: HashMap<u16, VecDeque<StreamId>>,
    /// The reason why nothing comes any more.
    end: Option<LinkError>,
}

/// The reasons why a message was not sent.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum NotSent {
    /// There is no room until the peer gives some back.
    Full,
    /// The message can never be sent.
    Never(LinkError),
}

impl Streams {
    /// The reason why the node is lost, if it is.
    pub(super) fn end(&self) -> Option<&LinkError> {
        self.end.as_ref()
    }

    /// Notes that the node is lost. Messages that have come can still be received.
    pub(super) fn lose(&mut self, why: LinkError) {
        self.end.get_or_insert(why);
        self.streams.retain(|_, stream| !stream.closed_here);
        for stream in std::mem::take(&mut self.waiting).into_values().flatten() {
            self.streams.remove(&stream);
        }
    }

    /// Opens a stream; returns its number, and the word to send.
    pub(super) fn open(&mut self, purpose: u16) -> Result<(StreamId, Word<'static>), LinkError> {
        if let Some(why) = &self.end {
            return Err(why.clone());
        }
        if self.streams.len() >= MOST_STREAMS || self.next > i32::MAX as u32 {
            return Err(LinkError::Broken(format!("there are {MOST_STREAMS} links to the node already")));
        }
        let stream = StreamId { mine: true, number: self.next };
        self.next += 1;
        self.streams.insert(stream, Stream::default());
        Ok((stream, Word::Open { stream, purpose }))
    }

    /// The next stream that the other node opened for this purpose.
    pub(super) fn accept(&mut self, purpose: u16) -> Result<Option<StreamId>, LinkError> {
        if let Some(why) = &self.end {
            return Err(why.clone());
        }
        let Some(waiting) = self.waiting.get_mut(&purpose) else { return Ok(None) };
        let stream = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&purpose);
        }
        Ok(stream)
    }

    /// Takes room for a message and makes its word.
    pub(super) fn send<'a>(
        &mut self,
        stream: StreamId,
        kind: u16,
        bytes: &'a [u8],
    ) -> Result<Word<'a>, NotSent> {
        if let Some(why) = &self.end {
            return Err(NotSent::Never(why.clone()));
        }
        let open = self.streams.get_mut(&stream).filter(|open| !open.closed_there);
        let open = open.ok_or(NotSent::Never(LinkError::Closed))?;
        let room = open.sent + bytes.len() + OVERHEAD;
        if room > WINDOW {
            return Err(NotSent::Full);
        }
        open.sent = room;
        Ok(Word::Data { stream, kind, bytes })
    }

    /// The next message, and the word to send for it, if any; `None` if no message has come.
    pub(super) fn recv(
        &mut self,
        stream: StreamId,
    ) -> Result<Option<(Message, Option<Word<'static>>)>, LinkError> {
        let Some(open) = self.streams.get_mut(&stream) else {
            return Err(self.end.clone().unwrap_or(LinkError::Closed));
        };
        if let Some(message) = open.inbox.pop_front() {
            open.taken += message.bytes.len() + OVERHEAD;
            let give = open.taken >= PORTION && !open.closed_there && self.end.is_none();
            let word = give.then(|| {
                let bytes = std::mem::take(&mut open.taken);
                open.came -= bytes;
                Word::Credit { stream, bytes: bytes as u32 }
            });
            return Ok(Some((message, word)));
        }
        match &self.end {
            // The stream was closed before the node was lost.
            _ if open.closed_there => Err(LinkError::Closed),
            Some(why) => Err(why.clone()),
            None => Ok(None),
        }
    }

    /// Closes this side of a stream; returns the word to send.
    pub(super) fn close(&mut self, stream: StreamId) -> Option<Word<'static>> {
        let open = self.streams.get_mut(&stream)?;
        open.closed_here = true;
        open.inbox = VecDeque::new();
        if open.closed_there || self.end.is_some() {
            self.streams.remove(&stream);
        }
        self.end.is_none().then_some(Word::Close { stream })
    }

    /// Handles a word of the other node. Returns the stream whose users may stop waiting.
    pub(super) fn take(&mut self, word: Option<Word<'_>>) -> Result<Option<StreamId>, Broken> {
        match word.ok_or("a message that says nothing")? {
            Word::Open { stream, purpose } => {
                if stream.mine || stream.number != self.next_theirs {
                    return Err("it opened a link with a number that is not the next");
                }
                if self.streams.len() >= 2 * MOST_STREAMS {
                    return Err("it opened too many links");
                }
                self.next_theirs += 1;
                self.streams.insert(stream, Stream::default());
                self.waiting.entry(purpose).or_default().push_back(stream);
                Ok(None)
            }
            Word::Data { stream, kind, bytes } => {
                let open = self.heard(stream)?;
                let cost = bytes.len() + OVERHEAD;
                if bytes.len() > LONGEST || open.came + cost > WINDOW {
                    return Err("it sent more than there was room for");
                }
                open.came += cost;
                if open.closed_here {
                    return Ok(None);
                }
                open.inbox.push_back(Message { kind, bytes: bytes.to_vec() });
                Ok(Some(stream))
            }
            Word::Credit { stream, bytes } => {
                let open = self.heard(stream)?;
                let left = open.sent.checked_sub(bytes as usize).filter(|_| bytes > 0);
                open.sent = left.ok_or("it gave back more room than it had")?;
                Ok(Some(stream))
            }
            Word::Close { stream } => {
                let open = self.heard(stream)?;
                open.closed_there = true;
                if open.closed_here {
                    self.streams.remove(&stream);
                    return Ok(None);
                }
                Ok(Some(stream))
            }
        }
    }

    /// A stream of which the other node may still speak.
    fn heard(&mut self, stream: StreamId) -> Result<&mut Stream, Broken> {
        let open = self.streams.get_mut(&stream).filter(|open| !open.closed_there);
        open.ok_or("it sent a message for a link that does not exist")
    }
}

#[cfg(test)]
impl Streams {
    /// The number of streams that are kept.
    pub(super) fn count(&self) -> usize {
        self.streams.len()
    }

    /// The bytes in the queues of all streams.
    pub(super) fn kept(&self) -> usize {
        let cost = |message: &Message| message.bytes.len() + OVERHEAD;
        self.streams.values().flat_map(|stream| &stream.inbox).map(cost).sum()
    }
}
