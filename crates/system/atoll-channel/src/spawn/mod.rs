//! Spawning: programs and workers started on any node, with arguments and a capability, watched until they end.
//!
//! Each node has a [`SpawnService`]. Processes reach it through a [`SpawnClient`], and it reaches those of other nodes over
//! links. A started process finds in [`parent`] its id, its capability, and a connection to the service that started it. No
//! process outlives its orderer: it is killed when the orderer, its node, or the service is gone.
//!
//! A *worker* reports, by calling [`parent`], before its start counts as complete; a *program* is any other process. To hand a
//! worker a capability to memory, its orderer starts it with [`Capability::Later`], has the capability granted to the
//! [`Holder`](crate::capability::Holder) of its id, and calls [`SpawnClient::hand_over`].
//!
//! Source: the barrelfish paper, sections 6.1.3 (ids), 6.8.1 (`xeon_phi_client_spawn`).

mod away;
mod child;
mod client;
mod here;
mod interface;
mod letter;
mod order;
mod parent;
mod reaper;
mod service;

pub use self::{
    client::{ClientError, SpawnClient},
    interface::{Exit, ProcessError, SpawnError, State, Unreachable},
    order::{Capability, MOST_CAPABILITY, MOST_WORDS, Order, Output, ProcessId},
    parent::{Parent, ParentError, parent},
    service::{SpawnLinkError, SpawnService, StartError},
};
