//! The compiler's names for locks, and locks with hints, which change nothing.
//!
//! The functions stand on the runtime's `locks`, which also defines `omp_init_lock` and its family.

use super::super::locks::*;
use super::kinds::Location;

macro_rules! plain {
    ($($name:ident $to:ident $(-> $result:ty)?;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(_: *const Location, _: i32, lock: *mut u32) $(-> $result)? {
            $to(lock)
        }
    )*};
}

plain! {
    __kmpc_init_lock omp_init_lock;
    __kmpc_destroy_lock omp_destroy_lock;
    __kmpc_set_lock omp_set_lock;
    __kmpc_unset_lock omp_unset_lock;
    __kmpc_test_lock omp_test_lock -> i32;
}

macro_rules! nested {
    ($($name:ident $to:ident $(-> $result:ty)?;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(_: *const Location, _: i32, lock: *mut *const NestLock) $(-> $result)? {
            $to(lock)
        }
    )*};
}

nested! {
    __kmpc_init_nest_lock omp_init_nest_lock;
    __kmpc_destroy_nest_lock omp_destroy_nest_lock;
    __kmpc_set_nest_lock omp_set_nest_lock;
    __kmpc_unset_nest_lock omp_unset_nest_lock;
    __kmpc_test_nest_lock omp_test_nest_lock -> i32;
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_init_lock_with_hint(_: *const Location, _: i32, lock: *mut u32, _hint: usize) {
    omp_init_lock(lock);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_init_nest_lock_with_hint(
    _: *const Location,
    _: i32,
    lock: *mut *const NestLock,
    _hint: usize,
) {
    omp_init_nest_lock(lock);
}

macro_rules! hinted {
    ($($name:ident $to:ident $lock:ty;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(lock: $lock, _hint: usize) {
            $to(lock);
        }
    )*};
}

hinted! {
    omp_init_lock_with_hint omp_init_lock *mut u32;
    omp_init_lock_with_hint_ omp_init_lock *mut u32;
    omp_init_nest_lock_with_hint omp_init_nest_lock *mut *const NestLock;
    omp_init_nest_lock_with_hint_ omp_init_nest_lock *mut *const NestLock;
}
