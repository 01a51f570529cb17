//! Channels between processes: rings of 64-byte lines in shared memory, and sets to wait on many of them at once.
//!
//! Stands on no other crate of atoll's; what workers and nodes say to each other will go through it. A message costs
//! no lock and, unless its receiver sleeps, no system call. [`Channel::connect`] makes a channel over a Unix socket,
//! [`pair()`] one to inherit over a fork; [`WaitSet`] serves many. Nothing that a peer writes is believed: at worst it
//! breaks its own channel.
//!
//! On channels stand typed calls (`service/`: [`interface`]), whose memory may be touched by whom ([`capability`]), copies of
//! much memory and of files ([`bulk`]), names for who serves what ([`names`]) and processes started on any node
//! ([`spawn`]), with the sockets that a node's services share ([`host`]); [`start`] starts
//! the nodes of a job, and [`transport`] is what they talk through where no memory is shared.
//!
//! Source: the barrelfish paper (`papers/barrelfish-xeon-phi.txt`), sections 3.4, 5.5 and 6.7. The guarantees and the
//! memory's layout: `docs/channels.md`, with a complete small service.
#![cfg_attr(
    loom,
    allow(dead_code, reason = "the model checker drives the rings and sets without what maps them")
)]

// So that what the `interface` attribute generates finds its paths in this crate too.
#[cfg(not(loom))]
extern crate self as atoll_channel;

#[cfg(not(loom))]
pub mod bulk;
#[cfg(not(loom))]
pub mod capability;
#[cfg(not(loom))]
mod channel;
#[cfg(not(loom))]
mod clock;
#[cfg(not(loom))]
pub mod host;
#[cfg(not(loom))]
mod memory_file;
#[cfg(not(loom))]
pub mod names;
#[cfg(not(loom))]
mod node;
#[cfg(not(loom))]
mod random;
mod ring;
#[cfg(not(loom))]
mod service;
#[cfg(not(loom))]
mod socket;
#[cfg(not(loom))]
pub mod spawn;
#[cfg(not(loom))]
pub mod start;
#[cfg(not(loom))]
pub mod transport;

#[cfg(not(loom))]
pub use self::channel::*;
#[cfg(not(loom))]
pub use self::node::Node;
#[cfg(not(loom))]
pub use self::service::*;

/// The document's example is compiled and run with the other tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/channels.md")]
pub struct ChannelsDocument;
