//! libgomp's regions: the first thread marks where one begins and ends.
//!
//! A region inside of another is part of it.

use std::cell::Cell;
use std::ffi::{c_long, c_uint};

use atoll_libgomp::{Function, for_each_region, real};
use atoll_profile_wire::What;

use crate::start::{mark, on};

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// A region that was marked; its end is marked when this value is dropped.
pub(crate) struct Region(bool);

impl Region {
    /// Marks a region's begin; `function` is the address of the region's outlined function.
    pub(crate) fn begin(function: usize) -> Self {
        // SAFETY: no pointers.
        let first = on()
            && DEPTH.get() == 0
            && unsafe { libc::syscall(libc::SYS_gettid) == i64::from(libc::getpid()) };
        DEPTH.set(DEPTH.get() + 1);
        if first {
            mark(What::RegionBegin { function: function as u64 });
        }
        Self(first)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if self.0 {
            mark(What::RegionEnd);
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_parallel_reductions(
    function: Function,
    data: *mut u8,
    threads: c_uint,
    flags: c_uint,
) -> c_uint {
    let _region = Region::begin(function as usize);
    real!(GOMP_parallel_reductions, fn(Function, *mut u8, c_uint, c_uint) -> c_uint)(
        function, data, threads, flags,
    )
}

/// Entry points that run a region; the arguments behind function and data are given by name.
macro_rules! regions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(function: Function, data: *mut u8, $($argument: $type),*) {
            let _region = Region::begin(function as usize);
            real!($name, fn(Function, *mut u8, $($type),*))(function, data, $($argument),*);
        }
    )*};
}

for_each_region!(regions);
