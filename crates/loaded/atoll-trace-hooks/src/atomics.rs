//! The functions that `gcc -fsanitize=thread` calls in place of each atomic operation. They carry it out, in the strictest
//! order.
//!
//! They pass the access to `record`; an operation that reads and writes counts as a write.

use std::ffi::c_int;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, compiler_fence, fence};

use crate::record::access_aligned;

macro_rules! atomics {
    ($atomic:ty, $int:ty, $load:ident $store:ident $strong:ident $weak:ident $value:ident, $($name:ident $method:ident)*) => {
        #[unsafe(no_mangle)]
        extern "C" fn $load(at: *mut $int, _order: c_int) -> $int {
            access_aligned(at.addr(), false);
            // SAFETY: the program does an atomic operation on it.
            unsafe { <$atomic>::from_ptr(at) }.load(SeqCst)
        }

        #[unsafe(no_mangle)]
        extern "C" fn $store(at: *mut $int, value: $int, _order: c_int) {
            access_aligned(at.addr(), true);
            // SAFETY: the program does an atomic operation on it.
            unsafe { <$atomic>::from_ptr(at) }.store(value, SeqCst);
        }

        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name(at: *mut $int, value: $int, _order: c_int) -> $int {
                access_aligned(at.addr(), true);
                // SAFETY: the program does an atomic operation on it.
                unsafe { <$atomic>::from_ptr(at) }.$method(value, SeqCst)
            }
        )*

        #[unsafe(no_mangle)]
        extern "C" fn $value(at: *mut $int, expected: $int, value: $int, _: c_int, _: c_int) -> $int {
            access_aligned(at.addr(), true);
            // SAFETY: the program does an atomic operation on it.
            let result = unsafe { <$atomic>::from_ptr(at) }.compare_exchange(expected, value, SeqCst, SeqCst);
            result.unwrap_or_else(|found| found)
        }

        #[unsafe(no_mangle)]
        extern "C" fn $strong(at: *mut $int, expected: *mut $int, value: $int, a: c_int, b: c_int) -> c_int {
            // SAFETY: the program's own variable.
            let before = unsafe { *expected };
            let found = $value(at, before, value, a, b);
            // SAFETY: as above.
            unsafe { *expected = found };
            c_int::from(found == before)
        }

        #[unsafe(no_mangle)]
        extern "C" fn $weak(at: *mut $int, expected: *mut $int, value: $int, a: c_int, b: c_int) -> c_int {
            $strong(at, expected, value, a, b)
        }
    };
}

atomics! {
    AtomicU8, u8,
    __tsan_atomic8_load __tsan_atomic8_store __tsan_atomic8_compare_exchange_strong
    __tsan_atomic8_compare_exchange_weak __tsan_atomic8_compare_exchange_val,
    __tsan_atomic8_exchange swap
    __tsan_atomic8_fetch_add fetch_add
    __tsan_atomic8_fetch_sub fetch_sub
    __tsan_atomic8_fetch_and fetch_and
    __tsan_atomic8_fetch_or fetch_or
    __tsan_atomic8_fetch_xor fetch_xor
    __tsan_atomic8_fetch_nand fetch_nand
}
atomics! {
    AtomicU16, u16,
    __tsan_atomic16_load __tsan_atomic16_store __tsan_atomic16_compare_exchange_strong
    __tsan_atomic16_compare_exchange_weak __tsan_atomic16_compare_exchange_val,
    __tsan_atomic16_exchange swap
    __tsan_atomic16_fetch_add fetch_add
    __tsan_atomic16_fetch_sub fetch_sub
    __tsan_atomic16_fetch_and fetch_and
    __tsan_atomic16_fetch_or fetch_or
    __tsan_atomic16_fetch_xor fetch_xor
    __tsan_atomic16_fetch_nand fetch_nand
}
atomics! {
    AtomicU32, u32,
    __tsan_atomic32_load __tsan_atomic32_store __tsan_atomic32_compare_exchange_strong
    __tsan_atomic32_compare_exchange_weak __tsan_atomic32_compare_exchange_val,
    __tsan_atomic32_exchange swap
    __tsan_atomic32_fetch_add fetch_add
    __tsan_atomic32_fetch_sub fetch_sub
    __tsan_atomic32_fetch_and fetch_and
    __tsan_atomic32_fetch_or fetch_or
    __tsan_atomic32_fetch_xor fetch_xor
    __tsan_atomic32_fetch_nand fetch_nand
}
atomics! {
    AtomicU64, u64,
    __tsan_atomic64_load __tsan_atomic64_store __tsan_atomic64_compare_exchange_strong
    __tsan_atomic64_compare_exchange_weak __tsan_atomic64_compare_exchange_val,
    __tsan_atomic64_exchange swap
    __tsan_atomic64_fetch_add fetch_add
    __tsan_atomic64_fetch_sub fetch_sub
    __tsan_atomic64_fetch_and fetch_and
    __tsan_atomic64_fetch_or fetch_or
    __tsan_atomic64_fetch_xor fetch_xor
    __tsan_atomic64_fetch_nand fetch_nand
}

#[unsafe(no_mangle)]
extern "C" fn __tsan_atomic_thread_fence(_order: c_int) {
    fence(SeqCst);
}

#[unsafe(no_mangle)]
extern "C" fn __tsan_atomic_signal_fence(_order: c_int) {
    compiler_fence(SeqCst);
}
