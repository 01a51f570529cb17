//! The engines for memory mapped in this process: one for each copying loop, finished when `start` returns.
//!
//! Stands on `kernel.rs`. The manager measures which of them is fastest at which size. A transfer of some hundred bytes costs
//! its checks and the copy: nothing is allocated, locked or queued.
//!
//! Source: the barrelfish paper, section 5.4 (memcpy beside the copy engines).

use crate::bulk::engine::{Engine, Started};
use crate::bulk::error::CopyError;
use crate::bulk::kernel;
use crate::bulk::memory::{Kind, Memory};
use crate::bulk::transfer::Transfer;

/// An engine that copies between mappings.
#[derive(Clone, Copy, Debug)]
pub struct Memcpy {
    name: &'static str,
    copy: unsafe fn(*mut u8, *const u8, usize),
}

impl Memcpy {
    /// libc's memcpy.
    pub const PLAIN: Memcpy = Memcpy { name: "memcpy", copy: kernel::plain };

    /// Stores past the caches, for data that nobody reads soon or that no cache could hold.
    #[cfg(target_arch = "x86_64")]
    pub const STREAM: Memcpy = Memcpy { name: "stream", copy: kernel::stream };

    /// The processor's string move.
    #[cfg(target_arch = "x86_64")]
    pub const STRING: Memcpy = Memcpy { name: "movsb", copy: kernel::string };

    /// All loops that this processor has.
    pub fn all() -> &'static [Memcpy] {
        #[cfg(target_arch = "x86_64")]
        return &[Memcpy::PLAIN, Memcpy::STREAM, Memcpy::STRING];
        #[cfg(not(target_arch = "x86_64"))]
        return &[Memcpy::PLAIN];
    }

    /// Makes a transfer if it is between mappings; returns whether it is.
    #[inline]
    pub(crate) fn run(&self, transfer: &Transfer<'_>) -> bool {
        let Some((to, from)) = transfer.addresses() else { return false };
        // SAFETY: a transfer is checked: both ranges are inside their mappings, which it borrows, the
        // destination is for writing, and they do not overlap.
        unsafe { (self.copy)(to, from, transfer.bytes() as usize) };
        true
    }
}

impl Engine for Memcpy {
    fn name(&self) -> &'static str {
        self.name
    }

    fn reaches(&self, to: &Memory, from: &Memory) -> bool {
        to.kind() == Kind::Mapping && from.kind() == Kind::Mapping
    }

    #[inline]
    fn start(&mut self, transfer: &Transfer<'_>, _number: u64) -> Result<Started, CopyError> {
        if self.run(transfer) {
            return Ok(Started::Done);
        }
        Err(CopyError::unreachable(transfer))
    }
}
