//! Far memory as the pager sees it: the store, and in which way pages come and go there.
//!
//! `fault` loads from it, `copy_out` stores to it, `release` discards; `far` has the stores.

use super::probe::Probe;
use crate::far::{Access, AnyFar, FarError, FarStore, Lane};

/// Far memory of a run.
pub(super) struct FarSide {
    pub(super) store: AnyFar,
    /// Whether pages lie plainly in far memory, so that they are copied straight to their places there.
    pub(super) is_direct: bool,
    /// Tries now and then how well pages that leave would compress.
    pub(super) probe: Probe,
}

impl FarSide {
    pub(super) fn new(store: AnyFar, probe: Probe) -> FarSide {
        let is_direct = matches!(store, AnyFar::Ram(_));
        FarSide { store, is_direct, probe }
    }

    /// Where the content of neighbouring pages is to be copied: their places in far memory, which count
    /// as held from now on, else `scratch`.
    pub(super) fn destination(
        &self,
        lane: &Lane,
        pages: std::ops::RangeInclusive<u32>,
        scratch: *mut u8,
    ) -> Result<*mut u8, FarError> {
        let mut to = scratch;
        if self.is_direct {
            // Places of neighbours lie one after the other; the first page's place is asked for last.
            for page in pages.rev() {
                if let Some(at) = self.store.direct(lane, page.into(), Access::Store)? {
                    to = at;
                }
            }
        }
        Ok(to)
    }
}
