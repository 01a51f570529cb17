//! The words of the nodes' runtimes to each other, and their bytes: messages of the program, which agents carry as they are.
//!
//! `start::program` sends and receives them.

use serde::{Deserialize, Serialize};

use super::measure::{Counted, Told};
use super::travel;
use crate::wrap::keys;

/// Bytes of the program's memory: their address, and what they are now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Piece {
    pub(super) at: u64,
    #[serde(with = "serde_bytes")]
    pub(super) bytes: Vec<u8>,
}

/// A message.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// Pieces of the main thread's variables that have changed.
    Variables(Vec<Piece>),
    /// From the origin: new actions of the program for signals: the signal, and the kernel's structure.
    Actions(Vec<(i32, [u64; 4])>),
    /// From the origin: keys of thread-specific data that it made or deleted, in order.
    Keys(keys::News),
    /// To the origin, before a region's last barrier: the measure of the node's part.
    Part(Told),
    /// Of tasks that travel.
    Tasks(travel::Said),
    /// To the origin, at the end: the node's counts of each region.
    Counted(Vec<Counted>),
}

/// The bytes of `said`.
pub(crate) fn encode(said: &impl Serialize) -> Vec<u8> {
    // Into memory, of types that all have a form: it cannot fail.
    postcard::to_stdvec(said).unwrap_or_default()
}

/// The words that the bytes stand for; none if they make no sense.
pub(crate) fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((said, [])) => Some(said),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_or_too_long_means_nothing() {
        let bytes = encode(&Message::Variables(vec![Piece { at: 7, bytes: vec![1, 2, 3] }]));
        assert!(matches!(decode(&bytes), Some(Message::Variables(pieces)) if pieces[0].bytes == [1, 2, 3]));
        assert!(decode::<Message>(&bytes[..bytes.len() - 1]).is_none());
        assert!(decode::<Message>(&[&bytes[..], &[0]].concat()).is_none());
    }
}
