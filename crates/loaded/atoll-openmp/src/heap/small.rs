//! Small blocks: mimalloc over one arena of pinned shared memory, the same in every worker.
//!
//! mimalloc's state lies in this library's data and in memory it got from us, both shared. It tells threads apart by their TLS
//! address, which is unique in the team, so it serves processes as it serves threads.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_memory::control::EXIT_NEAR;
use atoll_memory::layout;
use libmimalloc_sys as mi;

use super::{bounds, early, place, scratch};
use crate::state;
use atoll_nodes::heap as agent_heap;

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

/// Option numbers of mimalloc 2.x that the `libmimalloc-sys` crate does not name.
const OPTION_LIMIT_OS_ALLOC: mi::mi_option_t = mi::mi_option_limit_os_alloc;
const OPTION_ARENA_RESERVE: mi::mi_option_t = 23;

/// The bytes of the smallest block that the program gets. mimalloc aligns smaller ones to 8 only, but libc promises 16, and
/// compilers rely on that for types whose alignment is 16.
pub(super) const LEAST: usize = 16;

/// The option for the milliseconds after which unused memory is given back; -1 means never.
const OPTION_PURGE_DELAY: mi::mi_option_t = 15;

/// The option for what mimalloc does as the process ends; above 1 it does nothing.
const OPTION_DESTROY_ON_EXIT: mi::mi_option_t = 22;

/// Has mimalloc do nothing as the process ends. It would do so before the destructors of other libraries run, which use it still, and would take
/// the blocks of threads that have ended for its first heap, paged ones too.
fn stay_until_the_end() {
    // SAFETY: a number.
    unsafe { mi::mi_option_set(OPTION_DESTROY_ON_EXIT, 2) };
}

/// More than mimalloc has options.
const OPTIONS: mi::mi_option_t = 64;

/// Has mimalloc look at the environment now, for all options, and keep what it says. It would do so at uses of each as long as it has not
/// been told that the process is loaded, from any thread: on several nodes `environ` may be a paged variable of the program's, for which
/// the thread that fetches pages would wait for ever.
pub(crate) fn read_options() {
    for option in 0..OPTIONS {
        // SAFETY: numbers; mimalloc answers 0 for an option that it does not have, and ignores its value.
        unsafe { mi::mi_option_set(option, mi::mi_option_get(option)) };
    }
}

