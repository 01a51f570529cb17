//! Regions: each member of a team makes a mark before and behind its part.
//!
//! The functions have libgomp's names and types and pass it a function of this library; `mark` makes the marks.

use std::ffi::{c_long, c_uint};

use atoll_libgomp::{Function, for_each_region, real};
use atoll_trace_wire::word::Kind;

use crate::mark;

/// The data that members get in place of the region's data.
#[repr(C)]
struct Region {
    /// The first word of the region's data, where libgomp looks for reductions.
    reductions: usize,
    function: Function,
    data: *mut u8,
}

impl Region {
    fn new(function: Function, data: *mut u8) -> Self {
        Self { reductions: 0, function, data }
    }

    fn data(&mut self) -> *mut u8 {
        (&raw mut *self).cast()
    }
}

extern "C" fn member(region: *mut u8) {
    // SAFETY: the leader's `Region`, which outlives the region.
    let Region { function, data, .. } = unsafe { &*region.cast::<Region>() };
    mark::region(Kind::Begin, *function as usize);
    function(*data);
    mark::region(Kind::End, *function as usize);
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_parallel_reductions(
    function: Function,
    data: *mut u8,
    threads: c_uint,
    flags: c_uint,
) -> c_uint {
    let mut region = Region::new(function, data);
    // SAFETY: this kind of region's data begins with the array of its reductions.
    region.reductions = unsafe { *data.cast::<usize>() };
    let real = real!(GOMP_parallel_reductions, fn(Function, *mut u8, c_uint, c_uint) -> c_uint);
    real(member, region.data(), threads, flags)
}

/// Entry points whose region's data is used by the members only; the arguments behind function and data are given by name.
macro_rules! regions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(function: Function, data: *mut u8, $($argument: $type),*) {
            let mut region = Region::new(function, data);
            real!($name, fn(Function, *mut u8, $($type),*))(member, region.data(), $($argument),*);
        }
    )*};
}

for_each_region!(regions);
