//! The crate of what stands on channels between address spaces: typed calls, memory capabilities, bulk copies, names and
//! spawning.
//!
//! `atoll-transport` carries all of it, and its channels are exported here, too, so that a service needs one crate. On channels
//! stand typed calls ([`interface`]), capabilities that say who may access which memory ([`capability`]), copies of much memory
//! and of files ([`bulk`]), names of services ([`names`]) and processes started on any node ([`spawn`]), with the sockets that
//! a node's services share ([`host`]).
//!
//! Source: the barrelfish paper (`papers/barrelfish-xeon-phi.txt`), sections 3.4, 5.5 and 6.7 to 6.10. The guarantees:
//! `docs/channels.md`, with a complete small service.

// Lets the code that the `interface` attribute generates find its paths in this crate, too.
extern crate self as atoll_channel;

pub mod bulk;
pub mod capability;
pub mod host;
pub mod names;
mod service;
pub mod spawn;

pub use self::service::*;
pub use atoll_transport::{
    AddError, AttachError, Channel, ConnectError, CreateError, DEFAULT_LINES, DEFAULT_LONGEST, DEFAULT_SPINS,
    End, Interrupter, Link, LinkError, MOST_LINES, MOST_LONGEST, Message, Node, Peer, Placement, Receiver,
    RecvError, Seat, SendError, Sender, SetFull, Settings, SettingsError, Token, VERSION, WaitSet, pair,
};

/// The document, whose example is compiled and run with the other tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/channels.md")]
pub struct ChannelsDocument;
