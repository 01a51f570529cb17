//! Reductions over a team: tells the compiler's code how to combine each thread's result.
//!
//! There are two ways: one thread after the other (`sync`'s critical regions), or, where the compiler made such code, by atomic
//! operations.

use super::super::barrier;
use super::super::team::me;
use super::kept::Reducing;
use super::kinds::Location;
use super::sync;
use atoll_libgomp::with_caller;

/// The answer: combine as if no other thread did, and call the construct's end.
const ALONE: i32 = 1;
/// The answer: combine by atomic operations.
const ATOMICALLY: i32 = 2;

/// Begins a reduction; returns how the calling thread has to combine its result.
fn begin(location: *const Location, lock: *mut i32) -> i32 {
    let thread = me();
    let team = thread.team();
    let in_turn = |reducing| thread.update(|state| state.kmp.reducing = reducing);
    if team.threads() == 1 {
        in_turn(Reducing::Freely);
        return ALONE;
    }
    // Between nodes atomic operations cost as much as a lock, and are done one after the other all the same.
    if !team.spans() && Location::may_reduce_atomically(location) {
        in_turn(Reducing::Freely);
        return ATOMICALLY;
    }
    sync::enter(lock);
    in_turn(Reducing::InTurn);
    ALONE
}

fn end(lock: *mut i32) {
    if me().state.get().kmp.reducing == Reducing::InTurn {
        sync::leave(lock);
    }
}

type Combine = extern "C" fn(*mut u8, *mut u8);

#[unsafe(no_mangle)]
extern "C" fn __kmpc_reduce_nowait(
    location: *const Location,
    _: i32,
    _count: i32,
    _size: usize,
    _data: *mut u8,
    _combine: Option<Combine>,
    lock: *mut i32,
) -> i32 {
    begin(location, lock)
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_reduce_nowait(_: *const Location, _: i32, lock: *mut i32) {
    end(lock);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_reduce(
    location: *const Location,
    _: i32,
    _count: i32,
    _size: usize,
    _data: *mut u8,
    _combine: Option<Combine>,
    lock: *mut i32,
) -> i32 {
    begin(location, lock)
}

extern "C" fn end_together(_: *const Location, _: i32, lock: *mut i32, site: usize) {
    end(lock);
    barrier::meet_from(site);
}

with_caller! {
    /// `void __kmpc_end_reduce(location, thread, lock)`: passes its return address on, which follows the construct's barrier.
    __kmpc_end_reduce to end_together as argument 3;
}
