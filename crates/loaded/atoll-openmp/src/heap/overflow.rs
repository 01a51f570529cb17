//! Small blocks in the arena, used once pinned blocks take more of the near limit than they should.
//!
//! Called by `exports`. A program may hold most of its data in small blocks, such as rows of a matrix or nodes of a map. While
//! they are few they stay pinned (`small`), as the kernel may write into any of them. The more near memory they take, the
//! smaller the blocks that are paged from then on. libc's own blocks stay pinned whatever their number, since libc hands them
//! to system calls that nobody can interpose.
//!
//! Each thread has a second mimalloc heap for paged blocks, bound to the last eighth of the arena. What mimalloc writes into
//! free blocks is paged like the rest.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

use atoll_memory::layout;
use libmimalloc_sys as mi;

use super::{exports, place};
use crate::start::objects;
use crate::state;

unsafe extern "C" {
    fn mi_heap_new_in_arena(arena: c_int) -> *mut mi::mi_heap_t;
}

/// The addresses of paged small blocks.
pub(crate) const AREA: Range<usize> =
    layout::ARENA + layout::ARENA_BYTES / 8 * 7..layout::ARENA + layout::ARENA_BYTES;

/// Blocks of libc's below this size are never paged: no buffer that it passes to the kernel is larger.
pub(crate) const LIBC_LEAST: usize = 16 << 20;

/// The bytes of small blocks that a thread allocates before it looks at the amount of pinned memory again.
const LOOK_BYTES: usize = 256 << 10;

/// The least size in bytes of a small block that is paged.
static LEAST: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The key whose destructor forgets an ending thread's heap, plus one; 0 until [`begin`] made it.
static KEY: AtomicU32 = AtomicU32::new(0);
/// mimalloc's number of the area; negative until it has one.
static AREA_ID: AtomicI32 = AtomicI32::new(-1);

thread_local! {
    static HEAP: Cell<*mut mi::mi_heap_t> = const { Cell::new(std::ptr::null_mut()) };
    /// Bytes that this thread allocated since it last looked.
    static SINCE: Cell<usize> = const { Cell::new(0) };
}

/// Has the heaps of threads that end forgotten when mimalloc frees them, by the destructor of a key of pthread's. Called before the
/// program makes keys of its own, whose destructors run behind this one and may allocate.
pub(crate) fn begin() {
    let mut key = 0;
    // SAFETY: the function stays.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(forget)) } == 0 {
        KEY.store(key + 1, Ordering::Relaxed);
    }
}

unsafe extern "C" fn forget(_: *mut c_void) {
    HEAP.set(std::ptr::null_mut());
}

/// Whether a small block of `size` bytes, asked for by the code at `caller`, is to be paged.
#[inline]
pub(crate) fn wants(size: usize, caller: usize) -> bool {
    size >= LEAST.load(Ordering::Relaxed) && !exports::is_private(caller) && !objects::is_own_code(caller)
}

/// Pages all small blocks from now on except libc's, so that they are kept coherent between nodes. Returns whether mimalloc has
/// the area.
pub(crate) fn page_all() -> bool {
    let ready = area().is_some();
    LEAST.store(if ready { 0 } else { usize::MAX }, Ordering::Relaxed);
    ready
}

/// Counts `size` bytes of a pinned block, and looks at pinned memory when enough have been counted.
#[inline]
pub(crate) fn note(size: usize) {
    let since = SINCE.get() + size + 16;
    SINCE.set(since);
    if since >= LOOK_BYTES {
        SINCE.set(0);
        look();
    }
}

/// Looks at how much of near memory is pinned, and sets from which size blocks are paged.
#[cold]
fn look() {
    let Some(pager) = state::pager() else { return };
    let near = pager.control().near();
    // Recorded without a limit, too, since the run's record tells the most that was pinned.
    let pinned = pager.pinned_bytes();
    if near == u64::MAX {
        return;
    }
    let least = least(pinned, near);
    if least < LEAST.load(Ordering::Relaxed) && area().is_some() {
        LEAST.fetch_min(least, Ordering::Relaxed);
    }
}

/// The least size of a small block that is paged when `pinned` of `near` bytes are pinned.
///
/// An eighth of near memory for pinned blocks is what a policy can do without: what is pinned stays near however seldom it is used. With
/// half of it, a program with two large maps of small nodes fetched ten times as many pages.
fn least(pinned: u64, near: u64) -> usize {
    match pinned {
        _ if pinned > near / 8 => 0,
        _ if pinned > near * 3 / 32 => 128,
        _ if pinned > near / 16 => 1024,
        _ => usize::MAX,
    }
}

/// mimalloc's number of the area; mimalloc is given the area first if it has none.
fn area() -> Option<c_int> {
    static GIVING: atoll_memory::spin::Spin<()> = atoll_memory::spin::Spin::new(());
    let _blocked = state::SignalsBlocked::new();
    let _giving = GIVING.lock();
    let known = AREA_ID.load(Ordering::Acquire);
    if known >= 0 {
        return Some(known);
    }
    let mut id = 0;
    // SAFETY: the area is mapped, reads as zeros and is used by nobody else.
    let taken = unsafe {
        super::small::mi_manage_os_memory_ex(
            place::overflow().start as *mut c_void,
            place::overflow().len(),
            true,
            false,
            true,
            -1,
            true,
            &raw mut id,
        )
    };
    // Release: pairs with the Acquire of the threads that use the number.
    AREA_ID.store(if taken { id } else { -1 }, Ordering::Release);
    taken.then_some(id)
}

/// This thread's heap in the area.
fn heap() -> Option<*mut mi::mi_heap_t> {
    let heap = HEAP.get();
    if !heap.is_null() {
        return Some(heap);
    }
    let id = AREA_ID.load(Ordering::Acquire);
    if id < 0 {
        return None;
    }
    // SAFETY: the area with this number is mimalloc's.
    let heap = unsafe { mi_heap_new_in_arena(id) };
    HEAP.set(heap);
    if let Some(key) = KEY.load(Ordering::Relaxed).checked_sub(1) {
        // SAFETY: the key was made; any value but null has its destructor called.
        unsafe { libc::pthread_setspecific(key, heap.cast()) };
    }
    (!heap.is_null()).then_some(heap)
}

/// Allocates a paged block; `None` if that is impossible, so that a pinned one has to serve.
pub(crate) fn allocate(size: usize, alignment: usize, zeroed: bool) -> Option<*mut c_void> {
    let heap = heap()?;
    let size = size.max(super::small::LEAST);
    // SAFETY: the heap is this thread's own.
    let block = unsafe {
        match (alignment > 16, zeroed) {
            (false, false) => mi::mi_heap_malloc(heap, size),
            (false, true) => mi::mi_heap_zalloc(heap, size),
            (true, false) => mi::mi_heap_malloc_aligned(heap, size, alignment),
            (true, true) => mi::mi_heap_zalloc_aligned(heap, size, alignment),
        }
    };
    (!block.is_null()).then_some(block)
}

/// Whether the block is a paged small block.
#[inline]
pub(crate) fn contains(block: *const c_void) -> bool {
    AREA.contains(&(block as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuller_near_memory_the_smaller_the_blocks_that_are_paged() {
        let near = 1 << 30;
        assert_eq!(least(near / 16, near), usize::MAX);
        assert_eq!(least(near / 16 + 1, near), 1024);
        assert_eq!(least(near / 10, near), 128);
        assert_eq!(least(near / 8, near), 128);
        assert_eq!(least(near / 8 + 1, near), 0);
        assert_eq!(least(near, near), 0);
    }
}
