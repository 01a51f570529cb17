//! A pool and a channel, joined: buffers of the one travel over the other.
//!
//! Made by `owner.rs` at both ends. The channel stays its owner's, with its other messages: a link is given
//! the channel's sender to send, and the messages of its kind that were received.

use std::sync::Arc;
use std::time::Duration;

use crate::bulk::pool::buffer::Buffer;
use crate::bulk::pool::error::{ProtocolError, Unsent, Why};
use crate::bulk::pool::holders::LinkId;
use crate::bulk::pool::message::{MOST_GIVEN_BACK, PoolMessage};
use crate::bulk::pool::owner::Shared;
use atoll_transport::{Peer, SendError, Sender};

/// What a message of the pool's brought.
#[derive(Debug)]
pub enum Arrival {
    /// A buffer, which is this process's now.
    Buffer {
        /// The buffer. What is in it can be changed by its sender still, if that is hostile: copy first,
        /// check the copy.
        buffer: Buffer,
        /// How many of its bytes the sender says it used; never more than it has.
        used: u64,
        /// What the sender says besides.
        note: u64,
    },
    /// So many buffers came back.
    GivenBack(usize),
}

/// One end of a pool's way over a channel. Dropped with the channel; what is behind it then comes back when
/// the process there has ended.
pub struct Link {
    shared: Arc<Shared>,
    id: LinkId,
    kind: u16,
    peer: Peer,
}

impl Link {
    pub(crate) fn new(shared: Arc<Shared>, id: LinkId, kind: u16, peer: Peer) -> Link {
        Link { shared, id, kind, peer }
    }

    /// The kind of the channel's messages that `received` is for.
    pub fn kind(&self) -> u16 {
        self.kind
    }

    /// Sends a buffer: it is the peer's from now on. `used` says how many of its bytes mean something, `note`
    /// is for whatever the two agree on. If it is not sent it comes back with the error.
    pub fn send(
        &self,
        sender: &mut Sender,
        buffer: Buffer,
        used: u64,
        note: u64,
        timeout: Option<Duration>,
    ) -> Result<(), Unsent> {
        let bytes = buffer.bytes();
        let refuse = match () {
            () if !buffer.is_of(&self.shared) => Some(Why::OtherPool),
            () if used > bytes => Some(Why::TooLong { used, bytes }),
            () if !buffer.memory().is_alone() => Some(Why::InUse),
            () => None,
        };
        if let Some(why) = refuse {
            return Err(Unsent { buffer, why });
        }
        let number = buffer.number();
        // First, as the peer may send it back before we get to it.
        self.shared.state().holders.send(number, self.id);
        let message = PoolMessage::Buffer { number, used, note }.pack();
        match sender.send(self.kind, &message, timeout) {
            Ok(()) => {
                buffer.sent();
                Ok(())
            }
            Err(e) => {
                self.shared.state().holders.unsent(number);
                Err(Unsent { buffer, why: e.into() })
            }
        }
    }

    /// Takes the bytes of a message of this link's kind. An error changes nothing; the peer broke the protocol.
    pub fn received(&self, bytes: &[u8]) -> Result<Arrival, ProtocolError> {
        let malformed = ProtocolError::Malformed(bytes.len());
        match PoolMessage::unpack(bytes).ok_or(malformed)? {
            PoolMessage::Buffer { number, used, note } => {
                let bytes = self.shared.bytes;
                if used > bytes {
                    return Err(ProtocolError::TooLong { used, bytes });
                }
                self.shared.state().holders.arrive(number, self.id)?;
                let buffer = Buffer::new(&self.shared, number).ok_or(malformed)?;
                Ok(Arrival::Buffer { buffer, used, note })
            }
            PoolMessage::GivenBack(numbers) => {
                self.shared.state().holders.given_back(&numbers, self.id)?;
                Ok(Arrival::GivenBack(numbers.len()))
            }
        }
    }

    /// Tells the pool's owner of buffers that were dropped here: to be called now and then at the link that
    /// leads to it; elsewhere it does nothing. Returns how many it told of. After an error the others are
    /// told of next time.
    pub fn give_back(&self, sender: &mut Sender, timeout: Option<Duration>) -> Result<usize, SendError> {
        let mut told = 0;
        loop {
            let numbers = {
                let mut state = self.shared.state();
                if state.holders.home() != Some(self.id) {
                    return Ok(told);
                }
                state.rescue();
                state.holders.tell(MOST_GIVEN_BACK)
            };
            if numbers.is_empty() {
                return Ok(told);
            }
            let count = numbers.len();
            let message = PoolMessage::GivenBack(numbers);
            let sent = sender.send(self.kind, &message.pack(), timeout);
            if let (Err(e), PoolMessage::GivenBack(numbers)) = (sent, message) {
                self.shared.state().holders.untold(&numbers);
                return Err(e);
            }
            told += count;
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.cut(self.id, &self.peer);
    }
}
