//! Puts the messages of one peer in the order of their numbers.
//!
//! A large message is first announced and then fetched, and UCX may spread pieces over several paths, so a later message may
//! arrive earlier. Used by `peer.rs`; pure, and limited in memory, whatever numbers come.

use std::collections::BTreeMap;

use super::wire::Header;

/// A number that no honest peer sends now: too far ahead, used before, or with more bytes than may be under way.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct OutOfOrder;

/// The messages of one peer that wait for earlier ones.
pub(super) struct Order {
    next: u64,
    held: BTreeMap<u64, Held>,
    bytes: usize,
    most: usize,
}

enum Held {
    Coming,
    Here(Header, Vec<u8>),
}

/// The most messages that may be held, whatever their size: an empty one takes some hundred bytes here.
const MOST_MESSAGES: u64 = 1 << 20;

impl Order {
    /// An order that holds at most `most` bytes.
    pub(super) fn new(most: usize) -> Order {
        Order { next: 0, held: BTreeMap::new(), bytes: 0, most }
    }

    /// Takes the message if it is the next one and nothing is held, so that it need not be kept; returns whether it did.
    pub(super) fn pass(&mut self, header: &Header) -> bool {
        let next = header.number == self.next && self.held.is_empty();
        self.next += u64::from(next);
        next
    }

    /// Notes that a message of `length` bytes was announced.
    pub(super) fn coming(&mut self, number: u64, length: usize) -> Result<(), OutOfOrder> {
        let ahead = number.checked_sub(self.next).ok_or(OutOfOrder)?;
        let bytes = self.bytes.saturating_add(length);
        if ahead >= MOST_MESSAGES || bytes > self.most || self.held.contains_key(&number) {
            return Err(OutOfOrder);
        }
        self.held.insert(number, Held::Coming);
        self.bytes = bytes;
        Ok(())
    }

    /// Takes a message that was announced.
    pub(super) fn here(&mut self, header: Header, bytes: Vec<u8>) {
        if let Some(held @ Held::Coming) = self.held.get_mut(&header.number) {
            *held = Held::Here(header, bytes);
        }
    }

    /// The next message, if it has come.
    pub(super) fn next(&mut self) -> Option<(Header, Vec<u8>)> {
        let first = self.held.first_entry()?;
        if *first.key() != self.next || matches!(first.get(), Held::Coming) {
            return None;
        }
        let Held::Here(header, bytes) = first.remove() else { return None };
        self.next += 1;
        self.bytes -= bytes.len();
        Some((header, bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::wire::Class;
    use super::*;

    fn header(number: u64) -> Header {
        Header { class: Class::Message, kind: 0, from: 0, to: 1, number, tag: [0; 16] }
    }

    proptest! {
        #[test]
        fn any_arrival_comes_out_in_order(
            arrival in Just((0..40u64).collect::<Vec<_>>()).prop_shuffle(),
            late in prop::collection::vec(any::<bool>(), 40),
        ) {
            let mut order = Order::new(1000);
            let mut out = Vec::new();
            let mut fetched = Vec::new();
            for number in arrival {
                let here = header(number);
                if order.pass(&here) {
                    out.push(number);
                    continue;
                }
                prop_assert_eq!(order.coming(number, 3), Ok(()));
                prop_assert_eq!(order.coming(number, 3), Err(OutOfOrder));
                if late[number as usize] { fetched.push(here) } else { order.here(here, vec![0; 3]) }
                while let Some((header, _)) = order.next() { out.push(header.number) }
            }
            for here in fetched {
                order.here(here, vec![0; 3]);
                while let Some((header, _)) = order.next() { out.push(header.number) }
            }
            prop_assert_eq!(out, (0..40).collect::<Vec<_>>());
            prop_assert_eq!(order.bytes, 0);
            prop_assert_eq!(order.coming(7, 0), Err(OutOfOrder));
        }
    }

    #[test]
    fn no_more_is_held_than_allowed() {
        let mut order = Order::new(10);
        assert_eq!(order.coming(1, 11), Err(OutOfOrder));
        assert_eq!(order.coming(1, 8), Ok(()));
        assert_eq!(order.coming(2, 3), Err(OutOfOrder));
        assert_eq!(order.coming(2, usize::MAX), Err(OutOfOrder));
        assert_eq!(order.coming(MOST_MESSAGES, 0), Err(OutOfOrder));
        assert_eq!(order.coming(u64::MAX, 0), Err(OutOfOrder));
    }
}
