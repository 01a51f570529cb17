//! What a registry holds and tells: entries, who owns them, and news for those who wait or watch.
//!
//! Made by `registry.rs`, sent by the services.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::names::name::Name;
use atoll_transport::Node;

/// A client of a name service: what it registered lasts as long as it does. The service fills it in, not the client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Owner {
    /// Where it runs.
    pub node: Node,
    /// Its process's number there.
    pub process: u32,
    /// Its connection's number with its node's name service; no other one has it.
    pub connection: u64,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {}", self.process, self.node)
    }
}

/// A name and what it stands for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The name.
    pub name: Name,
    /// What its owner wants known: an address, a process's id, a capability; at most
    /// [`MOST_VALUE`](super::MOST_VALUE) bytes.
    #[serde(with = "serde_bytes")]
    pub value: Vec<u8>,
    /// Who registered it.
    pub owner: Owner,
    /// The change that this was, counted in its registry. The same name registered again has another one.
    pub serial: u64,
}

/// A look-up that waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct WaiterId(pub u64);

/// A watch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct WatchId(pub u64);

/// Something that changed, with its number: changes are counted from 1 in each registry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Change {
    /// An entry was registered; its serial is the change's.
    Added(Entry),
    /// One was unregistered, or its owner is gone.
    Removed {
        /// The entry's name.
        name: Name,
        /// The change's number.
        serial: u64,
    },
    /// Changes were not fetched in time, and those up to this one are lost: look up all that match.
    Missed {
        /// The number of the last change that is lost.
        serial: u64,
    },
}

impl Change {
    /// Its number.
    pub fn serial(&self) -> u64 {
        match self {
            Change::Added(entry) => entry.serial,
            Change::Removed { serial, .. } | Change::Missed { serial } => *serial,
        }
    }
}

/// What a client fetches after it watched.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct News {
    /// Whose pattern matches.
    pub watch: WatchId,
    /// What changed.
    pub change: Change,
}
