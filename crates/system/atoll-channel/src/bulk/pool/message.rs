//! The messages of links: one hands a buffer over, one gives buffers back.
//!
//! `link.rs` sends and receives them as one line of a channel. All numbers are little-endian.
//!
//! | bytes | a buffer | buffers given back |
//! | --- | --- | --- |
//! | 0–3 | 1 | 2 |
//! | 4–7 | its number | the first one's number |
//! | 8–15 | bytes used | the second, the third, and so on to the message's end: 13 at most |
//! | 16–23 | a note of the sender's | |

/// The most buffers of one message.
pub(crate) const MOST_GIVEN_BACK: usize = 13;

/// A message of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PoolMessage {
    Buffer { number: u32, used: u64, note: u64 },
    GivenBack(Vec<u32>),
}

impl PoolMessage {
    /// The message as bytes: at most 56, the payload of one line.
    pub(crate) fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(56);
        match self {
            PoolMessage::Buffer { number, used, note } => {
                bytes.extend_from_slice(&1u32.to_le_bytes());
                bytes.extend_from_slice(&number.to_le_bytes());
                bytes.extend_from_slice(&used.to_le_bytes());
                bytes.extend_from_slice(&note.to_le_bytes());
            }
            PoolMessage::GivenBack(numbers) => {
                bytes.extend_from_slice(&2u32.to_le_bytes());
                for number in numbers {
                    bytes.extend_from_slice(&number.to_le_bytes());
                }
            }
        }
        bytes
    }

    /// The message in bytes that a peer sent; `None` if they are invalid.
    pub(crate) fn unpack(bytes: &[u8]) -> Option<PoolMessage> {
        let (what, rest) = bytes.split_first_chunk::<4>()?;
        match u32::from_le_bytes(*what) {
            1 => {
                let (number, rest) = rest.split_first_chunk::<4>()?;
                let (used, rest) = rest.split_first_chunk::<8>()?;
                let note = <[u8; 8]>::try_from(rest).ok()?;
                Some(PoolMessage::Buffer {
                    number: u32::from_le_bytes(*number),
                    used: u64::from_le_bytes(*used),
                    note: u64::from_le_bytes(note),
                })
            }
            2 => {
                let (numbers, rest) = rest.as_chunks::<4>();
                let sound = rest.is_empty() && (1..=MOST_GIVEN_BACK).contains(&numbers.len());
                let numbers = numbers.iter().map(|number| u32::from_le_bytes(*number));
                sound.then(|| PoolMessage::GivenBack(numbers.collect()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn messages_survive_their_bytes(number: u32, used: u64, note: u64, numbers in proptest::collection::vec(0u32.., 1..14)) {
            for message in [PoolMessage::Buffer { number, used, note }, PoolMessage::GivenBack(numbers)] {
                let bytes = message.pack();
                proptest::prop_assert!(bytes.len() <= 56);
                proptest::prop_assert_eq!(PoolMessage::unpack(&bytes), Some(message));
            }
        }

        #[test]
        fn any_bytes_are_a_message_of_the_same_bytes_or_none(mut bytes: Vec<u8>, what in 0u8..4) {
            if let Some(head) = bytes.first_chunk_mut::<4>() {
                *head = u32::from(what).to_le_bytes();
            }
            if let Some(message) = PoolMessage::unpack(&bytes) {
                proptest::prop_assert_eq!(message.pack(), bytes);
            }
        }
    }
}
