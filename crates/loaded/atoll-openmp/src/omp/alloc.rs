//! `omp_alloc` and its family, and allocators; of an allocator's traits, alignment, pool size and fallback count.
//!
//! Memory comes from the program's `malloc`, so it is in the arena like any other and could be freed by plain `free`.

use super::pools::Pools;
use super::spread;
use super::team::me;
use crate::heap::{large, overflow};
use atoll_memory::futex::Lock;
use std::ptr;

const DEFAULT: usize = 1;
/// The greatest handle of a predefined allocator, all of which are alike here: OpenMP's and LLVM's, with unused numbers between
/// them.
const LAST_PREDEFINED: usize = 102;

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

impl Trait {
    /// The trait with the number `key` and this value.
    pub(super) const fn new(key: i32, value: usize) -> Self {
        Trait { key, value }
    }
}

/// An allocator that the program made, which its handle points to. It is memory of the program's own, which other nodes see,
/// and never changes.
#[derive(Clone, Copy)]
struct Allocator {
    alignment: usize,
    pool: usize,
    fallback: usize,
    other: usize,
}

/// The pools of all allocators, where workers share memory; on several nodes the origin keeps them.
static POOLS: Lock<Pools> = Lock::new(Pools::new());

/// Counts `bytes` of `block` against the pool of `handle`; false if the pool has no room for them.
fn take(handle: usize, block: usize, bytes: usize) -> bool {
    if atoll_nodes::active() {
        spread::pools::take(handle, block, bytes)
    } else {
        POOLS.lock().take(handle, block, bytes)
    }
}

/// Counts `bytes` of `block`, which is to replace the block `old`: where that counts against the pool of `handle`, too, it no
/// longer does then, and needs no room besides the new one. If there is no room, nothing changes.
fn take_for(old: Option<usize>, handle: usize, block: usize, bytes: usize) -> bool {
    let Some(old) = old.filter(|old| owner(*old) == Some(handle)) else { return take(handle, block, bytes) };
    if atoll_nodes::active() {
        spread::pools::replace(old, block, bytes)
    } else {
        POOLS.lock().replace(old, block, bytes)
    }
}

/// Notes that the block is free; returns the handle whose pool it counted against, if any.
fn give(block: usize) -> Option<usize> {
    if atoll_nodes::active() { spread::pools::give(block) } else { POOLS.lock().give(block) }
}

/// The handle whose pool the block counts against, if any.
fn owner(block: usize) -> Option<usize> {
    if atoll_nodes::active() { spread::pools::of(block) } else { POOLS.lock().of(block) }
}

/// The program's allocator behind a handle; `None` for predefined ones.
fn made<'a>(handle: usize) -> Option<&'a Allocator> {
    // SAFETY: all handles but the predefined ones are from `omp_init_allocator`.
    (handle > LAST_PREDEFINED).then(|| unsafe { &*(handle as *const Allocator) })
}

fn or_default(handle: usize) -> usize {
    if handle == 0 { omp_get_default_allocator() } else { handle }
}

