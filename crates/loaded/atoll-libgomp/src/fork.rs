//! libomp's regions, as a library in front of libomp has it run them.
//!
//! The library's entry points are made by [`framed!`](macro@crate::framed), or have the type of [`fork_if`].

use std::ffi::c_void;

use crate::frames::Member;
use crate::real;

/// Has libomp run a region: each member calls `member` with `argument`.
///
/// libomp's function takes any number of arguments; this passes it one.
pub fn fork(location: *const c_void, member: Member, argument: *mut u8) {
    real!(__kmpc_fork_call, fn(*const c_void, i32, Member, *mut u8))(location, 1, member, argument);
}

/// Has libomp run a region as [`fork`] does, of one thread if `condition` is 0. `count` is the number of arguments of the
/// program's function, as the program passed it.
pub fn fork_if(location: *const c_void, count: i32, member: Member, condition: i32, argument: *mut u8) {
    real!(__kmpc_fork_call_if, fn(*const c_void, i32, Member, i32, *mut u8))(
        location, count, member, condition, argument,
    );
}
