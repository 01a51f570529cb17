//! A link: joins a pool and a channel, so that buffers of the pool travel over the channel.
//!
//! `owner.rs` makes one at both ends. The channel stays its owner's and carries other messages: a link is given the channel's
//! sender to send, and the messages of its kind that were received.

use std::sync::Arc;
use std::time::Duration;

use crate::bulk::pool::buffer::Buffer;
use crate::bulk::pool::error::{ProtocolError, Unsent, UnsentReason};
use crate::bulk::pool::holders::LinkId;
use crate::bulk::pool::message::{MOST_GIVEN_BACK, PoolMessage};
use crate::bulk::pool::owner::Shared;
use atoll_transport::{Peer, SendError, Sender};

/// The content of a message of the pool.
#[derive(Debug)]
pub enum Arrival {
    /// A buffer, which now belongs to this process.
    Buffer {
        /// The buffer. Its sender can still change the content if it is hostile: copy first, and check the copy.
        buffer: Buffer,
        /// The number of its bytes that the sender declares as used, which is at most its size.
        used: u64,
        /// A number that the sender adds.
        note: u64,
    },
    /// The number of buffers that came back.
    GivenBack(usize),
}

/// One end of a pool's link over a channel. It is dropped with the channel; buffers behind it come back when the process there
/// has ended.
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

    /// The kind of the channel's messages that go to `received`.
    pub fn kind(&self) -> u16 {
        self.kind
    }

    /// Sends a buffer, which is the peer's from now on. `used` is the number of bytes that have a meaning; the meaning of
    /// `note` is up to the two ends. A buffer that is not sent comes back with the error.
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
            () if !buffer.is_of(&self.shared) => Some(UnsentReason::OtherPool),
            () if used > bytes => Some(UnsentReason::TooLong { used, bytes }),
            () if !buffer.memory().is_alone() => Some(UnsentReason::InUse),
            () => None,
        };
        if let Some(why) = refuse {
            return Err(Unsent { buffer, why });
        }
        let number = buffer.number();
        // Noted first, as the peer may send the buffer back before this thread gets to it.
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

    /// Handles the bytes of a message of this link's kind. An error changes nothing; it means that the peer broke the protocol.
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

    /// Tells the pool's owner of buffers that were dropped here. To be called now and then on the link to the owner; on other
    /// links it does nothing. Returns the number of buffers reported. After an error the others are reported by the next call.
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
