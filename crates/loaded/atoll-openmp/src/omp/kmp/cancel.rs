//! Cancellation, and the points where threads look for it.
//!
//! The runtime's `cancel` implements them; only the numbers of the constructs differ.

use super::super::cancel::{GOMP_cancel, GOMP_cancellation_point};
use super::kinds::Location;

/// The runtime's number of a construct, from the one in LLVM's ABI: a region, a loop, sections, a task group.
fn construct(kind: i32) -> i32 {
    match kind {
        1..=4 => 1 << (kind - 1),
        _ => 0,
    }
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_cancel(_: *const Location, _: i32, kind: i32) -> i32 {
    i32::from(GOMP_cancel(construct(kind), true))
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_cancellationpoint(_: *const Location, _: i32, kind: i32) -> i32 {
    i32::from(GOMP_cancellation_point(construct(kind)))
}

#[unsafe(no_mangle)]
extern "C" fn kmp_get_cancellation_status(kind: i32) -> i32 {
    i32::from(GOMP_cancellation_point(construct(kind)))
}

#[unsafe(no_mangle)]
extern "C" fn kmp_get_cancellation_status_(kind: *const i32) -> i32 {
    // SAFETY: Fortran passes the address of its argument.
    kmp_get_cancellation_status(unsafe { *kind })
}
