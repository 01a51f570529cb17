//! The heap of a node's agent: all that the agent's code allocates comes from here.
//!
//! `small` sends requests here that are made while an [`Inside`] exists. A worker may run the agent's code from a fault in the
//! middle of `malloc`, when its mimalloc heap must not be entered.
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
pub(super) fn is_inside() -> bool {
    INSIDE.get()
}

struct Heap {
    blocks: Tlsf<'static, u32, u32, 32, 32>,
    begun: bool,
}

// SAFETY: the heap's pointers are into pinned memory, which all workers share.
unsafe impl Send for Heap {}

static HEAP: Spin<Heap> = Spin::new(Heap { blocks: Tlsf::new(), begun: false });

/// The addresses of the agent's heap: the last eighth of pinned memory without the part of `unpaged`. On several nodes there is
/// no program break.
fn range() -> Range<usize> {
    let pinned = place::pinned();
    pinned.start + pinned.len() / 8 * 7..pinned.end - pinned.len() / 16
}

/// Whether the block belongs to the agent's heap.
#[inline]
pub(super) fn contains(at: usize) -> bool {
    place::nodes() > 1 && range().contains(&at)
}

/// Allocates a block for code that runs [`Inside`], with signals blocked; null if there is no room.
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

/// Frees a block of the agent's heap.
///
/// # Safety
/// The block is from [`alloc`] with this layout, and nobody uses it.
pub(super) unsafe fn free(block: *mut u8, layout: Layout) {
    let Some(block) = NonNull::new(block) else { return };
    // SAFETY: the caller promises that the block was made with this layout and is not used.
    let give_back = move || unsafe { HEAP.lock().blocks.deallocate(block, layout.align()) };
    // A thread that holds the lock must not be interrupted by code that may fault, nor by a fault.
    if is_inside() { give_back() } else { nodes::stack::off_paged(give_back) }
}
