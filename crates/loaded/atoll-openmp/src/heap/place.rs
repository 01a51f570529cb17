//! This node's part of each address range: the whole range, unless there are several nodes.
//!
//! The constructor sets it once, before the first block; `small`, `os`, `overflow` and `large` take their addresses from here.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use atoll_memory::layout;

use super::overflow;

static NODE: AtomicU32 = AtomicU32::new(0);
static NODES: AtomicU32 = AtomicU32::new(1);

/// Sets that this is node `node`, from 0, of `nodes`.
pub(crate) fn set(node: u32, nodes: u32) {
    NODE.store(node, Ordering::Relaxed);
    NODES.store(nodes, Ordering::Relaxed);
}

/// The number of nodes.
#[inline]
pub(super) fn nodes() -> u32 {
    NODES.load(Ordering::Relaxed)
}

#[inline]
fn part(start: usize, bytes: usize) -> Range<usize> {
    let (offset, len) = layout::part(bytes, NODE.load(Ordering::Relaxed), nodes());
    start + offset..start + offset + len
}

/// This node's part of pinned memory.
#[inline]
pub(crate) fn pinned() -> Range<usize> {
    part(layout::PINNED, layout::PINNED_BYTES)
}

/// The blocks of the node's agent: the last eighth of pinned memory but for what `unpaged` has. Where there are several nodes, there
/// is no program break, which would lie there.
pub(crate) fn of_agent() -> Range<usize> {
    let pinned = pinned();
    pinned.start + pinned.len() / 8 * 7..pinned.end - pinned.len() / 16
}

/// Worker stacks.
pub(crate) fn stacks() -> Range<usize> {
    part(layout::STACKS, layout::STACKS_BYTES)
}

/// This node's part of the large blocks.
#[inline]
pub(super) fn large() -> Range<usize> {
    part(layout::ARENA, overflow::AREA.start - layout::ARENA)
}

/// This node's part of the small blocks that are paged.
#[inline]
pub(super) fn overflow() -> Range<usize> {
    part(overflow::AREA.start, overflow::AREA.len())
}

/// Whether the address is in one of this node's parts.
pub(super) fn is_own(at: usize) -> bool {
    [pinned(), large(), overflow()].iter().any(|part| part.contains(&at))
}
