//! The names of lenders that a lender keeps for users whose hosts share no folder.
//!
//! `serve` asks it for the connections of other lenders and of borrowers; `directory/keepers.rs` is their end. It is a registry
//! of `atoll-channel`, whose rules are the same as for the names of a node's processes: one owner a name, and an owner's names go
//! with its connection.
//!
//! Source: the barrelfish paper, section 6.8.2.

use std::sync::{Mutex, MutexGuard, PoisonError};

use atoll_channel::Node;
use atoll_channel::names::{Limits, Name, Owner, Pattern, RegisterError, Registry};

use crate::directory::Card;

/// The service of which each lender's name is one.
const SERVICE: &str = "lender/";
/// The most bytes that a keeper answers with.
const MOST_BYTES: usize = 1 << 20;
/// Names at most: those of all lenders of a user.
const LIMITS: Limits =
    Limits { entries: 1024, entries_each: 1, waiters_each: 0, watches_each: 0, changes_each: 0 };

/// Why a lender is not entered.
pub(crate) enum Refused {
    /// Another lender has the name: its card, as it was registered.
    Taken(Vec<u8>),
    /// There are too many names, or this is no card.
    Not,
}

/// The names that a lender keeps.
pub(crate) struct Names {
    registry: Mutex<Registry>,
}

/// The owner of what a session registers. A lender's own name has session 0, which no connection has.
fn owner(session: u64) -> Owner {
    Owner { node: Node(0), process: 0, connection: session }
}

impl Names {
    pub(crate) fn new() -> Names {
        Names { registry: Mutex::new(Registry::new(LIMITS)) }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        // Each change is whole before anything could panic.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the lender of a card, which its session `session` sent.
    pub(crate) fn register(&self, session: u64, bytes: &[u8]) -> Result<(), Refused> {
        let card: Card = serde_json::from_slice(bytes).map_err(|_| Refused::Not)?;
        let is_plain = card.host.len() <= 255 && !card.host.chars().any(char::is_control);
        if !card.is_named_well() || !is_plain {
            return Err(Refused::Not);
        }
        let service = format!("{SERVICE}{}", card.name);
        let name = Name::new(&service, Node(0), 0).map_err(|_| Refused::Not)?;
        let mut registry = self.registry();
        let taken = match registry.register(owner(session), name, bytes.to_vec()) {
            Ok(_) => return Ok(()),
            Err(RegisterError::Taken { name, .. }) => Pattern::service(name.service()).ok(),
            Err(_) => None,
        };
        let entry = taken.and_then(|pattern| registry.look_up(&pattern).cloned());
        Err(entry.map_or(Refused::Not, |entry| Refused::Taken(entry.value)))
    }

    /// The cards of all lenders that are entered, as they were registered.
    pub(crate) fn all(&self) -> Vec<Vec<u8>> {
        let Ok(pattern) = format!("{SERVICE}*").parse::<Pattern>() else { return Vec::new() };
        let page = self.registry().look_up_all(&pattern, None, MOST_BYTES / 2);
        page.entries.into_iter().map(|entry| entry.value).collect()
    }

    /// Removes what an ended session registered.
    pub(crate) fn gone(&self, session: u64) {
        self.registry().owner_gone(owner(session));
    }
}
