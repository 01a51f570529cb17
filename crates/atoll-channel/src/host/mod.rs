//! What the services of a node have in common: where their sockets lie, who may come in, and how other threads hand
//! something to a loop that serves clients.
//!
//! `names/` and `spawn/` stand on it; it stands on `channel/` and `service/`.

mod directory;
mod door;
mod inlet;

pub use self::directory::{DirectoryError, NODE_DIRECTORY, NodeDirectory};
pub(crate) use self::{
    directory::from_environment,
    door::{Door, Visitor, visit},
    inlet::{Inlet, Outlet, inlet},
};
