//! Memory of the standard streams, at the same addresses on every node: the program's `stdout` is one variable for all nodes,
//! and each node has a stream of its own behind it.
//!
//! `wrap::stdio` opens this memory while it makes the streams; `exports` serves blocks from it for that time.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const BYTES: usize = 8 << 10;

#[repr(align(64))]
struct Area(UnsafeCell<[u8; BYTES]>);

// SAFETY: each part is touched only by the owner of the block in it.
unsafe impl Sync for Area {}

static AREA: Area = Area(UnsafeCell::new([0; BYTES]));
static NEXT: AtomicUsize = AtomicUsize::new(0);
static OPEN: AtomicBool = AtomicBool::new(false);

/// Sets whether blocks come from here.
pub(crate) fn open(open: bool) {
    OPEN.store(open, Ordering::Relaxed);
}

/// A block of the streams' memory, while it is open.
#[inline]
pub(super) fn take(size: usize) -> Option<*mut c_void> {
    if !OPEN.load(Ordering::Relaxed) {
        return None;
    }
    let bytes = size.next_multiple_of(64);
    let at = NEXT.fetch_add(bytes, Ordering::Relaxed);
    (at + bytes <= BYTES).then(|| AREA.0.get().cast::<u8>().wrapping_add(at).cast())
}

/// Whether the block lies in the streams' memory.
#[inline]
pub(super) fn contains(block: *const c_void) -> bool {
    let start = AREA.0.get() as usize;
    (start..start + BYTES).contains(&(block as usize))
}
