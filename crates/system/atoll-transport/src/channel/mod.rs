//! Channels between processes of one machine: the rings' memory, the process at the other end, sending, receiving, waiting.
//!
//! Stands on `ring/`; the services of `atoll-channel` make typed calls of a channel's messages.

mod cache;
mod connect;
mod ends;
mod error;
mod file;
mod greeting;
#[cfg(test)]
mod hostile;
mod pair;
mod peer;
mod receiver;
mod ring_file;
mod sender;
mod set_file;
mod settings;
mod wait_set;

pub(crate) use self::file::create;
pub use self::{
    ends::Channel,
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
    wait_set::{AddError, Interrupter, Seat, SetFull, Token, WaitSet},
};
