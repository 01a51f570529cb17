//! What the services of a node have in common: where their sockets lie, who may come in, and how other threads hand
//! something to a loop that serves clients.
//!
//! `names/` and `spawn/` stand on it; it stands on `channel/` and `service/`.

mod any_link;
mod bell;
mod connection;
mod credentials;
mod directory;
mod door;
mod inlet;
mod lazy;
mod linked;
mod serving;

pub use self::directory::{DirectoryError, NODE_DIRECTORY, NodeDirectory};
pub(crate) use self::{
    any_link::AnyLink,
    bell::{Bell, Heard, SET_UP, bell_settings, listen},
    connection::{Admitted, Connected, NotConnected, admit, connect},
    credentials::credentials,
    directory::from_environment,
    door::{Door, Visitor, visit},
    inlet::{Inlet, Outlet, client_set, inlet},
    lazy::Lazy,
    linked::{FromLink, LinkClient, Said},
    serving::Serving,
};
