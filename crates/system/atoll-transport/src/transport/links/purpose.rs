//! The numbers that tell the purpose of links between the services of two nodes: see [`Links::open`](super::Links::open).
//!
//! A job's own links have numbers from [`FIRST_FREE`] on.

/// Calls to node 0's name service, opened by the other node.
pub const NAMES_CALLS: u16 = 1;
/// The bell of node 0's name service, opened by the other node.
pub const NAMES_BELL: u16 = 2;
/// Calls to the spawning service of the node that accepts.
pub const SPAWN_CALLS: u16 = 3;
/// The bell of the spawning service, opened by the node that calls.
pub const SPAWN_BELL: u16 = 4;
/// The first number that atoll never uses.
pub const FIRST_FREE: u16 = 256;
