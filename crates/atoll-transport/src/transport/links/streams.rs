//! The streams between this node and one other: what may be sent, what has come, and whether the other keeps the rules.
//!
//! Decides and touches no transport: `mod.rs` carries its words. A side may have [`WINDOW`] bytes on the way and in the
//! other's queue, of which it is given back what was taken out; so a queue is bounded whatever its reader does, and a word
//! that has room here never keeps one of another stream waiting there.

use std::collections::{HashMap, VecDeque};

use super::wire::{StreamId, Word};
use crate::channel::Message;
use crate::link::LinkError;

/// Bytes of one direction of a stream that were sent and not yet received, with [`OVERHEAD`] for each message.
pub(super) const WINDOW: usize = 1 << 20;
/// What a message takes beside its bytes.
pub(super) const OVERHEAD: usize = 64;
/// Bytes of the longest message. Half a window: there is room for it before the other gives back all.
pub(super) const LONGEST: usize = WINDOW / 2 - OVERHEAD;
/// What was taken out is given back when it is this much.
const PORTION: usize = WINDOW / 4;
/// Streams between two nodes that are not closed by both.
const MOST_STREAMS: usize = 256;

/// What a peer did that none does.
pub(super) type Broken = &'static str;

/// One stream.
#[derive(Default, Debug)]
struct Stream {
    inbox: VecDeque<Message>,
    /// Of what was sent, what the peer has not given back.
    sent: usize,
    /// Of what came, what was not given back to the peer.
    came: usize,
    /// Of that, what was taken out of the inbox.
    taken: usize,
    closed_here: bool,
    closed_there: bool,
}

/// All streams with one node.
#[derive(Default, Debug)]
pub(super) struct Streams {
    streams: HashMap<StreamId, Stream>,
    /// Numbers of the next streams that this node opens, and the other.
    next: u32,
    next_theirs: u32,
    /// Those that the other opened and nobody has accepted.
    waiting: HashMap<u16, VecDeque<StreamId>>,
    /// Why nothing comes any more.
    end: Option<LinkError>,
}

/// Why a message is not on its way.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum NotSent {
    /// There is no room until the peer gives some back.
    Full,
    /// There never will be.
    Never(LinkError),
}

impl Streams {
    /// Why the node is lost, if it is.
    pub(super) fn end(&self) -> Option<&LinkError> {
        self.end.as_ref()
    }

    /// The node is lost. What has come can be received still.
    pub(super) fn lose(&mut self, why: LinkError) {
        self.end.get_or_insert(why);
        self.streams.retain(|_, stream| !stream.closed_here);
        for stream in std::mem::take(&mut self.waiting).into_values().flatten() {
            self.streams.remove(&stream);
        }
    }

    /// Opens a stream: its number, and what to say.
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

    /// The next stream that the other opened for this.
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

    /// The next message, and what to say of it; none if none has come.
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
            // Closed before the node was lost.
            _ if open.closed_there => Err(LinkError::Closed),
            Some(why) => Err(why.clone()),
            None => Ok(None),
        }
    }

    /// This side needs the stream no more: what to say.
    pub(super) fn close(&mut self, stream: StreamId) -> Option<Word<'static>> {
        let open = self.streams.get_mut(&stream)?;
        open.closed_here = true;
        open.inbox = VecDeque::new();
        if open.closed_there || self.end.is_some() {
            self.streams.remove(&stream);
        }
        self.end.is_none().then_some(Word::Close { stream })
    }

    /// Takes what the other node says. Returns whose wait may be over.
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
        open.ok_or("it spoke of a link that is not there")
    }
}

#[cfg(test)]
impl Streams {
    /// Streams that are kept.
    pub(super) fn count(&self) -> usize {
        self.streams.len()
    }

    /// What their queues take.
    pub(super) fn kept(&self) -> usize {
        let cost = |message: &Message| message.bytes.len() + OVERHEAD;
        self.streams.values().flat_map(|stream| &stream.inbox).map(cost).sum()
    }
}
