//! Bells: how a client learns that there is something to fetch.
//!
//! One for each client of a node, which both levels ring; and one for each other node, at node 0.

use std::sync::{Arc, Mutex, PoisonError};

use crate::channel::Sender;

/// Where to ring. Copies are the same bell.
#[derive(Clone)]
pub(super) struct Bell(Arc<Mutex<Sender>>);

impl Bell {
    /// Rings over `sender`.
    pub(super) fn new(sender: Sender) -> Bell {
        Bell(Arc::new(Mutex::new(sender)))
    }

    /// Rings, saying what about.
    pub(super) fn ring(&self, kind: u16) {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Full: what it has not heard yet makes it fetch as well. Gone: its calls' channel tells.
        let _ = sender.try_send(kind, &[]);
    }
}
