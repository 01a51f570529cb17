//! How well evicted pages would compress, where far memory is a file: one of many is compressed on its way out, and thrown away.
//!
//! `copy_out` offers groups of pages; the launcher says at the end whether compressed far memory would have been worth trying.
//!
//! Rules: those of the fault path: no allocation, no printing, no lock that is waited for.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::control::Totals;
use crate::far::{Codec, Lz4};
use crate::spin::Spin;

/// Groups of evicted pages of which one gives a page to be tried.
const EVERY: u32 = 8;
/// Bytes of a page that are tried at most: what the compressed stores take as a unit.
const PART: u32 = 64 << 10;
/// Bytes for the compressor's result and its state.
pub(crate) const BYTES: usize = (PART as usize) + (32 << 10);

/// Tries a page now and then.
pub(crate) struct Probe {
    /// The memory, once it is ready.
    memory: Spin<*mut u8>,
    groups: AtomicU32,
}

// SAFETY: the memory is shared by all workers at one address, and used by who holds the lock.
unsafe impl Send for Probe {}

impl Probe {
    /// A probe that uses `memory`; one that never tries where there is none.
    ///
    /// # Safety
    /// `memory` is null, or [`BYTES`] bytes, aligned to 4096, zeroed, shared by all workers and used for nothing else.
    pub(crate) unsafe fn new(memory: *mut u8) -> Probe {
        // SAFETY: room for the state is behind the room for the result.
        let ready = !memory.is_null()
            && Lz4::scratch_bytes(PART) <= BYTES - PART as usize
            && unsafe { Lz4::prepare(memory.add(PART as usize), PART) }.is_ok();
        Probe {
            memory: Spin::new(if ready { memory } else { std::ptr::null_mut() }),
            groups: AtomicU32::new(0),
        }
    }

    /// Pages leave: tries the first `bytes` of one, at `page`, if it is time.
    ///
    /// # Safety
    /// `page` is valid for reads of `bytes`.
    #[inline]
    pub(crate) unsafe fn offer(&self, page: *const u8, bytes: usize, totals: &Totals) {
        if self.groups.fetch_add(1, Ordering::Relaxed).is_multiple_of(EVERY) {
            // SAFETY: as by the caller.
            unsafe { self.try_page(page, bytes, totals) };
        }
    }

    #[cold]
    unsafe fn try_page(&self, page: *const u8, bytes: usize, totals: &Totals) {
        let Some(memory) = self.memory.try_lock() else { return };
        if memory.is_null() {
            return;
        }
        let bytes = (bytes as u32).min(PART);
        // SAFETY: the memory is ours while the lock is held, and was prepared; the page is valid by the caller.
        let packed = unsafe { Lz4::compress(memory.add(PART as usize), page, bytes, *memory, bytes) };
        totals.tried_bytes.fetch_add(u64::from(bytes), Ordering::Relaxed);
        totals.tried_packed_bytes.fetch_add(u64::from(packed.unwrap_or(bytes)), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_many_pages_is_tried() {
        let memory = vec![0u64; BYTES / 8 + 512].leak();
        let at = (memory.as_mut_ptr() as usize).next_multiple_of(4096) as *mut u8;
        // SAFETY: atomics are valid when zero.
        let totals: Totals = unsafe { std::mem::zeroed() };
        // SAFETY: zeroed memory of its size, never freed.
        let probe = unsafe { Probe::new(at) };
        let page = [7u8; 4096];
        for _ in 0..2 * EVERY {
            // SAFETY: the page's bytes.
            unsafe { probe.offer(page.as_ptr(), page.len(), &totals) };
        }
        assert_eq!(totals.tried_bytes.load(Ordering::Relaxed), 2 * 4096);
        assert!(totals.tried_packed_bytes.load(Ordering::Relaxed) < 200);
        let mut x = 88_172_645_463_325_252_u64;
        let mut noise = [0u8; 4096];
        for byte in &mut noise {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            *byte = x as u8;
        }
        let before = totals.tried_packed_bytes.load(Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { probe.offer(noise.as_ptr(), noise.len(), &totals) };
        assert!(totals.tried_packed_bytes.load(Ordering::Relaxed) - before > 3000);
        // SAFETY: no memory is allowed.
        let none = unsafe { Probe::new(std::ptr::null_mut()) };
        // SAFETY: as above.
        unsafe { none.offer(page.as_ptr(), page.len(), &totals) };
    }
}
