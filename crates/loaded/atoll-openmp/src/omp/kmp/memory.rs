//! Memory allocation under the compiler's and Intel's names, and the predefined allocators as variables.
//!
//! `alloc` implements the allocators; Intel's functions call the program's `malloc`.

use super::super::alloc::*;
use libc::c_void;

#[unsafe(no_mangle)]
extern "C" fn __kmpc_alloc(_: i32, size: usize, handle: usize) -> *mut u8 {
    omp_alloc(size, handle)
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_aligned_alloc(_: i32, align: usize, size: usize, handle: usize) -> *mut u8 {
    omp_aligned_alloc(align, size, handle)
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_calloc(_: i32, count: usize, size: usize, handle: usize) -> *mut u8 {
    omp_calloc(count, size, handle)
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_realloc(
    _: i32,
    memory: *mut u8,
    size: usize,
    handle: usize,
    free_handle: usize,
) -> *mut u8 {
    omp_realloc(memory, size, handle, free_handle)
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_free(_: i32, memory: *mut u8, handle: usize) {
    omp_free(memory, handle);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_init_allocator(_: i32, space: usize, count: i32, traits: *const Trait) -> usize {
    omp_init_allocator(space, count, traits)
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_destroy_allocator(_: i32, handle: usize) {
    omp_destroy_allocator(handle);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_set_default_allocator(_: i32, handle: usize) {
    omp_set_default_allocator(handle);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_get_default_allocator(_: i32) -> usize {
    omp_get_default_allocator()
}

macro_rules! handles {
    ($($name:ident $value:literal;)*) => {$(
        #[unsafe(no_mangle)]
        static $name: usize = $value;
    )*};
}

// Fortran programs take these variables from the library, and so did C programs before `omp.h` defined them as numbers.
mod handles {
    handles! {
        omp_null_allocator 0;
        omp_default_mem_alloc 1;
        omp_large_cap_mem_alloc 2;
        omp_const_mem_alloc 3;
        omp_high_bw_mem_alloc 4;
        omp_low_lat_mem_alloc 5;
        omp_cgroup_mem_alloc 6;
        omp_pteam_mem_alloc 7;
        omp_thread_mem_alloc 8;
        omp_default_mem_space 0;
        omp_large_cap_mem_space 1;
        omp_const_mem_space 2;
        omp_high_bw_mem_space 3;
        omp_low_lat_mem_space 4;
    }
}

macro_rules! blocks {
    ($($malloc:ident $aligned:ident $calloc:ident $realloc:ident $free:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $malloc(size: usize) -> *mut c_void {
            // SAFETY: no preconditions.
            unsafe { libc::malloc(size) }
        }
        #[unsafe(no_mangle)]
        extern "C" fn $aligned(size: usize, align: usize) -> *mut u8 {
            plain(align, size, false)
        }
        #[unsafe(no_mangle)]
        extern "C" fn $calloc(count: usize, size: usize) -> *mut c_void {
            // SAFETY: no preconditions.
            unsafe { libc::calloc(count, size) }
        }
        #[unsafe(no_mangle)]
        extern "C" fn $realloc(memory: *mut c_void, size: usize) -> *mut c_void {
            // SAFETY: the program gives memory from one of these functions.
            unsafe { libc::realloc(memory, size) }
        }
        #[unsafe(no_mangle)]
        extern "C" fn $free(memory: *mut c_void) {
            // SAFETY: as above.
            unsafe { libc::free(memory) };
        }
    )*};
}

blocks! {
    kmp_malloc kmp_aligned_malloc kmp_calloc kmp_realloc kmp_free;
    kmpc_malloc kmpc_aligned_malloc kmpc_calloc kmpc_realloc kmpc_free;
}

macro_rules! fortran {
    ($($malloc:ident $aligned:ident $calloc:ident $realloc:ident $free:ident;)*) => {$(
        // SAFETY (of all): Fortran passes the addresses of its arguments.
        #[unsafe(no_mangle)]
        extern "C" fn $malloc(size: *const usize) -> *mut c_void {
            // SAFETY: as above.
            kmp_malloc(unsafe { *size })
        }
        #[unsafe(no_mangle)]
        extern "C" fn $aligned(size: *const usize, align: *const usize) -> *mut u8 {
            // SAFETY: as above.
            unsafe { kmp_aligned_malloc(*size, *align) }
        }
        #[unsafe(no_mangle)]
        extern "C" fn $calloc(count: *const usize, size: *const usize) -> *mut c_void {
            // SAFETY: as above.
            unsafe { kmp_calloc(*count, *size) }
        }
        #[unsafe(no_mangle)]
        extern "C" fn $realloc(memory: *const *mut c_void, size: *const usize) -> *mut c_void {
            // SAFETY: as above.
            unsafe { kmp_realloc(*memory, *size) }
        }
        #[unsafe(no_mangle)]
        extern "C" fn $free(memory: *const *mut c_void) {
            // SAFETY: as above.
            kmp_free(unsafe { *memory });
        }
    )*};
}

fortran! { kmp_malloc_ kmp_aligned_malloc_ kmp_calloc_ kmp_realloc_ kmp_free_; }
