//! The blocks of a node's agent: whatever its code allocates, in a heap of its own.
//!
//! `small` sends it what is allocated `Inside`. A worker may step the agent from a fault in the middle of `malloc`, where its
//! mimalloc heap is no state to be called in.
//!
//! Rules: no arena access.

use std::alloc::Layout;
use std::cell::Cell;
use std::ops::Range;
use std::ptr::NonNull;

use atoll_memory::spin::Spin;
use rlsf::Tlsf;

use super::place;
use crate::nodes;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread runs the agent's code as long as this lives.
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

/// Does the calling thread run the agent's code?
#[inline]
pub(super) fn is_inside() -> bool {
    INSIDE.get()
}

struct Heap {
    blocks: Tlsf<'static, u32, u32, 32, 32>,
    begun: bool,
}

// SAFETY: its pointers are into pinned memory, which all workers share.
unsafe impl Send for Heap {}

static HEAP: Spin<Heap> = Spin::new(Heap { blocks: Tlsf::new(), begun: false });

/// The last eighth of pinned memory but for what `unpaged` has: where there are several nodes, there is no program break.
fn range() -> Range<usize> {
    let pinned = place::pinned();
    pinned.start + pinned.len() / 8 * 7..pinned.end - pinned.len() / 16
}

/// Is the block from here?
#[inline]
pub(super) fn contains(at: usize) -> bool {
    place::nodes() > 1 && range().contains(&at)
}

/// A block for code that runs [`Inside`], with signals blocked; null if there is no room.
pub(super) fn alloc(layout: Layout) -> *mut u8 {
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

/// Gives a block back.
///
/// # Safety
/// It is from here, and nobody uses it.
pub(super) unsafe fn free(block: *mut u8, layout: Layout) {
    let Some(block) = NonNull::new(block) else { return };
    // SAFETY: as promised; it was made with this layout.
    let give_back = move || unsafe { HEAP.lock().blocks.deallocate(block, layout.align()) };
    // Who holds the lock is not to be interrupted by code that may fault, nor by a fault.
    if is_inside() { give_back() } else { nodes::stack::off_paged(give_back) }
}
