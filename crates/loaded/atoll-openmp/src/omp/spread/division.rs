//! The division of a region between nodes: the threads of its team, and the iterations where the runtime deals out blocks of them.
//!
//! `decide` makes one for each run on the origin; all nodes use the same.

use atoll_coherence::parts::{self, Part};
use atoll_memory::layout::MAX_NODES;
use serde::{Deserialize, Serialize};

/// All nodes' parts of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "Vec<(u16, u16)>", try_from = "Vec<(u16, u16)>")]
pub(crate) struct Division {
    nodes: usize,
    threads: [u16; MAX_NODES],
    weights: [u16; MAX_NODES],
}

/// A stretch of something that all nodes have together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Share {
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) of: u32,
}

impl Division {
    /// A division by what each node has.
    pub(super) fn new(parts: &[Part]) -> Division {
        let mut division = Division { nodes: 0, threads: [0; MAX_NODES], weights: [0; MAX_NODES] };
        division.nodes = parts.len().min(MAX_NODES);
        for (at, part) in parts.iter().take(MAX_NODES).enumerate() {
            division.threads[at] = u16::try_from(part.threads).unwrap_or(u16::MAX);
            division.weights[at] = u16::try_from(part.weight).unwrap_or(u16::MAX);
        }
        division
    }

    /// A division in which all nodes are alike.
    pub(super) fn equal(threads: u32, nodes: u32) -> Division {
        Division::new(&parts::equal(threads, nodes))
    }

    fn share(of: &[u16], node: u32) -> Share {
        let sum = |of: &[u16]| of.iter().map(|n| u32::from(*n)).sum();
        let (before, rest) = of.split_at((node as usize).min(of.len()));
        Share { first: sum(before), count: rest.first().map_or(0, |n| u32::from(*n)), of: sum(of) }
    }

    /// A node's threads.
    pub(crate) fn threads(&self, node: u32) -> Share {
        Division::share(&self.threads[..self.nodes], node)
    }

    /// A node's part of the iterations that the runtime deals out in blocks.
    pub(crate) fn iterations(&self, node: u32) -> Share {
        Division::share(&self.weights[..self.nodes], node)
    }
}

impl From<Division> for Vec<(u16, u16)> {
    fn from(division: Division) -> Self {
        division.threads.into_iter().zip(division.weights).take(division.nodes).collect()
    }
}

impl TryFrom<Vec<(u16, u16)>> for Division {
    type Error = &'static str;

    fn try_from(parts: Vec<(u16, u16)>) -> Result<Division, Self::Error> {
        if parts.len() > MAX_NODES || parts.iter().any(|part| part.0 == 0 || part.1 == 0) {
            return Err("a division between nodes that there cannot be");
        }
        let mut division = Division { nodes: parts.len(), threads: [0; MAX_NODES], weights: [0; MAX_NODES] };
        for (at, part) in parts.into_iter().enumerate() {
            (division.threads[at], division.weights[at]) = part;
        }
        Ok(division)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_is_on_one_node_and_every_node_has_one() {
        for nodes in 1..=MAX_NODES as u32 {
            for threads in nodes..100 {
                let division = Division::equal(threads, nodes);
                let mut next = 0;
                for node in 0..nodes {
                    let part = division.threads(node);
                    assert_eq!((part.first, part.of), (next, threads));
                    assert!(part.count > 0);
                    next += part.count;
                }
                assert_eq!(next, threads);
            }
        }
    }

    #[test]
    fn it_travels_and_what_makes_no_sense_does_not() {
        let division = Division::new(&[Part { threads: 3, weight: 7 }, Part { threads: 1, weight: 2 }]);
        let bytes = postcard::to_stdvec(&division).unwrap();
        assert_eq!(postcard::from_bytes::<Division>(&bytes), Ok(division));
        assert_eq!(division.iterations(1), Share { first: 7, count: 2, of: 9 });
        for parts in [vec![(1_u16, 1_u16); MAX_NODES + 1], vec![(1, 1), (0, 1)]] {
            assert!(postcard::from_bytes::<Division>(&postcard::to_stdvec(&parts).unwrap()).is_err());
        }
    }
}
