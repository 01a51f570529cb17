//! The malloc family, interposed: decides by size and address who serves a block.
//!
//! Called by the program and its libraries, libc's own calls included. Before the program is managed, and for
//! blocks from that time, libc's allocator answers.

use std::ffi::{c_int, c_void};

use atoll_memory::layout;

use super::{large, small};
use crate::state;

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(n: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(p: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(alignment: usize, size: usize) -> *mut c_void;
    fn __libc_free(p: *mut c_void);
}

fn no_memory() -> *mut c_void {
    // SAFETY: errno is this thread's.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    std::ptr::null_mut()
}

fn from_large(size: usize, alignment: usize) -> *mut c_void {
    if size > isize::MAX as usize {
        return no_memory();
    }
    large::allocate(size, alignment).map_or_else(no_memory, |at| at as *mut c_void)
}

/// C's `malloc`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn malloc(size: usize) -> *mut c_void {
    // SAFETY: plain allocation calls.
    unsafe {
        if !state::heap_ready() {
            return __libc_malloc(size);
        }
        if size >= large::LEAST && state::pager().is_some() {
            return from_large(size, 16);
        }
        let block = small::mi_malloc(size);
        if block.is_null() { no_memory() } else { block }
    }
}

/// C's `free`.
///
/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn free(block: *mut c_void) {
    if block.is_null() {
        return;
    }
    // SAFETY: the block is given back to whom it came from.
    unsafe {
        if small::contains(block) {
            small::mi_free(block);
        } else if layout::in_arena(block as usize) {
            if !large::free(block as usize) {
                state::give_up(134, "free(): this pointer is not the start of a block");
            }
        } else {
            __libc_free(block);
        }
    }
}

/// C's `calloc`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn calloc(n: usize, size: usize) -> *mut c_void {
    // SAFETY: plain allocation calls.
    unsafe {
        if !state::heap_ready() {
            return __libc_calloc(n, size);
        }
        let Some(bytes) = n.checked_mul(size) else { return no_memory() };
        if bytes >= large::LEAST && state::pager().is_some() {
            // Fresh extents read as zeros.
            return from_large(bytes, 16);
        }
        let block = small::mi_zalloc(bytes);
        if block.is_null() { no_memory() } else { block }
    }
}

/// C's `realloc`.
///
/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    if block.is_null() {
        return malloc(size);
    }
    // SAFETY: the block is live; sizes are known where it came from.
    unsafe {
        let have = if small::contains(block) {
            if size < large::LEAST {
                return small::mi_realloc(block, size);
            }
            small::mi_usable_size(block)
        } else if layout::in_arena(block as usize) {
            if size >= large::LEAST && large::resize(block as usize, size) {
                return block;
            }
            large::size(block as usize).unwrap_or(0)
        } else {
            return __libc_realloc(block, size);
        };
        if size == 0 {
            free(block);
            return std::ptr::null_mut();
        }
        let new = malloc(size);
        if !new.is_null() {
            std::ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast::<u8>(), have.min(size));
            free(block);
        }
        new
    }
}

/// C's `memalign`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn memalign(alignment: usize, size: usize) -> *mut c_void {
    // SAFETY: plain allocation calls.
    unsafe {
        if !state::heap_ready() {
            return __libc_memalign(alignment, size);
        }
        let alignment = alignment.max(1).next_power_of_two();
        if state::pager().is_some() && (size >= large::LEAST || alignment > 1 << 16) {
            return from_large(size, alignment);
        }
        let block = small::mi_malloc_aligned(size, alignment);
        if block.is_null() { no_memory() } else { block }
    }
}

/// C11's `aligned_alloc`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    memalign(alignment, size)
}

/// POSIX' `posix_memalign`.
///
/// # Safety
/// `to` must be valid for a write.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<usize>()) {
        return libc::EINVAL;
    }
    // SAFETY: errno is this thread's and not to be changed; to by the caller.
    unsafe {
        let errno = *libc::__errno_location();
        let block = memalign(alignment, size);
        *libc::__errno_location() = errno;
        if block.is_null() {
            return libc::ENOMEM;
        }
        *to = block;
    }
    0
}

/// The old `valloc`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn valloc(size: usize) -> *mut c_void {
    memalign(4096, size)
}

/// The old `pvalloc`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pvalloc(size: usize) -> *mut c_void {
    memalign(4096, size.next_multiple_of(4096))
}

/// C's `reallocarray`.
///
/// # Safety
/// As `realloc`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn reallocarray(block: *mut c_void, n: usize, size: usize) -> *mut c_void {
    match n.checked_mul(size) {
        // SAFETY: by the caller.
        Some(bytes) => unsafe { realloc(block, bytes) },
        None => no_memory(),
    }
}

/// glibc's `malloc_usable_size`.
///
/// # Safety
/// `block` must be live or null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    if block.is_null() {
        return 0;
    }
    // SAFETY: the block is live.
    unsafe {
        if small::contains(block) {
            small::mi_usable_size(block)
        } else if layout::in_arena(block as usize) {
            large::size(block as usize).unwrap_or(0)
        } else {
            // A chunk of glibc's: its size word, without flag bits and header.
            (*block.cast::<usize>().sub(1) & !7).saturating_sub(8)
        }
    }
}
