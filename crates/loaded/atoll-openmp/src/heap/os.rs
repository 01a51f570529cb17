//! Pinned shared memory for mimalloc's own bookkeeping, where mimalloc would call the kernel's `mmap`.
//!
//! Used by `mapping` for calls from inside this library. mimalloc's blocks come from the arena that `small` gives it; only a
//! few pages a worker come from here, kept in free lists by size.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_memory::spin::Spin;

use super::place;

/// The segment's stretches for this memory and for the program break, as start and end; empty outside a segment.
static IN_SEGMENT: [[AtomicUsize; 2]; 2] = [const { [const { AtomicUsize::new(0) }; 2] }; 2];

/// Takes pieces from `pieces`, a stretch of the segment, and moves the program break in `program_break`. Called before the
/// first piece.
pub(crate) fn use_segment(pieces: Range<usize>, program_break: Range<usize>) {
    for (place, range) in IN_SEGMENT.iter().zip([pieces, program_break]) {
        place[0].store(range.start, Ordering::Relaxed);
        place[1].store(range.end, Ordering::Relaxed);
    }
}

/// One of the two stretches of [`IN_SEGMENT`], if the program is in a segment.
fn in_segment(part: usize) -> Option<Range<usize>> {
    let [start, end] = IN_SEGMENT[part].each_ref().map(|bound| bound.load(Ordering::Relaxed));
    (end != 0).then_some(start..end)
}

/// The addresses of this memory: the last quarter of pinned memory without the part of `brk`.
fn range() -> Range<usize> {
    if let Some(pieces) = in_segment(0) {
        return pieces;
    }
    let pinned = place::pinned();
    pinned.start + pinned.len() / 4 * 3..pinned.start + pinned.len() / 8 * 7
}

/// The program break's own stretch, which ends where `unpaged` begins; the kernel's break would be private to each worker.
/// Empty on several nodes, where a break would be private to each node.
pub(crate) fn program_break() -> Range<usize> {
    if let Some(stretch) = in_segment(1) {
        return stretch;
    }
    let pinned = place::pinned();
    let end = pinned.end;
    if place::nodes() > 1 { end..end } else { range().end..pinned.start + pinned.len() / 16 * 15 }
}

struct Os {
    next: usize,
    /// Freed pieces of 1 to 16 pages: the heads of lists linked through each piece's first word.
    free: [usize; 17],
}

static OS: Spin<Os> = Spin::new(Os { next: 0, free: [0; 17] });

/// Allocates `len` bytes of zeroed pinned memory, page-aligned; `None` when all is used.
pub(crate) fn map(len: usize) -> Option<usize> {
    let pages = len.div_ceil(4096);
    let mut os = OS.lock();
    if pages < os.free.len() && os.free[pages] != 0 {
        let at = os.free[pages];
        // SAFETY: the first word of a freed piece is the list's link; the piece now belongs to the caller and becomes zero
        // again.
        unsafe {
            os.free[pages] = *(at as *const usize);
            std::ptr::write_bytes(at as *mut u8, 0, pages * 4096);
        }
        return Some(at);
    }
    let at = os.next.max(range().start);
    if at + pages * 4096 > range().end {
        return None;
    }
    os.next = at + pages * 4096;
    Some(at)
}

/// Whether the piece was allocated here.
pub(crate) fn contains(at: usize) -> bool {
    range().contains(&at)
}

/// Frees a piece.
pub(crate) fn unmap(at: usize, len: usize) {
    let pages = len.div_ceil(4096);
    let mut os = OS.lock();
    if pages < os.free.len() {
        // SAFETY: the caller owned the piece and gives it up.
        unsafe { *(at as *mut usize) = os.free[pages] };
        os.free[pages] = at;
    }
}
