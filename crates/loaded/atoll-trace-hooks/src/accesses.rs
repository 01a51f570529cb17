//! The functions that `gcc -fsanitize=thread` calls at each access that is not atomic.
//!
//! They pass the access to `record`.

use std::ffi::c_void;

use crate::record::{access, access_aligned};

/// Functions for accesses that are aligned to their size, and so lie within one page.
macro_rules! aligned {
    ($($name:ident $write:literal;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(address: *mut c_void) {
            access_aligned(address.addr(), $write);
        }
    )*};
}

macro_rules! accesses {
    ($($name:ident $bytes:literal $write:literal;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(address: *mut c_void) {
            access(address.addr(), $bytes, $write);
        }
    )*};
}

aligned! {
    __tsan_read1 false;
    __tsan_read2 false;
    __tsan_read4 false;
    __tsan_read8 false;
    __tsan_write1 true;
    __tsan_write2 true;
    __tsan_write4 true;
    __tsan_write8 true;
    __tsan_volatile_read1 false;
    __tsan_volatile_read2 false;
    __tsan_volatile_read4 false;
    __tsan_volatile_read8 false;
    __tsan_volatile_write1 true;
    __tsan_volatile_write2 true;
    __tsan_volatile_write4 true;
    __tsan_volatile_write8 true;
    __tsan_vptr_read false;
}

accesses! {
    __tsan_read16 16 false;
    __tsan_write16 16 true;
    __tsan_unaligned_read2 2 false;
    __tsan_unaligned_read4 4 false;
    __tsan_unaligned_read8 8 false;
    __tsan_unaligned_read16 16 false;
    __tsan_unaligned_write2 2 true;
    __tsan_unaligned_write4 4 true;
    __tsan_unaligned_write8 8 true;
    __tsan_unaligned_write16 16 true;
    __tsan_volatile_read16 16 false;
    __tsan_volatile_write16 16 true;
}

#[unsafe(no_mangle)]
extern "C" fn __tsan_read_range(address: *mut c_void, bytes: usize) {
    if bytes > 0 {
        access(address.addr(), bytes, false);
    }
}

#[unsafe(no_mangle)]
extern "C" fn __tsan_write_range(address: *mut c_void, bytes: usize) {
    if bytes > 0 {
        access(address.addr(), bytes, true);
    }
}

#[unsafe(no_mangle)]
extern "C" fn __tsan_vptr_update(address: *mut c_void, _value: *mut c_void) {
    access_aligned(address.addr(), true);
}

#[unsafe(no_mangle)]
extern "C" fn __tsan_init() {}

#[unsafe(no_mangle)]
extern "C" fn __tsan_func_entry(_caller: *mut c_void) {}

#[unsafe(no_mangle)]
extern "C" fn __tsan_func_exit() {}
