//! The producer's half of a ring: appends lines, and never overwrites an unread one.
//!
//! `sender.rs` stands on it and makes messages of lines; the other half is `consumer.rs`. The only system call is a wake-up
//! that the consumer asked for.
//!
//! Source: the barrelfish paper, section 5.5.

use crate::ring::bell::{ARMED, ASLEEP, AWAKE};
use crate::ring::line::{Header, PAYLOAD};
use crate::ring::memory::Ring;
use crate::ring::sync::Ordering;

/// The other end claims to have read lines that were never written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FalseCredit;

/// The half that writes. Each ring has one.
pub(crate) struct Producer {
    ring: Ring,
    /// The number of lines written, modulo 2^32.
    written: u32,
    /// The slot of the next line: `written` modulo the ring's size, kept separately as 2^32 is no multiple of most sizes.
    slot: u32,
    /// The number of lines known to be read, modulo 2^32.
    consumed: u32,
}

impl Producer {
    /// The producer of a ring to which no line was written yet.
    pub(crate) fn new(ring: Ring) -> Producer {
        Producer { ring, written: 0, slot: 0, consumed: 0 }
    }

    /// The ring that it writes.
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The number of lines, at least, that may be published now. The credit line is read only if that is necessary to find room
    /// for `wanted` lines.
    #[inline]
    pub(crate) fn room(&mut self, wanted: u32) -> Result<u32, FalseCredit> {
        let room = self.ring.count() - self.written.wrapping_sub(self.consumed);
        if room >= wanted {
            return Ok(room);
        }
        // Acquire: pairs with the Release in `Consumer::give_back`; lines read before that are overwritten only after this
        // load.
        let consumed = self.ring.control().credit.consumed.load(Ordering::Acquire);
        let unread = self.written.wrapping_sub(consumed);
        if unread > self.written.wrapping_sub(self.consumed) {
            return Err(FalseCredit);
        }
        self.consumed = consumed;
        Ok(self.ring.count() - unread)
    }

    /// Publishes the next line. There must be room; `bytes` are at most `PAYLOAD`.
    #[inline]
    pub(crate) fn publish(&mut self, kind: u16, flags: u8, bytes: &[u8]) {
        debug_assert!(bytes.len() <= PAYLOAD);
        debug_assert!(self.written.wrapping_sub(self.consumed) < self.ring.count());
        let slot = self.slot;
        self.slot = if slot + 1 == self.ring.count() { 0 } else { slot + 1 };
        self.written = self.written.wrapping_add(1);
        let header = Header { sequence: self.written, kind, length: bytes.len() as u8, flags };
        self.ring.line(slot).publish(header, bytes);
    }

    /// Notifies the consumer of what was published or closed, if it asked for that; `ring_set` notifies its wait set.
    #[inline]
    pub(crate) fn notify(&self, ring_set: impl FnOnce()) {
        let bell = &self.ring.control().consumer.bell;
        match bell.answer() {
            AWAKE => {}
            ASLEEP => bell.wake(),
            ARMED => ring_set(),
            // Only a hostile consumer writes anything else, which harms only itself.
            _ => {}
        }
    }

    /// Whether the consumer has closed the ring and will not read any more.
    pub(crate) fn consumer_closed(&self) -> bool {
        self.ring.consumer_closed()
    }

    /// Closes the ring: nothing follows. The caller notifies the consumer.
    pub(crate) fn close(&self) {
        // Release: pairs with the Acquire in `Ring::producer_closed`; a consumer that sees it sees every line.
        self.ring.control().producer.closed.store(1, Ordering::Release);
    }

    /// Sets the counts as if 2^32 lines less `before` had passed, so that tests reach the numbers' end.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn near_wrap(&mut self, before: u32) {
        self.written = 0u32.wrapping_sub(before);
        self.consumed = self.written;
    }
}
