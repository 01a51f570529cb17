//! How a segment lies in physical memory: in how many contiguous pieces.
//!
//! `make` asks once the segment is filled. Only root (CAP_SYS_ADMIN) is told physical addresses.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The pieces a stretch of memory is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pieces {
    /// How many; at least one.
    pub count: u64,
    /// Bytes of the largest.
    pub largest: u64,
}

const FRAME: u64 = (1 << 55) - 1;
const PRESENT: u64 = 1 << 63;

/// The pieces of `start..start + len`, looked at every `step` bytes (the page size). None where the kernel does not
/// tell, or a page is missing.
pub fn pieces(start: usize, len: usize, step: usize) -> Option<Pieces> {
    let pagemap = File::open("/proc/self/pagemap").ok()?;
    let frames = (start..start + len).step_by(step).map(|at| {
        let mut entry = [0; 8];
        pagemap.read_exact_at(&mut entry, (at / 4096 * 8) as u64).ok()?;
        let entry = u64::from_ne_bytes(entry);
        (entry & PRESENT != 0 && entry & FRAME != 0).then_some((entry & FRAME) * 4096)
    });
    count(frames, step as u64)
}

/// Counts the runs of physical addresses that follow each other at distance `step`.
fn count(addresses: impl Iterator<Item = Option<u64>>, step: u64) -> Option<Pieces> {
    let mut found: Option<Pieces> = None;
    let (mut next, mut run) = (0, 0);
    for address in addresses {
        let address = address?;
        let pieces = found.get_or_insert(Pieces { count: 0, largest: 0 });
        if pieces.count == 0 || address != next {
            pieces.count += 1;
            run = 0;
        }
        run += step;
        next = address + step;
        pieces.largest = pieces.largest.max(run);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_where_the_next_page_lies_elsewhere() {
        let of = |list: &[u64]| count(list.iter().map(|&a| Some(a << 20)), 1 << 20);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[7]), Some(Pieces { count: 1, largest: 1 << 20 }));
        assert_eq!(of(&[3, 4, 5, 9, 8, 9]), Some(Pieces { count: 3, largest: 3 << 20 }));
        assert_eq!(count([Some(1), None].into_iter(), 1), None);
    }
}
