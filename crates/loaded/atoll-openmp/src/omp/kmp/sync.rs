//! Barriers, constructs that one thread executes, and critical and ordered regions.
//!
//! The functions stand on `barrier`, `single`, `critical` and `ordered`; `reduce` ends with the same barrier.

use super::super::barrier;
use super::super::hooks;
use super::super::ordered;
use super::super::single;
use super::super::team::me;
use super::super::word_lock::{word_lock, word_unlock};
use super::kinds::Location;
use atoll_libgomp::with_caller;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Waits at a barrier of the calling thread's team, from which it goes on at `site`.
extern "C" fn meet(_: *const Location, _: i32, site: usize) {
    barrier::meet_from(site);
}

with_caller! {
    /// `void __kmpc_barrier(location, thread)`: passes its return address on.
    __kmpc_barrier to meet as argument 2;
}

/// Waits at a barrier of a region that may be cancelled; returns 1 if it is.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_cancel_barrier(_: *const Location, _: i32) -> i32 {
    i32::from(barrier::meet_cancellable(me()))
}

/// Waits for all members; then the first thread goes on alone until `__kmpc_end_barrier_master`.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_barrier_master(_: *const Location, _: i32) -> i32 {
    let thread = me();
    barrier::meet(thread);
    if thread.number() == 0 {
        return 1;
    }
    barrier::meet(thread);
    0
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_barrier_master(_: *const Location, _: i32) {
    barrier::meet(me());
}

/// Waits for all members, which then all go on; returns 1 to the first thread.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_barrier_master_nowait(_: *const Location, _: i32) -> i32 {
    let thread = me();
    barrier::meet(thread);
    hooks::barrier_passed(0);
    i32::from(thread.number() == 0)
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_master(_: *const Location, _: i32) -> i32 {
    i32::from(me().number() == 0)
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_masked(_: *const Location, _: i32, wanted: i32) -> i32 {
    i32::from(me().number() as i32 == wanted)
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_single(_: *const Location, _: i32) -> i32 {
    i32::from(single::first(me()))
}

macro_rules! nothing {
    ($($name:ident)*) => {$(
        /// Ends a construct whose end needs no action.
        #[unsafe(no_mangle)]
        extern "C" fn $name(_: *const Location, _: i32) {}
    )*};
}

nothing! { __kmpc_end_master __kmpc_end_masked __kmpc_end_single __kmpc_end_ordered }

#[unsafe(no_mangle)]
extern "C" fn __kmpc_scope(_: *const Location, _: i32, _: *mut u8) {}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_scope(_: *const Location, _: i32, _: *mut u8) {}

/// Copies the variables of the thread that executed a `single` to the others: each of these calls `copy` with the addresses of
/// its own variables and of that thread's.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_copyprivate(
    location: *const Location,
    thread: i32,
    _size: usize,
    data: *mut u8,
    copy: extern "C" fn(*mut u8, *mut u8),
    executed: i32,
) {
    let from =
        __kmpc_copyprivate_light(location, thread, if executed != 0 { data } else { std::ptr::null_mut() });
    if executed == 0 {
        copy(data, from);
    }
    // The variables may be gone once all members have copied them.
    barrier::meet(me());
}

/// The address of the variables of the thread that executed a `single`: that thread passes it, the others pass null. The
/// program has a barrier behind the call.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_copyprivate_light(_: *const Location, _: i32, data: *mut u8) -> *mut u8 {
    let thread = me();
    let team = thread.team();
    if team.spans() {
        atoll_nodes::unsupported("single with copyprivate");
    }
    if !data.is_null() {
        team.sharing.copy_private.store(data, Ordering::Relaxed);
    }
    barrier::meet(thread);
    team.sharing.copy_private.load(Ordering::Relaxed)
}

/// The word of a critical region's name, which the program provides and which is zero at first.
fn word<'a>(name: *mut i32) -> &'a AtomicU32 {
    // SAFETY: the program gives a zeroed place of eight such words for each name, which nobody else uses.
    unsafe { AtomicU32::from_ptr(name.cast()) }
}

/// Enters the critical region of this name.
pub(super) fn enter(name: *mut i32) {
    word_lock(word(name));
}

/// Leaves the critical region of this name.
pub(super) fn leave(name: *mut i32) {
    word_unlock(word(name));
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_critical(_: *const Location, _: i32, name: *mut i32) {
    enter(name);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_critical_with_hint(_: *const Location, _: i32, name: *mut i32, _hint: u32) {
    enter(name);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_critical(_: *const Location, _: i32, name: *mut i32) {
    leave(name);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_ordered(_: *const Location, _: i32) {
    ordered::wait_for_turn(me());
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_flush(_: *const Location) {
    fence(Ordering::SeqCst);
}
