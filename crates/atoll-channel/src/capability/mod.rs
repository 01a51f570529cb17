//! Memory capabilities: handles to ranges of a node's memory, with rights that only ever shrink.
//!
//! The [`Table`] of each node says who was given what, and takes it back.
mod given;
mod handle;
#[cfg(test)]
mod model;
mod refused;
mod rights;
mod table;
mod tree;

pub use self::{
    given::Given,
    handle::{Handle, Holder, Secret, Span},
    refused::Refused,
    rights::{Rights, UnknownRights},
    table::{Checked, Limits, Revoked, Table, View},
};
