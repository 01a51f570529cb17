//! libomp's regions: the first thread marks where one begins and ends.
//!
//! This does for libomp what `regions` does for libgomp. The regions of a league's teams are marked one by one.

use std::ffi::c_void;

use atoll_libgomp::frames::{self, Member};
use atoll_libgomp::{fork, framed};

use crate::regions::Region;

unsafe extern "C" fn member(global: *const i32, bound: *const i32, frame: *mut u8) {
    // SAFETY: `begin` passes the frame, and waits for the region's end.
    unsafe { frames::call(frame.cast(), global, bound) };
}

extern "C" fn begin(location: *const c_void, frame: *mut u8) {
    // SAFETY: from `framed`.
    let _region = Region::begin(unsafe { frames::outlined(frame) });
    fork::fork(location, member, frame);
}

framed! {
    /// `void __kmpc_fork_call(location, count, function, ...)`.
    __kmpc_fork_call begin;
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_fork_call_if(
    location: *const c_void,
    count: i32,
    function: Member,
    condition: i32,
    argument: *mut u8,
) {
    let _region = Region::begin(function as usize);
    fork::fork_if(location, count, function, condition, argument);
}
