//! The heap of a node's agent: all that the agent's code allocates comes from here.
//!
//! `small` sends requests here that are made while an `Inside` exists. A worker may run the agent's code from a fault in the
//! middle of `malloc`, when its mimalloc heap must not be entered.
//!
//! Rules: no arena access.

use std::alloc::Layout;
use std::cell::Cell;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_memory::spin::Spin;
use rlsf::Tlsf;

use crate::stack;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A mark that the calling thread runs the agent's code; dropped when it stops.
pub(crate) struct Inside {
    before: bool,
}

impl Inside {
    pub(crate) fn enter() -> Inside {
        Inside { before: INSIDE.replace(true) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.before);
    }
}

/// Whether the calling thread runs the agent's code.
#[inline]
pub fn is_inside() -> bool {
    INSIDE.get()
}

struct Heap {
    blocks: Tlsf<'static, u32, u32, 32, 32>,
    begun: bool,
}

// SAFETY: the heap's pointers are into pinned memory, which all workers share.
unsafe impl Send for Heap {}

static HEAP: Spin<Heap> = Spin::new(Heap { blocks: Tlsf::new(), begun: false });

/// The stretch in which the agent's blocks lie: its first byte, and the byte behind its last.
static RANGE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// The agent's blocks lie in `range`, which is mapped and used by nobody else. Once, before the first of them, where there are several
/// nodes.
pub fn lie_in(range: Range<usize>) {
    RANGE[0].store(range.start, Ordering::Relaxed);
    RANGE[1].store(range.end, Ordering::Relaxed);
}

fn range() -> Range<usize> {
    let [start, end] = &RANGE;
    start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed)
}

/// Whether the block belongs to the agent's heap.
#[inline]
pub fn contains(at: usize) -> bool {
    range().contains(&at)
}

/// A block for code that runs `Inside` it, with signals blocked; null if there is no room.
pub fn alloc(layout: Layout) -> *mut u8 {
    let mut heap = HEAP.lock();
    if !heap.begun {
        heap.begun = true;
        let range = range();
        let all = std::ptr::slice_from_raw_parts_mut(range.start as *mut u8, range.len());
        // SAFETY: the stretch is mapped, used by nobody else, and stays.
        unsafe { NonNull::new(all).map(|all| heap.blocks.insert_free_block_ptr(all)) };
    }
    heap.blocks.allocate(layout).map_or(std::ptr::null_mut(), NonNull::as_ptr)
}

/// Frees a block of the agent's heap.
///
/// # Safety
/// The block is from here, and nobody uses it.
pub unsafe fn free(block: *mut u8, layout: Layout) {
    let Some(block) = NonNull::new(block) else { return };
    // SAFETY: the caller promises that the block was made with this layout and is not used.
    let give_back = move || unsafe { HEAP.lock().blocks.deallocate(block, layout.align()) };
    // Who holds the lock is not to be interrupted by code that may fault, nor by a fault.
    if is_inside() { give_back() } else { stack::off_paged(give_back) }
}
