//! `omp_alloc` and its family, and allocators: of their traits alignment, pool size and fallback count.
//!
//! Memory comes from the program's `malloc`, so that it is the arena's like any other; plain `free` would free it.

use super::team::me;
use crate::heap::{large, overflow};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

const DEFAULT: usize = 1;
/// Handles up to this are predefined allocators, all alike here.
const LAST_PREDEFINED: usize = 8;

const TRAIT_ALIGNMENT: i32 = 2;
const TRAIT_POOL_SIZE: i32 = 4;
const TRAIT_FALLBACK: i32 = 5;
const TRAIT_FALLBACK_DATA: i32 = 6;
const FALLBACK_DEFAULT: usize = 11;
const FALLBACK_NULL: usize = 12;
const FALLBACK_ABORT: usize = 13;
const FALLBACK_ALLOCATOR: usize = 14;

/// `omp_alloctrait_t`.
#[repr(C)]
pub(crate) struct Trait {
    key: i32,
    value: usize,
}

/// What a handle that the program made points to.
struct Allocator {
    alignment: usize,
    pool: usize,
    used: AtomicUsize,
    fallback: usize,
    other: usize,
}

/// The program's allocator behind a handle; none for predefined ones.
fn made<'a>(handle: usize) -> Option<&'a Allocator> {
    // SAFETY: other handles than the predefined ones are from `omp_init_allocator`.
    (handle > LAST_PREDEFINED).then(|| unsafe { &*(handle as *const Allocator) })
}

fn or_default(handle: usize) -> usize {
    if handle == 0 { omp_get_default_allocator() } else { handle }
}

/// Memory of the program's, to be freed by `free`; null where there is none.
pub(super) fn plain(align: usize, size: usize, zeroed: bool) -> *mut u8 {
    // On several nodes small blocks that this library asks for are its node's own.
    if crate::nodes::active()
        && size < large::LEAST
        && let Some(block) = overflow::allocate(size, align.max(1), zeroed)
    {
        return block.cast();
    }
    // SAFETY: calls into the C library with any sizes; errors are null.
    unsafe {
        if align <= 16 {
            return if zeroed { libc::calloc(1, size) } else { libc::malloc(size) }.cast();
        }
        let mut memory = ptr::null_mut();
        if libc::posix_memalign(&raw mut memory, align, size) != 0 {
            return ptr::null_mut();
        }
        if zeroed {
            libc::memset(memory, 0, size);
        }
        memory.cast()
    }
}

fn usable(memory: *mut u8) -> usize {
    // SAFETY: the memory is from the C library's allocator.
    unsafe { libc::malloc_usable_size(memory.cast()) }
}

fn allocate(align: usize, size: usize, handle: usize, zeroed: bool) -> *mut u8 {
    if size == 0 || !(align == 0 || align.is_power_of_two()) {
        return ptr::null_mut();
    }
    let Some(allocator) = made(or_default(handle)) else { return plain(align, size, zeroed) };
    let align = align.max(allocator.alignment);
    if allocator.pool == usize::MAX {
        let memory = plain(align, size, zeroed);
        if !memory.is_null() {
            return memory;
        }
    } else if allocator.used.load(Ordering::Relaxed).saturating_add(size) <= allocator.pool {
        let memory = plain(align, size, zeroed);
        if !memory.is_null() {
            let bytes = usable(memory);
            // Memory has to fit with what the C library adds to it.
            if allocator.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= allocator.pool {
                return memory;
            }
            allocator.used.fetch_sub(bytes, Ordering::Relaxed);
            // SAFETY: just allocated.
            unsafe { libc::free(memory.cast()) };
        }
    }
    match allocator.fallback {
        FALLBACK_NULL => ptr::null_mut(),
        FALLBACK_ABORT => super::fatal(&format!("Out of memory allocating {size} bytes")),
        FALLBACK_ALLOCATOR => allocate(align, size, allocator.other, zeroed),
        _ => plain(align, size, zeroed),
    }
}

