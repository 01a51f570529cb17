//! Spawning: programs and workers started on any node, with arguments and a capability, watched until they end.
//!
//! Each node has a [`SpawnService`]; processes reach it through a [`SpawnClient`], and it reaches those of other nodes over
//! links. What it starts finds in [`parent`] who it is, what it was given, and a way to the service that started it.
//! Nothing outlives who ordered it: its children are killed when the orderer, its node, or the service is gone.
//!
//! A *worker* says that it is there, by calling [`parent`], before its start counts as done; a *program* is any other. To
//! hand a worker a capability to memory, its orderer starts it with [`Capability::Later`], has the capability
//! granted to the [`Holder`](crate::capability::Holder) that its id is, and calls [`SpawnClient::hand_over`].
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
