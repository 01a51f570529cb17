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

mod bell;
mod consumer;
mod line;
mod producer;
mod ready;
mod ring;
mod sync;
mod turns;

#[cfg(not(loom))]
mod cache;
#[cfg(not(loom))]
mod channel;
#[cfg(not(loom))]
mod clock;
#[cfg(not(loom))]
mod connect;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod file;
#[cfg(not(loom))]
mod greeting;
#[cfg(all(test, not(loom)))]
mod hostile;
#[cfg(all(test, loom))]
mod model;
#[cfg(not(loom))]
mod pair;
#[cfg(not(loom))]
mod peer;
#[cfg(not(loom))]
mod receiver;
#[cfg(not(loom))]
mod ring_file;
#[cfg(not(loom))]
mod sender;
#[cfg(not(loom))]
mod set_file;
#[cfg(not(loom))]
mod settings;
#[cfg(not(loom))]
mod wait_set;

#[cfg(not(loom))]
pub use self::{
    channel::Channel,
    error::{AttachError, ConnectError, CreateError},
    file::VERSION,
    pair::{End, pair},
    peer::Peer,
    receiver::{Message, Receiver, RecvError},
    sender::{SendError, Sender},
    settings::{
        DEFAULT_LINES, DEFAULT_LONGEST, DEFAULT_SPINS, MOST_LINES, MOST_LONGEST, Placement, Settings,
        SettingsError,
    },
    wait_set::{AddError, Seat, SetFull, Token, WaitSet},
};

/// The document's example is compiled and run with the other tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/channels.md")]
pub struct ChannelsDocument;