#[unsafe(no_mangle)]
extern "C" fn omp_alloc(size: usize, handle: usize) -> *mut u8 {
    allocate(0, size, handle, false)
}

#[unsafe(no_mangle)]
extern "C" fn omp_aligned_alloc(align: usize, size: usize, handle: usize) -> *mut u8 {
    allocate(align, size, handle, false)
}

#[unsafe(no_mangle)]
extern "C" fn omp_calloc(count: usize, size: usize, handle: usize) -> *mut u8 {
    omp_aligned_calloc(0, count, size, handle)
}

#[unsafe(no_mangle)]
extern "C" fn omp_aligned_calloc(align: usize, count: usize, size: usize, handle: usize) -> *mut u8 {
    count.checked_mul(size).map_or(ptr::null_mut(), |size| allocate(align, size, handle, true))
}

/// Gives memory back. Only a pool needs to know from which allocator it was, and programs may leave that out:
/// such memory stays counted.
#[unsafe(no_mangle)]
extern "C" fn omp_free(memory: *mut u8, handle: usize) {
    if memory.is_null() {
        return;
    }
    if let Some(allocator) = made(handle).filter(|allocator| allocator.pool != usize::MAX) {
        let bytes = usable(memory);
        let less = |used: usize| Some(used.saturating_sub(bytes));
        let _ = allocator.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
    // SAFETY: the program gives memory from one of the functions above.
    unsafe { libc::free(memory.cast()) };
}

#[unsafe(no_mangle)]
extern "C" fn omp_realloc(memory: *mut u8, size: usize, handle: usize, free_handle: usize) -> *mut u8 {
    if memory.is_null() {
        return allocate(0, size, handle, false);
    }
    if size == 0 {
        omp_free(memory, free_handle);
        return ptr::null_mut();
    }
    let handle = if handle == 0 { free_handle } else { handle };
    let new = allocate(0, size, handle, false);
    if !new.is_null() {
        // SAFETY: both are at least as long, and apart.
        unsafe { new.copy_from_nonoverlapping(memory, usable(memory).min(size)) };
        omp_free(memory, free_handle);
    }
    new
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_alloc(align: usize, size: usize, handle: usize) -> *mut u8 {
    let memory = allocate(align, size.max(1), handle, false);
    if memory.is_null() {
        super::fatal(&format!("Out of memory allocating {size} bytes"));
    }
    memory
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_free(memory: *mut u8, handle: usize) {
    omp_free(memory, handle);
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_init_allocator(space: usize, count: i32, traits: *const Trait) -> usize {
    let _ = space;
    let mut new = Allocator {
        alignment: 1,
        pool: usize::MAX,
        used: AtomicUsize::new(0),
        fallback: FALLBACK_DEFAULT,
        other: DEFAULT,
    };
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the program gives as many traits as it says.
        let Trait { key, value } = unsafe { &*traits.add(index) };
        let given = *value != usize::MAX;
        match *key {
            TRAIT_ALIGNMENT if given && !value.is_power_of_two() => return 0,
            TRAIT_ALIGNMENT if given => new.alignment = *value,
            TRAIT_POOL_SIZE if given => new.pool = *value,
            TRAIT_FALLBACK if given && !(FALLBACK_DEFAULT..=FALLBACK_ALLOCATOR).contains(value) => return 0,
            TRAIT_FALLBACK if given => new.fallback = *value,
            TRAIT_FALLBACK_DATA => new.other = *value,
            1..=8 => {}
            _ => return 0,
        }
    }
    Box::into_raw(Box::new(new)) as usize
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_destroy_allocator(handle: usize) {
    if handle > LAST_PREDEFINED {
        // SAFETY: from `omp_init_allocator`, and not used any more.
        drop(unsafe { Box::from_raw(handle as *mut Allocator) });
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_set_default_allocator(handle: usize) {
    me().set_icv(|icv| icv.allocator = if handle == 0 { DEFAULT } else { handle });
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_get_default_allocator() -> usize {
    me().icv().allocator
}
