//! The values of a registry: entries, their owners, and news for clients that wait or watch.
//!
//! Made by `registry.rs`, sent by the services.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::names::name::Name;
use atoll_transport::Node;

/// A client of a name service, whose entries last as long as it does. The service fills this in, not the client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Owner {
    /// The node on which it runs.
    pub node: Node,
    /// The number of the process on that node.
    pub process: u32,
    /// The number of its connection with its node's name service, which no other one has.
    pub connection: u64,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {}", self.process, self.node)
    }
}

/// A name with its value and owner.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The name.
    pub name: Name,
    /// The value that the owner publishes: an address, a process's id, a capability; at most [`MOST_VALUE`](super::MOST_VALUE)
    /// bytes.
    #[serde(with = "serde_bytes")]
    pub value: Vec<u8>,
    /// The owner.
    pub owner: Owner,
    /// The number of the change that registered it, counted in its registry. The same name registered again has another one.
    pub serial: u64,
}

/// The number of a look-up that waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct WaiterId(pub u64);

/// The number of a watch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct WatchId(pub u64);

/// A change, with its number: changes are counted from 1 in each registry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Change {
    /// An entry was registered; its serial is the change's.
    Added(Entry),
    /// An entry was unregistered, or its owner is gone.
    Removed {
        /// The entry's name.
        name: Name,
        /// The change's number.
        serial: u64,
    },
    /// Changes were not fetched in time, and those up to this one are lost: look up all entries that match.
    Missed {
        /// The number of the last change that is lost.
        serial: u64,
    },
}

impl Change {
    /// The change's number.
    pub fn serial(&self) -> u64 {
        match self {
            Change::Added(entry) => entry.serial,
            Change::Removed { serial, .. } | Change::Missed { serial } => *serial,
        }
    }
}

/// The news that a watching client fetches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct News {
    /// The watch whose pattern matches.
    pub watch: WatchId,
    /// The change.
    pub change: Change,
}