/// Allocates memory of the program's, to be freed by `free`; null where there is none.
pub(super) fn plain(align: usize, size: usize, zeroed: bool) -> *mut u8 {
    // On several nodes small blocks that this library asks for are its node's own.
    if atoll_nodes::active()
        && size < large::LEAST
        && let Some(block) = overflow::allocate(size, align.max(1), zeroed)
    {
        return block.cast();
    }
    // SAFETY: calls into the C library with any sizes; errors are null.
    unsafe {
        if align <= 16 {
            // An allocator that the program brings may align a block to no more than its size.
            let size = size.max(16);
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

/// What a block is charged to a pool: as in gcc's libgomp, which puts a header in front of each, and programs reckon with that.
fn charge(align: usize, size: usize) -> usize {
    const HEADER: usize = 32;
    size.saturating_add(HEADER).saturating_add(align.saturating_sub(size_of::<usize>()))
}

fn usable(memory: *mut u8) -> usize {
    // SAFETY: the memory is from the C library's allocator.
    unsafe { libc::malloc_usable_size(memory.cast()) }
}

fn allocate(align: usize, size: usize, handle: usize, zeroed: bool) -> *mut u8 {
    allocate_for(None, align, size, handle, zeroed)
}

/// Allocates a block, in the room of the pool's block `old` if that is given.
fn allocate_for(old: Option<usize>, align: usize, size: usize, handle: usize, zeroed: bool) -> *mut u8 {
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
    } else if size <= allocator.pool {
        let memory = plain(align, size, zeroed);
        if !memory.is_null() {
            if take_for(old, or_default(handle), memory as usize, charge(align, size)) {
                return memory;
            }
            // SAFETY: just allocated.
            unsafe { libc::free(memory.cast()) };
        }
    }
    match allocator.fallback {
        FALLBACK_NULL => ptr::null_mut(),
        FALLBACK_ABORT => super::fatal(&format!("Out of memory allocating {size} bytes")),
        FALLBACK_ALLOCATOR => allocate_for(old, align, size, allocator.other, zeroed),
        _ => plain(align, size, zeroed),
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_alloc(size: usize, handle: usize) -> *mut u8 {
    allocate(0, size, handle, false)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_aligned_alloc(align: usize, size: usize, handle: usize) -> *mut u8 {
    allocate(align, size, handle, false)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_calloc(count: usize, size: usize, handle: usize) -> *mut u8 {
    omp_aligned_calloc(0, count, size, handle)
}

#[unsafe(no_mangle)]
extern "C" fn omp_aligned_calloc(align: usize, count: usize, size: usize, handle: usize) -> *mut u8 {
    count.checked_mul(size).map_or(ptr::null_mut(), |size| allocate(align, size, handle, true))
}

/// Frees a block. The runtime knows which allocator it came from, whatever handle the program gives.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_free(memory: *mut u8, handle: usize) {
    if memory.is_null() {
        return;
    }
    // One without a pool is that of a block that counts against none: nobody need be asked, who may be on another node.
    if handle == 0
        || made(handle).is_some_and(|allocator| allocator.pool != usize::MAX || !atoll_nodes::active())
    {
        give(memory as usize);
    }
    // SAFETY: the program gives memory from one of the functions above.
    unsafe { libc::free(memory.cast()) };
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_realloc(
    memory: *mut u8,
    size: usize,
    handle: usize,
    free_handle: usize,
) -> *mut u8 {
    if memory.is_null() {
        return allocate(0, size, handle, false);
    }
    if size == 0 {
        omp_free(memory, free_handle);
        return ptr::null_mut();
    }
    // Without a handle the new block comes from the allocator of the old one.
    let from = || owner(memory as usize).unwrap_or(free_handle);
    let handle = if handle == 0 { from() } else { handle };
    let new = allocate_for(Some(memory as usize), 0, size, handle, false);
    if !new.is_null() {
        // SAFETY: both blocks are at least that long, and do not overlap.
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
    let mut new = Allocator { alignment: 1, pool: usize::MAX, fallback: FALLBACK_DEFAULT, other: DEFAULT };
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the program passes as many traits as it says.
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
    let place = plain(align_of::<Allocator>(), size_of::<Allocator>(), false).cast::<Allocator>();
    if place.is_null() {
        return 0;
    }
    // SAFETY: new memory of that size and alignment.
    unsafe { place.write(new) };
    let handle = place as usize;
    if new.pool != usize::MAX {
        if atoll_nodes::active() {
            spread::pools::make(handle, new.pool);
        } else {
            POOLS.lock().make(handle, new.pool);
        }
    }
    handle
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_destroy_allocator(handle: usize) {
    if handle > LAST_PREDEFINED {
        if made(handle).is_some_and(|allocator| allocator.pool != usize::MAX) {
            if atoll_nodes::active() { spread::pools::forget(handle) } else { POOLS.lock().forget(handle) }
        }
        // SAFETY: the allocator is from `omp_init_allocator` and not used any more.
        unsafe { libc::free(handle as *mut libc::c_void) };
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

/// An allocator that `omp_init_allocator` made, in the syntax of `OMP_ALLOCATOR`.
pub(super) fn describe(handle: usize) -> String {
    let Some(allocator) = made(handle) else { return String::new() };
    let pool =
        if allocator.pool == usize::MAX { String::new() } else { format!(",pool_size={}", allocator.pool) };
    format!("omp_default_mem_space:alignment={}{pool}", allocator.alignment)
}
