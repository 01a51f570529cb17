//! Small blocks: mimalloc over one arena of pinned shared memory, the same in every worker.
//!
//! mimalloc's state lies in this library's data and in memory it got from us, both shared, and it tells threads
//! apart by their TLS address, which is unique in the team: so it serves processes as it serves threads.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_void};

use atoll_memory::layout;
use libmimalloc_sys as mi;

use super::place;

unsafe extern "C" {
    pub(super) fn mi_manage_os_memory_ex(
        start: *mut c_void,
        size: usize,
        is_committed: bool,
        is_large: bool,
        is_zero: bool,
        numa_node: c_int,
        exclusive: bool,
        arena_id: *mut c_int,
    ) -> bool;
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_memalign(alignment: usize, size: usize) -> *mut c_void;
    fn __libc_free(p: *mut c_void);
}

/// Option numbers of mimalloc 2.x that its crate does not name.
const OPTION_LIMIT_OS_ALLOC: mi::mi_option_t = mi::mi_option_limit_os_alloc;

/// Milliseconds after which unused memory goes back; -1: never.
const OPTION_PURGE_DELAY: mi::mi_option_t = 15;

/// Gives mimalloc its arena. Once, before the first block.
pub(crate) fn init() -> bool {
    // SAFETY: the range is mapped, zeroed and used by nobody else; options are set before first use.
    unsafe {
        mi::mi_option_set(OPTION_LIMIT_OS_ALLOC, 1);
        mi::mi_option_set(mi::mi_option_use_numa_nodes, 1);
        mi::mi_option_set(mi::mi_option_show_errors, 0);
        if place::nodes() > 1 {
            // What it gives back to the system would be gone on this node only.
            mi::mi_option_set(OPTION_PURGE_DELAY, -1);
        }
        let mut id = 0;
        mi_manage_os_memory_ex(
            place::pinned().start as *mut c_void,
            place::pinned().len() / 4 * 3,
            true,
            false,
            true,
            -1,
            false,
            &raw mut id,
        )
    }
}

/// Is the block mimalloc's?
#[inline]
pub(crate) fn contains(block: *const c_void) -> bool {
    layout::in_pinned(block as usize)
}

pub(crate) use mi::{mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_usable_size, mi_zalloc};

/// The allocator of this library's own Rust code: pinned and shared as soon as there is such memory.
pub(crate) struct Pinned;

// SAFETY: blocks come from mimalloc or, before it is ready, from libc; both keep the contract, and `dealloc`
// tells them apart by address.
unsafe impl GlobalAlloc for Pinned {
    unsafe fn alloc(&self, l: Layout) -> *mut u8 {
        // SAFETY: plain allocation calls.
        unsafe {
            if crate::state::heap_ready() {
                mi_malloc_aligned(l.size(), l.align()).cast()
            } else if l.align() <= 16 {
                __libc_malloc(l.size()).cast()
            } else {
                __libc_memalign(l.align(), l.size()).cast()
            }
        }
    }

    unsafe fn dealloc(&self, p: *mut u8, _: Layout) {
        // SAFETY: p came from `alloc`.
        unsafe { if contains(p.cast()) { mi_free(p.cast()) } else { __libc_free(p.cast()) } }
    }
}

#[global_allocator]
static GLOBAL: Pinned = Pinned;
