//! Channels between processes: rings of 64-byte lines in shared memory, and sets to wait on many of them at once.
//!
//! Stands on no other crate of atoll's; what workers and nodes say to each other will go through it. A message costs
//! no lock and, unless its receiver sleeps, no system call. [`Channel::connect`] makes a channel over a Unix socket,
//! [`pair()`] one to inherit over a fork; [`WaitSet`] serves many. Nothing that a peer writes is believed: at worst it
//! breaks its own channel.
//!
//! Source: the barrelfish paper (`papers/barrelfish-xeon-phi.txt`), sections 3.4, 5.5 and 6.7. The guarantees and the
//! memory's layout: `docs/channels.md`, with a complete small service.
#![cfg_attr(
    loom,
    allow(dead_code, reason = "the model checker drives the rings and sets without what maps them")
)]

mod ring;

#[cfg(not(loom))]
mod channel;
#[cfg(not(loom))]
mod clock;
#[cfg(not(loom))]
mod node;
#[cfg(not(loom))]
pub mod transport;

#[cfg(not(loom))]
pub use self::channel::*;
#[cfg(not(loom))]
pub use self::node::Node;

/// The document's example is compiled and run with the other tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/channels.md")]
pub struct ChannelsDocument;
