//! The number of a node: one of the address spaces, on this machine or another, that a job is spread over.
//!
//! Capabilities, names and transports use it to say whose memory or process is meant.

use std::fmt;

/// A node's number, from 0 to one below the job's number of nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Node(pub u32);

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}
