//! The malloc family, interposed: size and address of a block decide which allocator serves it.
//!
//! The program and its libraries call it, and so does libc. Until the program is managed libc's allocator answers, and goes on
//! to answer for the blocks of that time.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use atoll_libgomp::with_caller;
use atoll_memory::layout;

use super::large::Content;
use super::{foreign, large, linker, overflow, small, streams};
use crate::start::{objects, take_over};
use crate::{journal, state};

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

fn from_large(size: usize, alignment: usize, is_zeroed: bool) -> *mut c_void {
    if size > isize::MAX as usize {
        return no_memory();
    }
    large::allocate_block(size, alignment, is_zeroed).map_or_else(
        || {
            crate::start::segment::say_full(size);
            no_memory()
        },
        |at| at as *mut c_void,
    )
}

thread_local! {
    /// Whether blocks that libc asks for are to be allocated as the program's own.
    static TRAVELS: Cell<bool> = const { Cell::new(false) };
}

/// Sets whether what libc allocates in this thread is the program's own from now on; returns the setting before. For several
/// nodes.
pub(crate) fn set_travels(on: bool) -> bool {
    TRAVELS.replace(on)
}

/// Whether the code at `caller` is libc's, or that of a library that works on libc's private data, so that its blocks are
/// private to the node.
#[inline]
pub(super) fn is_private(caller: usize) -> bool {
    objects::is_private_code(caller) && !TRAVELS.get()
}

/// Allocates a block as the program itself would get one, where there are several nodes.
pub(crate) fn program_block(size: usize) -> Option<*mut c_void> {
    if size >= large::LEAST {
        large::allocate(size, 16, Content::Zeros).map(|at| at as *mut c_void)
    } else {
        overflow::allocate(size, 16, false)
    }
}

/// Allocates a block from the heap that serves this size and `caller`, the address of the code that asks.
fn allocate(size: usize, alignment: usize, zeroed: bool, caller: usize) -> *mut c_void {
    foreign::drain();
    if let Some(block) = streams::take(size) {
        return block;
    }
    let libc_asks = || size < overflow::LIBC_LEAST && is_private(caller);
    let large = size >= large::LEAST || alignment > 1 << 16;
    if large && state::pager().is_some() && !libc_asks() {
        let block = from_large(size, alignment, zeroed);
        if !block.is_null() {
            journal::block(block as usize, size, caller);
        }
        return block;
    }
    if overflow::wants(size, caller)
        && let Some(block) = overflow::allocate(size, alignment, zeroed)
    {
        return block;
    }
    overflow::note(size);
    let size = size.max(small::LEAST);
    // SAFETY: plain allocation calls.
    let block = small::or_with_more(size.saturating_add(alignment), || unsafe {
        match (alignment > 16, zeroed) {
            (false, false) => small::mi_malloc(size),
            (false, true) => small::mi_zalloc(size),
            (true, _) => small::mi_malloc_aligned(size, alignment),
        }
    });
    if block.is_null() { no_memory() } else { block }
}

with_caller! {
    /// C's `malloc`.
    malloc to malloc_for as argument 1;
    /// C's `calloc`.
    calloc to calloc_for as argument 2;
    /// C's `realloc`.
    realloc to realloc_for as argument 2;
    /// C's `reallocarray`.
    reallocarray to reallocarray_for as argument 3;
    /// C's `memalign`.
    memalign to memalign_for as argument 2;
    /// C11's `aligned_alloc`.
    aligned_alloc to memalign_for as argument 2;
    /// POSIX' `posix_memalign`.
    posix_memalign to posix_memalign_for as argument 3;
    /// The old `valloc`.
    valloc to valloc_for as argument 1;
    /// The old `pvalloc`.
    pvalloc to pvalloc_for as argument 1;
}

/// Whether the runtime serves blocks. A request of `size` bytes may be the one that makes the program managed.
#[inline]
fn is_ready(size: usize, caller: usize) -> bool {
    // While another thread makes the process managed, requests for large blocks wait until these can be paged.
    if state::heap_ready() && !(size >= large::LEAST && take_over::is_watched()) {
        return true;
    }
    take_over::asked(size, caller);
    state::heap_ready()
}

pub(super) extern "C" fn malloc_for(size: usize, caller: usize) -> *mut c_void {
    if linker::asks(caller)
        && let Some(block) = linker::take(size)
    {
        return block;
    }
    if !is_ready(size, caller) {
        // SAFETY: a plain allocation call.
        return unsafe { __libc_malloc(size) };
    }
    allocate(size, 16, false, caller)
}

/// C's `free`.
///
/// # Safety
/// The same as for C's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn free(block: *mut c_void) {
    if block.is_null() {
        return;
    }
    if let Some(owner) = foreign::owner(block as usize) {
        return foreign::free(block as usize, owner);
    }
    // SAFETY: the block is given back to whom it came from.
    unsafe {
        if streams::contains(block) {
            // Blocks of this kind are few and stay for good.
        } else if small::contains(block) || overflow::contains(block) {
            small::free(block);
        } else if layout::in_arena(block as usize) {
            // Told before the block is free, because another thread may get its memory at once.
            journal::free(block as usize);
            if !large::free_block(block as usize) {
                state::give_up(134, "free(): this pointer is not the start of a block");
            }
        } else if linker::contains(block) {
            linker::give(block);
        } else {
            __libc_free(block);
        }
    }
}

