//! The exchanges of a job: the bytes that each node gave, kept until all have given theirs.
//!
//! The launcher's loop (`job.rs`) passes in what comes from the nodes and sends what it returns.

use crate::start::frame::{self, Frame, FrameError};

/// One job's exchanges. One is under way at a time, as no node gives anything to the next before it has all of this one.
pub(super) struct Rounds {
    round: u32,
    given: Vec<Option<Vec<u8>>>,
    /// Whether each node has ended.
    gone: Vec<bool>,
}

/// The frames to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Send {
    /// Send these frames, with what each node gave, to all nodes.
    All { frames: Vec<u8>, given: Vec<Vec<u8>> },
    /// Tell each of these nodes that `gone` will never take part.
    Gone { to: Vec<usize>, gone: u32 },
    /// Send nothing yet.
    Nothing,
}

impl Rounds {
    pub(super) fn new(nodes: usize) -> Rounds {
        Rounds { round: 0, given: vec![None; nodes], gone: vec![false; nodes] }
    }

    /// Takes the `bytes` that `node` gives to `round`. `None` if it must not give any now.
    pub(super) fn give(
        &mut self,
        node: usize,
        round: u32,
        bytes: Vec<u8>,
    ) -> Option<Result<Send, FrameError>> {
        if round != self.round || self.given[node].is_some() {
            return None;
        }
        self.given[node] = Some(bytes);
        if let Some(gone) = self.missing() {
            return Some(Ok(Send::Gone { to: vec![node], gone }));
        }
        if self.given.iter().any(Option::is_none) {
            return Some(Ok(Send::Nothing));
        }
        let (mut frames, mut given) = (Vec::new(), Vec::new());
        for (node, bytes) in self.given.iter_mut().enumerate() {
            let bytes = bytes.take().unwrap_or_default();
            given.push(bytes.clone());
            match frame::encode(&Frame::Gathered { round, node: node as u32, bytes }) {
                Ok(frame) => frames.extend_from_slice(&frame),
                Err(e) => return Some(Err(e)),
            }
        }
        self.round += 1;
        Some(Ok(Send::All { frames, given }))
    }

    /// Notes that `node` has ended, so that other nodes need not wait for it.
    pub(super) fn end(&mut self, node: usize) -> Send {
        self.gone[node] = true;
        let to: Vec<usize> = (0..self.given.len()).filter(|&node| self.given[node].is_some()).collect();
        match self.missing() {
            Some(gone) if gone as usize == node && !to.is_empty() => Send::Gone { to, gone },
            _ => Send::Nothing,
        }
    }

    /// The first node that ended and has not given anything.
    fn missing(&self) -> Option<u32> {
        let missing = (0..self.gone.len()).find(|&node| self.gone[node] && self.given[node].is_none());
        missing.map(|node| node as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_get_all_when_the_last_has_given() {
        let mut rounds = Rounds::new(3);
        for round in 0..2 {
            assert_eq!(rounds.give(2, round, vec![2]).unwrap().unwrap(), Send::Nothing);
            assert!(rounds.give(2, round, vec![2]).is_none(), "twice");
            assert!(rounds.give(0, round + 1, vec![0]).is_none(), "too early");
            assert_eq!(rounds.give(0, round, vec![0]).unwrap().unwrap(), Send::Nothing);
            let Send::All { frames, given } = rounds.give(1, round, vec![1]).unwrap().unwrap() else {
                panic!()
            };
            assert_eq!(given, [[0], [1], [2]]);
            let mut frames = frames.as_slice();
            for node in 0..3 {
                let gathered = Frame::Gathered { round, node, bytes: vec![node as u8] };
                assert_eq!(frame::read(&mut frames).unwrap(), Some(gathered));
            }
        }
    }

    #[test]
    fn nobody_waits_for_a_node_that_ended() {
        let mut rounds = Rounds::new(3);
        assert_eq!(rounds.give(0, 0, vec![]).unwrap().unwrap(), Send::Nothing);
        assert_eq!(rounds.end(0), Send::Nothing, "it has given");
        assert_eq!(rounds.end(2), Send::Gone { to: vec![0], gone: 2 });
        assert_eq!(rounds.give(1, 0, vec![]).unwrap().unwrap(), Send::Gone { to: vec![1], gone: 2 });
    }
}
