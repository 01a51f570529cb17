//! Counts one thread's allocations: this binary defines `malloc` and its kin, which the linker then uses for Rust's allocator and for the C
//! code of LZ4 and zstd alike.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

pub(crate) static WATCHED: AtomicI32 = AtomicI32::new(0);
pub(crate) static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

fn count_allocation() {
    let watched = WATCHED.load(Relaxed);
    // SAFETY: no arguments.
    if watched != 0 && watched == unsafe { libc::gettid() } {
        ALLOCATIONS.fetch_add(1, Relaxed);
    }
}

// The C library's own functions do the work, so its `free` takes what they give.
unsafe extern "C" {
    fn __libc_malloc(bytes: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, bytes: usize) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, bytes: usize) -> *mut c_void;
    fn __libc_memalign(align: usize, bytes: usize) -> *mut c_void;
}

#[unsafe(no_mangle)]
extern "C" fn malloc(bytes: usize) -> *mut c_void {
    count_allocation();
    // SAFETY: the same function by its other name.
    unsafe { __libc_malloc(bytes) }
}

#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    count_allocation();
    // SAFETY: the same function by its other name.
    unsafe { __libc_calloc(count, bytes) }
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(old: *mut c_void, bytes: usize) -> *mut c_void {
    count_allocation();
    // SAFETY: the same function by its other name.
    unsafe { __libc_realloc(old, bytes) }
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, bytes: usize) -> i32 {
    count_allocation();
    // SAFETY: `to` is the caller's.
    unsafe {
        *to = __libc_memalign(align, bytes);
        if (*to).is_null() { libc::ENOMEM } else { 0 }
    }
}
