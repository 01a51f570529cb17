//! Far memory as the pager sees it: the store, and in which way pages come and go there.
//!
//! `fault` loads from it, `copy_out` stores to it, `release` discards; `far` has the stores.

use super::probe::Probe;
use crate::far::{Access, AnyFar, FarError, FarStore, Lane};

/// Far memory of a run.
pub(super) struct FarSide {
    pub(super) store: AnyFar,
    /// Tries now and then how well pages that leave would compress.
    pub(super) probe: Probe,
}

impl FarSide {
    pub(super) fn new(store: AnyFar, probe: Probe) -> FarSide {
        FarSide { store, probe }
    }

    /// Where the content of neighbouring pages is to be copied: their places in far memory, if all of them are to lie there plainly,
    /// which count as held from now on; else `scratch`.
    pub(super) fn destination(
        &self,
        lane: &Lane,
        pages: std::ops::RangeInclusive<u32>,
        scratch: *mut u8,
    ) -> Result<*mut u8, FarError> {
        let mut to = scratch;
        // Places of neighbours lie one after the other; the first page's place is asked for last.
        for page in pages.rev() {
            match self.store.direct(lane, page.into(), Access::Store)? {
                Some(at) => to = at,
                None => return Ok(scratch),
            }
        }
        Ok(to)
    }
}
