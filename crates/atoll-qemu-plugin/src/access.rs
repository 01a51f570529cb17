//! What QEMU says of an access, remembered: there are few different sayings, and asking takes two calls.
//!
//! The callback for accesses in the crate's root looks here first.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::PAGE_SHIFT;
use crate::api::{self, MemInfo};

/// Sayings below this are remembered. QEMU 7.2 has none above.
const SAYINGS: usize = 1 << 18;

/// What is known of each; 0: nothing yet.
static KNOWN: [AtomicU8; SAYINGS] = [const { AtomicU8::new(0) }; SAYINGS];

/// An access's size and direction. Bit 0: it writes; bits 1 to 6: logarithm of its bytes; bit 7: known.
#[derive(Clone, Copy)]
pub(crate) struct Access(u8);

impl Access {
    #[inline(always)]
    pub(crate) fn writes(self) -> bool {
        self.0 & 1 != 0
    }

    #[inline(always)]
    pub(crate) fn crosses_a_page(self, address: u64) -> bool {
        let bytes = 1u64 << (self.0 >> 1 & 15);
        (address & ((1 << PAGE_SHIFT) - 1)) + bytes > 1 << PAGE_SHIFT
    }
}

/// What was learnt of this saying.
#[inline(always)]
pub(crate) fn known(info: MemInfo) -> Option<Access> {
    let known = KNOWN.get(info as usize)?.load(Ordering::Relaxed);
    (known != 0).then_some(Access(known))
}

/// Asks QEMU what it means. Only in the callback that it was said to.
pub(crate) fn learn(info: MemInfo) -> Access {
    // SAFETY: QEMU's own word for an access.
    let (shift, writes) =
        unsafe { (api::qemu_plugin_mem_size_shift(info), api::qemu_plugin_mem_is_store(info)) };
    let access = 1 << 7 | (shift.min(15) as u8) << 1 | u8::from(writes);
    if let Some(known) = KNOWN.get(info as usize) {
        known.store(access, Ordering::Relaxed);
    }
    Access(access)
}
