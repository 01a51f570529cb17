//! Remembers what QEMU's descriptions of an access mean: there are few different ones, and asking QEMU takes two calls.
//!
//! The callback for accesses in the crate's root looks here first.

use std::sync::atomic::{AtomicU16, Ordering};

use crate::PAGE_SHIFT;
use crate::api::{self, MemInfo};

/// The bound of descriptions that are remembered. QEMU 7.2 has none above.
const SAYINGS: usize = 1 << 18;
const PAGE_BYTES: u64 = 1 << PAGE_SHIFT;

/// The meaning of each description; 0: not known yet.
static KNOWN: [AtomicU16; SAYINGS] = [const { AtomicU16::new(0) }; SAYINGS];

/// The meaning of a description: the access's direction in bit 0, and above it the first offset in a page from which it reaches
/// into the next. For an unknown description that offset is 0, so one comparison finds both cases.
#[derive(Clone, Copy)]
pub(crate) struct Access(u16);

impl Access {
    #[inline(always)]
    pub(crate) fn writes(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether the access is known and lies within one page.
    #[inline(always)]
    pub(crate) fn is_plain(self, address: u64) -> bool {
        (address & (PAGE_BYTES - 1)) < u64::from(self.0 >> 1)
    }
}

/// Returns what was learnt of this description.
#[inline(always)]
pub(crate) fn known(info: MemInfo) -> Access {
    Access(KNOWN.get(info as usize).map_or(0, |known| known.load(Ordering::Relaxed)))
}

/// Asks QEMU what a description means. This may be called only in the callback that got it.
pub(crate) fn learn(info: MemInfo) -> Access {
    // SAFETY: the value is QEMU's own description of an access.
    let (shift, writes) =
        unsafe { (api::qemu_plugin_mem_size_shift(info), api::qemu_plugin_mem_is_store(info)) };
    let astride = PAGE_BYTES + 1 - (1 << shift.min(PAGE_SHIFT));
    let access = (astride as u16) << 1 | u16::from(writes);
    if let Some(known) = KNOWN.get(info as usize) {
        known.store(access, Ordering::Relaxed);
    }
    Access(access)
}