/// Gives mimalloc its arena. Called once, before the first block; `false` if mimalloc refuses it.
pub(crate) fn init() -> bool {
    stay_until_the_end();
    // SAFETY: the range is mapped, zeroed and used by nobody else; options are set before first use.
    unsafe {
        mi::mi_option_set(OPTION_LIMIT_OS_ALLOC, 1);
        mi::mi_option_set(mi::mi_option_use_numa_nodes, 1);
        mi::mi_option_set(mi::mi_option_show_errors, 0);
        if place::nodes() > 1 {
            // Memory that mimalloc gave back to the kernel would be gone on this node only.
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

/// mimalloc's unit in bytes: no piece of memory given to it is smaller or aligned to less, and every thread takes one.
pub(crate) const UNIT: usize = 32 << 20;
/// Where small blocks begin and end in a segment; an empty range outside a segment.
static IN_SEGMENT: [AtomicUsize; 2] = [AtomicUsize::new(usize::MAX), AtomicUsize::new(0)];

/// Gives mimalloc its first memory in a segment, `bytes` from `bounds`. Called instead of [`init`].
pub(crate) fn init_in_segment(bytes: usize, end: usize) -> bool {
    stay_until_the_end();
    // SAFETY: options are set before first use.
    unsafe {
        mi::mi_option_set(OPTION_LIMIT_OS_ALLOC, 1);
        mi::mi_option_set(mi::mi_option_use_numa_nodes, 1);
        mi::mi_option_set(mi::mi_option_show_errors, 0);
        // mimalloc would otherwise refuse memory that is never given back to a thread's first blocks.
        mi::mi_option_set(mi::mi_option_eager_commit_delay, 0);
        mi::mi_option_set(OPTION_PURGE_DELAY, -1);
        // More memory comes from `more`.
        mi::mi_option_set(OPTION_ARENA_RESERVE, 0);
    }
    IN_SEGMENT[1].store(end, Ordering::Relaxed);
    more(bytes.next_multiple_of(UNIT))
}

/// Gives mimalloc `bytes` more of the segment, a multiple of [`UNIT`].
fn more(bytes: usize) -> bool {
    let Some(at) = bounds::lower(bytes, UNIT) else { return false };
    IN_SEGMENT[0].fetch_min(at, Ordering::Relaxed);
    let mut id = 0;
    // SAFETY: the stretch is the segment's, reads as zeros and is used by nobody else. Memory declared as large is never given
    // back, which would only cost time here.
    unsafe { mi_manage_os_memory_ex(at as *mut c_void, bytes, true, true, true, -1, false, &raw mut id) }
}

/// Makes a block of `size` bytes with `make`; on failure tries once more with more memory of the segment, if there is some.
#[inline]
pub(super) fn or_with_more(size: usize, make: impl Fn() -> *mut c_void) -> *mut c_void {
    let block = make();
    if block.is_null() && is_segment() && enlarge(size) { make() } else { block }
}

#[inline]
fn is_segment() -> bool {
    IN_SEGMENT[1].load(Ordering::Relaxed) != 0
}

#[cold]
fn enlarge(size: usize) -> bool {
    // mimalloc knows a limited number of pieces, so each must be large enough.
    const PIECES: usize = 64;
    let whole = IN_SEGMENT[1].load(Ordering::Relaxed) - layout::ARENA;
    let needed = size.saturating_add(UNIT).next_multiple_of(UNIT);
    let share = (whole / PIECES).next_multiple_of(UNIT);
    more(needed.max(share)) || more(needed)
}

/// Whether the block is mimalloc's.
#[inline]
pub(crate) fn contains(block: *const c_void) -> bool {
    let at = block as usize;
    layout::in_pinned(at)
        || (at >= IN_SEGMENT[0].load(Ordering::Relaxed) && at < IN_SEGMENT[1].load(Ordering::Relaxed))
}

/// Frees a block of mimalloc's, unless its heap is left as it is.
///
/// # Safety
/// As for `free`, of such a block.
#[inline]
pub(crate) unsafe fn free(block: *mut c_void) {
    if state::heap_ready() {
        // SAFETY: the caller's promise.
        unsafe { mi::mi_free(block) };
    }
}

pub(crate) use mi::{mi_malloc, mi_malloc_aligned, mi_realloc, mi_usable_size, mi_zalloc};

/// Ends the run because the runtime itself cannot go on without a small block.
#[cold]
fn full() -> ! {
    state::give_up(
        EXIT_NEAR,
        if is_segment() {
            "the segment is full: atoll's runtime needs more room; raise --segment-size"
        } else {
            "this machine has no memory left for a small block that atoll's runtime needs"
        },
    )
}

/// The allocator of this library's own Rust code: its blocks are pinned and shared as soon as there is such memory.
pub(crate) struct Pinned;

// SAFETY: blocks come from mimalloc or, before it is ready, from libc or `early`; all keep the contract, and `dealloc`
// tells them apart by address.
unsafe impl GlobalAlloc for Pinned {
    unsafe fn alloc(&self, l: Layout) -> *mut u8 {
        // SAFETY: plain allocation calls.
        unsafe {
            if agent_heap::is_inside() {
                agent_heap::alloc(l)
            } else if scratch::is_inside()
                && let block = scratch::alloc(l)
                && !block.is_null()
            {
                block
            } else if state::heap_ready() {
                let block = or_with_more(l.size(), || mi_malloc_aligned(l.size(), l.align()));
                if block.is_null() {
                    full();
                }
                block.cast()
            } else if let Some(block) = early::alloc(l) {
                block
            } else if l.align() <= 16 {
                __libc_malloc(l.size()).cast()
            } else {
                __libc_memalign(l.align(), l.size()).cast()
            }
        }
    }

    unsafe fn dealloc(&self, p: *mut u8, l: Layout) {
        // SAFETY: p came from `alloc`.
        unsafe {
            if agent_heap::contains(p as usize) {
                agent_heap::free(p, l);
            } else if contains(p.cast()) {
                free(p.cast());
            } else if early::contains(p as usize) {
                early::free(p, l);
            } else if scratch::contains(p as usize) {
                scratch::free(p, l);
            } else {
                __libc_free(p.cast());
            }
        }
    }
}

#[global_allocator]
static GLOBAL: Pinned = Pinned;