extern "C" fn calloc_for(n: usize, size: usize, caller: usize) -> *mut c_void {
    if linker::asks(caller)
        && let Some(block) = linker::take(n.saturating_mul(size))
    {
        return block;
    }
    if !is_ready(n.saturating_mul(size), caller) {
        // SAFETY: a plain allocation call.
        return unsafe { __libc_calloc(n, size) };
    }
    n.checked_mul(size).map_or_else(no_memory, |bytes| allocate(bytes, 16, true, caller))
}

unsafe extern "C" fn realloc_for(block: *mut c_void, size: usize, caller: usize) -> *mut c_void {
    if block.is_null() {
        return malloc_for(size, caller);
    }
    if linker::contains(block) || linker::asks(caller) {
        return realloc_of_linker(block, size, caller);
    }
    // SAFETY: the block is live; sizes are known where it came from.
    unsafe {
        let have = if small::contains(block) {
            let is_for_small = size > 0 && size < large::LEAST && state::heap_ready();
            if is_for_small && !overflow::wants(size, caller) {
                overflow::note(size.saturating_sub(small::mi_usable_size(block)));
                let size = size.max(small::LEAST);
                return small::or_with_more(size, || small::mi_realloc(block, size));
            }
            small::mi_usable_size(block)
        } else if overflow::contains(block) {
            let have = small::mi_usable_size(block);
            if size > 0
                && size <= have
                && size.max(small::LEAST) >= have / 2
                && !(objects::is_libc_code(caller) && is_private(caller))
            {
                return block;
            }
            have
        } else if layout::in_arena(block as usize) {
            if size >= large::LEAST
                && foreign::owner(block as usize).is_none()
                && large::resize(block as usize, size, Content::Any)
            {
                journal::block(block as usize, size, caller);
                return block;
            }
            large::size(block as usize).unwrap_or(0)
        } else if size >= large::LEAST && is_ready(size, caller) && state::pager().is_some() {
            // A block that libc allocated before the program was managed becomes one of ours as it grows.
            malloc_usable_size(block)
        } else {
            return __libc_realloc(block, size);
        };
        if size == 0 {
            free(block);
            return std::ptr::null_mut();
        }
        // In a process that was forked the heap may be libc's by now.
        let new = malloc_for(size, caller);
        if !new.is_null() {
            std::ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast::<u8>(), have.min(size));
            free(block);
        }
        new
    }
}

/// Makes a block of the dynamic linker's longer, in the midst of a fault now or when it was made. The old one stays for good if it is the
/// heap's: it is small, and must not be freed now.
#[cold]
fn realloc_of_linker(block: *mut c_void, size: usize, caller: usize) -> *mut c_void {
    let is_ours = linker::contains(block);
    // SAFETY: a live block.
    let have = if is_ours { linker::size() } else { unsafe { malloc_usable_size(block) } };
    let new = malloc_for(size, caller);
    if !new.is_null() {
        // SAFETY: both have so many bytes.
        unsafe { std::ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast::<u8>(), have.min(size)) };
        if is_ours {
            linker::give(block);
        }
    }
    new
}

pub(super) extern "C" fn memalign_for(alignment: usize, size: usize, caller: usize) -> *mut c_void {
    if !is_ready(size, caller) {
        // SAFETY: a plain allocation call.
        return unsafe { __libc_memalign(alignment, size) };
    }
    allocate(size, alignment.max(1).next_power_of_two(), false, caller)
}

unsafe extern "C" fn posix_memalign_for(
    to: *mut *mut c_void,
    alignment: usize,
    size: usize,
    caller: usize,
) -> c_int {
    if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<usize>()) {
        return libc::EINVAL;
    }
    // SAFETY: errno is this thread's and must not change; the rest is the caller's promise.
    unsafe {
        let errno = *libc::__errno_location();
        let block = memalign_for(alignment, size, caller);
        *libc::__errno_location() = errno;
        if block.is_null() {
            return libc::ENOMEM;
        }
        *to = block;
    }
    0
}

extern "C" fn valloc_for(size: usize, caller: usize) -> *mut c_void {
    memalign_for(4096, size, caller)
}

extern "C" fn pvalloc_for(size: usize, caller: usize) -> *mut c_void {
    memalign_for(4096, size.next_multiple_of(4096), caller)
}

unsafe extern "C" fn reallocarray_for(
    block: *mut c_void,
    n: usize,
    size: usize,
    caller: usize,
) -> *mut c_void {
    match n.checked_mul(size) {
        // SAFETY: the caller's promise.
        Some(bytes) => unsafe { realloc_for(block, bytes, caller) },
        None => no_memory(),
    }
}

/// Flag in the size word of a chunk of glibc's: it is a mapping of its own.
const MAPPED: usize = 2;

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
        if small::contains(block) || overflow::contains(block) {
            small::mi_usable_size(block)
        } else if layout::in_arena(block as usize) {
            large::size(block as usize).unwrap_or(0)
        } else if linker::contains(block) {
            linker::size()
        } else {
            // The block is a chunk of glibc's: its size word, without flag bits and header; the header is longer where the
            // chunk is a mapping of its own.
            let word = *block.cast::<usize>().sub(1);
            (word & !7).saturating_sub(if word & MAPPED != 0 { 16 } else { 8 })
        }
    }
}
