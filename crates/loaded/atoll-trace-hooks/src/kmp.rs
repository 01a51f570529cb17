//! libomp's regions and barriers: a mark before and behind each member's part, and once a barrier is passed.
//!
//! This does for libomp what `regions` and `barriers` do for libgomp; `mark` makes the marks. Compilers themselves add a call
//! of a barrier at the end of each loop and section.

use std::ffi::c_void;

use atoll_libgomp::frames::{self, Member};
use atoll_libgomp::{fork, framed, real, with_caller};
use atoll_trace_wire::word::Kind;

use crate::mark;

unsafe extern "C" fn member(global: *const i32, bound: *const i32, frame: *mut u8) {
    // SAFETY: the pointer comes from `framed`, or was made like one in `__kmpc_fork_call_if`; the function that made it waits
    // for the region's end.
    let function = unsafe { frames::outlined(frame) };
    mark::region(Kind::Begin, function);
    // SAFETY: as above.
    unsafe { frames::call(frame.cast(), global, bound) };
    mark::region(Kind::End, function);
}

extern "C" fn begin(location: *const c_void, frame: *mut u8) {
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
    // Function, number of arguments, and the words that a call may read.
    let mut frame = [function as usize, count as usize, argument as usize, 0, 0, 0];
    fork::fork_if(location, 1, member, condition, frame.as_mut_ptr().cast());
}

extern "C" fn barrier(location: *const c_void, thread: i32, site: usize) {
    real!(__kmpc_barrier, fn(*const c_void, i32))(location, thread);
    mark::barrier(site);
}

extern "C" fn cancel_barrier(location: *const c_void, thread: i32, site: usize) -> i32 {
    let cancelled = real!(__kmpc_cancel_barrier, fn(*const c_void, i32) -> i32)(location, thread);
    mark::barrier(site);
    cancelled
}

with_caller! {
    __kmpc_barrier to barrier as argument 2;
    __kmpc_cancel_barrier to cancel_barrier as argument 2;
}
