//! Blocks of other nodes' heaps that this node's program frees: each is sent home as a message.
//!
//! Called by `exports`. Each node has its own part of the address ranges of blocks (`place`), and only its own workers touch
//! its allocators' state.

use std::sync::atomic::{AtomicBool, Ordering};

use atoll_memory::layout;
use atoll_memory::spin::Spin;

use super::{exports, overflow, place};
use atoll_nodes::ask;

static RETURNED: Spin<Vec<usize>> = Spin::new(Vec::new());
static ANY: AtomicBool = AtomicBool::new(false);

/// The node that `block` belongs to, if it is another one.
#[inline]
pub(super) fn owner(block: usize) -> Option<u32> {
    let (node, nodes) = atoll_nodes::several()?;
    let part = |start: usize, bytes: usize| (block - start) / layout::part(bytes, 0, nodes).1;
    let owner = if overflow::AREA.contains(&block) {
        part(overflow::AREA.start, overflow::AREA.len())
    } else if layout::in_arena(block) {
        part(layout::ARENA, overflow::AREA.start - layout::ARENA)
    } else if layout::in_pinned(block) {
        part(layout::PINNED, layout::PINNED_BYTES)
    } else {
        return None;
    };
    (owner != node as usize).then_some(owner as u32)
}

/// Frees a block of node `owner`.
pub(super) fn free(block: usize, owner: u32) {
    ask::free(block, owner);
}

/// Notes that another node has freed `block`, of this node. The agent calls this; a worker frees the block later.
pub(crate) fn give_back(block: usize) {
    RETURNED.lock().push(block);
    ANY.store(true, Ordering::Release);
}

/// Frees the blocks that other nodes sent back.
#[inline]
pub(super) fn drain() {
    if ANY.load(Ordering::Relaxed) {
        drain_now();
    }
}

#[cold]
fn drain_now() {
    let blocks = atoll_nodes::stack::off_paged(|| {
        ANY.store(false, Ordering::Relaxed);
        std::mem::take(&mut *RETURNED.lock())
    });
    for block in blocks {
        if place::is_own(block) {
            // SAFETY: a block of this node that its program freed on another.
            unsafe { exports::free(block as *mut std::ffi::c_void) };
        }
    }
}
