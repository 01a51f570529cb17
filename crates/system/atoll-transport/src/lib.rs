//! The means by which address spaces talk: channels over rings in shared memory, transports between nodes, and the start of a
//! job's nodes.
//!
//! Stands on no other crate of atoll's but `atoll-skips` in tests. The runtime's nodes talk through it, and `atoll-channel`
//! builds services, memory capabilities, bulk copies, names and spawning on it. A message costs no lock and, unless its
//! receiver sleeps, no system call. [`Channel::connect`] makes a channel over a Unix socket, [`pair()`] one to inherit over a
//! fork; [`WaitSet`] serves many. Nothing that a peer writes is believed: at worst it breaks its own channel. [`transport`]
//! carries messages between nodes that share no memory, and [`start`] starts the nodes of a job.
//!
//! Source: the barrelfish paper (`papers/barrelfish-xeon-phi.txt`), sections 3.4 and 6.7. The guarantees and the memory's layout:
//! `docs/channels.md`.
#![cfg_attr(
    loom,
    allow(dead_code, reason = "the model checker drives the rings and sets without what maps them")
)]

#[cfg(not(loom))]
mod channel;
#[cfg(not(loom))]
pub mod clock;
#[cfg(not(loom))]
mod decode;
#[cfg(not(loom))]
mod guard;
#[cfg(not(loom))]
mod link;
#[cfg(not(loom))]
pub mod memory_file;
#[cfg(not(loom))]
mod node;
#[cfg(not(loom))]
mod process;
#[cfg(not(loom))]
pub mod random;
mod ring;
#[cfg(not(loom))]
pub mod socket;
#[cfg(not(loom))]
pub mod start;
#[cfg(not(loom))]
pub mod transport;

#[cfg(not(loom))]
pub use self::{
    channel::*,
    decode::decode,
    link::{Link, LinkError},
    node::Node,
    process::process_started,
};
