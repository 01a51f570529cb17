//! What stands on channels between address spaces: typed calls, memory capabilities, bulk copies, names and spawning.
//!
//! `atoll-transport` carries all of it, and its channels are exported here too, so that a service needs one crate. On channels stand
//! typed calls ([`interface`]), whose memory may be touched by whom ([`capability`]), copies of much memory and of files ([`bulk`]),
//! names for who serves what ([`names`]) and processes started on any node ([`spawn`]), with the sockets that a node's services
//! share ([`host`]).
//!
//! Source: the barrelfish paper (`papers/barrelfish-xeon-phi.txt`), sections 3.4, 5.5 and 6.7 to 6.10. The guarantees:
//! `docs/channels.md`, with a complete small service.

// So that what the `interface` attribute generates finds its paths in this crate too.
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

/// The document's example is compiled and run with the other tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/channels.md")]
pub struct ChannelsDocument;
