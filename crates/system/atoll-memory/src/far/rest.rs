//! The pages of a group that one store does not take, and the next one does.
//!
//! `auto` and `hosts` collect them for what is behind their first store.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.

use super::Transfer;

/// Pages of a group at most.
pub(super) const BATCH: usize = 64;

/// Some pages of a group.
pub(super) struct Rest {
    pages: [Transfer; BATCH],
    count: usize,
}

impl Rest {
    pub(super) fn new() -> Self {
        Self { pages: [Transfer::NONE; BATCH], count: 0 }
    }

    pub(super) fn push(&mut self, transfer: Transfer) {
        if let Some(place) = self.pages.get_mut(self.count) {
            *place = transfer;
            self.count += 1;
        }
    }

    pub(super) fn pages(&self) -> &[Transfer] {
        self.pages.get(..self.count).unwrap_or_default()
    }
}
