//! The producer's half of a ring: puts lines in, one behind the other, never over one that is unread.
//!
//! `sender.rs` stands on it and makes messages of lines; the other half is `consumer.rs`. No system call but a
//! wake-up that the consumer asked for.
//!
//! Source: the barrelfish paper, section 5.5.

use crate::ring::bell::{ARMED, ASLEEP, AWAKE};
use crate::ring::line::{Header, PAYLOAD};
use crate::ring::memory::Ring;
use crate::ring::sync::Ordering;

/// The other end claims to have read what was never written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FalseCredit;

/// The half that writes. There is one of each ring.
pub(crate) struct Producer {
    ring: Ring,
    /// Lines written, modulo 2^32.
    written: u32,
    /// Where the next one goes: `written` modulo the ring, kept apart as 2^32 is no multiple of most rings.
    slot: u32,
    /// Lines known to be read, modulo 2^32.
    consumed: u32,
}

impl Producer {
    /// The producer of a ring in which nothing was written yet.
    pub(crate) fn new(ring: Ring) -> Producer {
        Producer { ring, written: 0, slot: 0, consumed: 0 }
    }

    /// The ring.
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// At least this many lines may be published now. The credit line is looked at only if it must be for `wanted`
    /// lines.
    #[inline]
    pub(crate) fn room(&mut self, wanted: u32) -> Result<u32, FalseCredit> {
        let room = self.ring.count() - self.written.wrapping_sub(self.consumed);
        if room >= wanted {
            return Ok(room);
        }
        // Acquire: pairs with the Release in `Consumer::give_back`; what was read there is overwritten only behind
        // this.
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

    /// Tells the consumer of what was published or closed, if it asked to be told; `ring_set` tells its wait set.
    #[inline]
    pub(crate) fn notify(&self, ring_set: impl FnOnce()) {
        let bell = &self.ring.control().consumer.bell;
        match bell.answer() {
            AWAKE => {}
            ASLEEP => bell.wake(),
            ARMED => ring_set(),
            // Only a hostile consumer writes anything else, and only to its own harm.
            _ => {}
        }
    }

    /// The consumer will not read any more.
    pub(crate) fn consumer_closed(&self) -> bool {
        self.ring.consumer_closed()
    }

    /// Says that nothing follows. The caller notifies.
    pub(crate) fn close(&self) {
        // Release: pairs with the Acquire in `Ring::producer_closed`; who sees it sees every line.
        self.ring.control().producer.closed.store(1, Ordering::Release);
    }

    /// As if 2^32 lines less `before` had passed, so that tests come by the numbers' end.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn near_wrap(&mut self, before: u32) {
        self.written = 0u32.wrapping_sub(before);
        self.consumed = self.written;
    }
}
