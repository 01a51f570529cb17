//! The consumer's half of a ring: takes lines out in order and gives their room back.
//!
//! `receiver.rs` stands on it and makes messages of lines; the other half is `producer.rs`. Room is given back a quarter of the
//! ring at a time, so the producer never waits for the last line to be acknowledged and the credit line rarely moves between
//! CPUs.
//!
//! Source: the barrelfish paper, section 5.5.

use crate::ring::bell::{ARMED, ASLEEP};
use crate::ring::line::{FIRST, Header, LAST, PAYLOAD};
use crate::ring::memory::Ring;
use crate::ring::sync::Ordering;

/// A header that no producer of ours writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BadHeader;

/// The half that reads. Each ring has one.
pub(crate) struct Consumer {
    ring: Ring,
    /// The number of lines read, modulo 2^32.
    read: u32,
    /// The slot of the next line.
    slot: u32,
    /// The number of lines whose room was given back, modulo 2^32.
    given_back: u32,
}

impl Consumer {
    /// The consumer of a ring from which no line was read yet.
    pub(crate) fn new(ring: Ring) -> Consumer {
        Consumer { ring, read: 0, slot: 0, given_back: 0 }
    }

    /// The ring that it reads.
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The header of the next line, if it was published.
    #[inline]
    fn next(&self) -> Option<Header> {
        let header = self.ring.line(self.slot).header();
        (header.sequence == self.read.wrapping_add(1)).then_some(header)
    }

    /// Whether the next line was published.
    #[inline]
    pub(crate) fn readable(&self) -> bool {
        self.next().is_some()
    }

    /// Appends the payload of the next line, if it was published, and returns its header. In a header that is returned, the
    /// length is at most `PAYLOAD`, the flags are known ones, and every line but a message's last is full.
    #[inline]
    pub(crate) fn take(&mut self, into: &mut Vec<u8>) -> Result<Option<Header>, BadHeader> {
        let Some(header) = self.next() else { return Ok(None) };
        let length = usize::from(header.length);
        let known = header.flags & !(FIRST | LAST) == 0;
        let whole = header.flags & LAST != 0 || length == PAYLOAD;
        if length > PAYLOAD || !known || !whole {
            return Err(BadHeader);
        }
        self.ring.line(self.slot).read(length, into);
        self.slot = if self.slot + 1 == self.ring.count() { 0 } else { self.slot + 1 };
        self.read = self.read.wrapping_add(1);
        if self.read.wrapping_sub(self.given_back) >= self.ring.quarter() {
            self.give_back();
        }
        Ok(Some(header))
    }

    /// Lets the producer overwrite the lines that were read.
    fn give_back(&mut self) {
        self.given_back = self.read;
        let control = self.ring.control();
        // Release: pairs with the Acquire in `Producer::room`; the payloads were read before.
        control.credit.consumed.store(self.read, Ordering::Release);
        if control.producer.bell.answer() == ASLEEP {
            control.producer.bell.wake();
        }
    }

    /// Asks the producer to notify the wait set of the next line. Returns false, and asks nothing, if there is a line already.
    pub(crate) fn arm(&self) -> bool {
        let bell = &self.ring.control().consumer.bell;
        bell.announce(ARMED);
        if self.readable() || self.producer_closed() {
            bell.retract();
            return false;
        }
        true
    }

    /// Takes back the request of `arm`.
    pub(crate) fn disarm(&self) {
        self.ring.control().consumer.bell.retract();
    }

    /// Whether the producer closed the ring, so that nothing follows the published lines.
    #[inline]
    pub(crate) fn producer_closed(&self) -> bool {
        self.ring.producer_closed()
    }

    /// Closes the ring: nothing will be read any more. Wakes a producer that waits for room.
    pub(crate) fn close(&self) {
        let control = self.ring.control();
        // Release: pairs with the Acquire in `Ring::consumer_closed`.
        control.consumer.closed.store(1, Ordering::Release);
        if control.producer.bell.answer() == ASLEEP {
            control.producer.bell.wake();
        }
    }

    /// Sets the counts as if 2^32 lines less `before` had passed.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn near_wrap(&mut self, before: u32) {
        self.read = 0u32.wrapping_sub(before);
        self.given_back = self.read;
        self.ring.control().credit.consumed.store(self.read, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ring::memory::heap;
    use crate::ring::producer::Producer;

    #[test]
    fn lines_arrive_in_order_and_a_full_ring_takes_no_more() {
        let ring = heap::ring(5);
        let (mut producer, mut consumer) = (Producer::new(ring.clone()), Consumer::new(ring));
        let mut sent = 0u8;
        let mut received = 0u8;
        for round in 0..200u8 {
            while producer.room(1).unwrap() > 0 {
                producer.publish(sent.into(), FIRST | LAST, &[sent; 3]);
                sent = sent.wrapping_add(1);
            }
            for _ in 0..=round % 5 {
                let mut bytes = Vec::new();
                let header = consumer.take(&mut bytes).unwrap().unwrap();
                assert_eq!((header.kind, bytes), (received.into(), vec![received; 3]));
                received = received.wrapping_add(1);
            }
        }
    }

    #[test]
    fn the_numbers_of_lines_wrap() {
        let ring = heap::ring(7);
        let (mut producer, mut consumer) = (Producer::new(ring.clone()), Consumer::new(ring));
        producer.near_wrap(20);
        consumer.near_wrap(20);
        for i in 0..60u8 {
            assert!(producer.room(1).unwrap() > 0);
            producer.publish(0, FIRST | LAST, &[i]);
            let mut bytes = Vec::new();
            assert!(consumer.take(&mut bytes).unwrap().is_some());
            assert_eq!(bytes, [i]);
            assert_eq!(consumer.take(&mut bytes), Ok(None));
        }
    }

    #[test]
    fn credit_for_what_was_never_written_is_refused() {
        let ring = heap::ring(4);
        let mut producer = Producer::new(ring.clone());
        for _ in 0..4 {
            producer.publish(0, FIRST | LAST, &[]);
        }
        ring.control().credit.consumed.store(5, Ordering::Relaxed);
        assert_eq!(producer.room(1), Err(crate::ring::producer::FalseCredit));
    }
}
