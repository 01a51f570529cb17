//! Pinned shared memory for mimalloc's own bookkeeping, taken where it would call the kernel's `mmap`.
//!
//! Used by `mapping` for calls from inside this library. mimalloc's blocks come from the one arena that `small`
//! gives it; what arrives here is a few pages a worker, kept in free lists by size.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_memory::layout;
use atoll_memory::spin::Spin;

/// The last quarter of pinned memory, but for what `brk` has.
const PINNED: Range<usize> = layout::PINNED + layout::PINNED_BYTES / 4 * 3..BREAK.start;

/// The program break's own stretch: the kernel's would be private to each worker.
pub(crate) const BREAK: Range<usize> =
    layout::PINNED + layout::PINNED_BYTES / 8 * 7..layout::PINNED + layout::PINNED_BYTES;

/// What there is: a part of pinned memory, or of the segment.
static START: AtomicUsize = AtomicUsize::new(PINNED.start);
static END: AtomicUsize = AtomicUsize::new(PINNED.end);

/// Takes pieces from this stretch of the segment from now on. Before the first piece.
pub(crate) fn use_segment(stretch: Range<usize>) {
    START.store(stretch.start, Ordering::Relaxed);
    END.store(stretch.end, Ordering::Relaxed);
    OS.lock().next = stretch.start;
}

struct Os {
    next: usize,
    /// Freed pieces of one, two, .. 16 pages: heads of lists linked through their first word.
    free: [usize; 17],
}

static OS: Spin<Os> = Spin::new(Os { next: PINNED.start, free: [0; 17] });

/// `len` bytes of zeroed pinned memory, page-aligned; `None` when all is used.
pub(crate) fn map(len: usize) -> Option<usize> {
    let pages = len.div_ceil(4096);
    let mut os = OS.lock();
    if pages < os.free.len() && os.free[pages] != 0 {
        let at = os.free[pages];
        // SAFETY: a freed piece's first word is the list's link; then it is ours and becomes zero again.
        unsafe {
            os.free[pages] = *(at as *const usize);
            std::ptr::write_bytes(at as *mut u8, 0, pages * 4096);
        }
        return Some(at);
    }
    let at = os.next;
    if at + pages * 4096 > END.load(Ordering::Relaxed) {
        return None;
    }
    os.next = at + pages * 4096;
    Some(at)
}

/// Is the piece from here?
pub(crate) fn contains(at: usize) -> bool {
    (START.load(Ordering::Relaxed)..END.load(Ordering::Relaxed)).contains(&at)
}

/// Gives a piece back.
pub(crate) fn unmap(at: usize, len: usize) {
    let pages = len.div_ceil(4096);
    let mut os = OS.lock();
    if pages < os.free.len() {
        // SAFETY: the caller owned the piece and gives it up.
        unsafe { *(at as *mut usize) = os.free[pages] };
        os.free[pages] = at;
    }
}
