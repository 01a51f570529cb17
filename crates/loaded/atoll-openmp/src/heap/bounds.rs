//! Where large blocks end and, in a segment, small blocks begin: two bounds that move towards each other.
//!
//! `large` raises the lower bound and `small` lowers the upper one. A lock could not guard both: small blocks are also
//! allocated under the lock of `large`. Outside a segment `place` says where large blocks end.

use std::sync::atomic::{AtomicU64, Ordering};

use atoll_memory::layout;

use super::{GRANULE, place};

/// The upper bound in the upper 32 bits, the lower in the lower 32, in granules from the arena's start. 0 outside a segment.
static BOUNDS: AtomicU64 = AtomicU64::new(0);

const fn pack(lower: usize, upper: usize) -> u64 {
    ((upper / GRANULE) as u64) << 32 | (lower / GRANULE) as u64
}

fn unpack(bounds: u64) -> (usize, usize) {
    let granules = |n: u64| layout::ARENA + n as usize * GRANULE;
    (granules(bounds & 0xffff_ffff), granules(bounds >> 32))
}

/// Sets the segment's end: all blocks lie in `layout::ARENA..end` (`end` a multiple of 4K). Called before the first block is
/// made.
pub(crate) fn set_end(end: usize) {
    BOUNDS.store(pack(0, end - layout::ARENA), Ordering::Relaxed);
}

/// Where large blocks end now, and where small ones begin.
pub(crate) fn now() -> (usize, usize) {
    unpack(BOUNDS.load(Ordering::Relaxed))
}

/// Raises the end of large blocks to `end` (a multiple of 4K); `false` if that memory is not free.
pub(crate) fn raise(end: usize) -> bool {
    if BOUNDS.load(Ordering::Relaxed) == 0 {
        return end <= place::large().end;
    }
    // Relaxed: only the bounds are handed over; the memory between them holds zeros.
    let raised = BOUNDS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bounds| {
        let (lower, upper) = unpack(bounds);
        (end <= upper).then(|| pack(lower.max(end) - layout::ARENA, upper - layout::ARENA))
    });
    raised.is_ok()
}

/// Takes `bytes` at a multiple of `alignment` (both multiples of 4K, the latter a power of two) below the upper bound.
pub(crate) fn lower(bytes: usize, alignment: usize) -> Option<usize> {
    let mut taken = 0;
    let lowered = BOUNDS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bounds| {
        let (lower, upper) = unpack(bounds);
        if bounds == 0 {
            return None;
        }
        taken = upper.checked_sub(bytes)? & !(alignment - 1);
        (taken >= lower).then(|| pack(lower - layout::ARENA, taken - layout::ARENA))
    });
    lowered.is_ok().then_some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_terabytes_fit_and_come_back() {
        for (lower, upper) in [(0, 0), (4096, 8 << 40), (7 << 40, 7 << 40), (5 << 30, (5 << 30) + 4096)] {
            assert_eq!(unpack(pack(lower, upper)), (layout::ARENA + lower, layout::ARENA + upper));
        }
    }
}
