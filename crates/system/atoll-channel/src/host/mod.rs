//! The common parts of a node's services: the place of their sockets, the check of who may come in, and the way in which other
//! threads hand events to a loop that serves clients.
//!
//! `names/` and `spawn/` stand on it; it stands on the channels of `atoll-transport` and on `service/`.

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
