//! Parallel regions, and the calls before a region that set its size and places.
//!
//! `calls` passes on the program's arguments; `parallel` opens and closes the region.

use super::super::parallel;
use super::super::team::{Body, me};
use super::calls::{self, framed};
use super::kinds::Location;
use crate::arch;
use atoll_libgomp::with_caller;

extern "C" fn fork(_: *const Location, frame: *mut u8, call_site: usize) {
    let pushed = me().kmp.pushed.take();
    let body = Body { function: calls::run, data: frame, outlined: calls::outlined(frame) };
    parallel::region(body, pushed.threads, pushed.bind, call_site);
}

framed! {
    /// `void __kmpc_fork_call(location, count, function, ...)`.
    __kmpc_fork_call fork;
}

/// Opens a region of the calling thread alone; the caller, the program or this library, executes its body.
fn open_alone(call_site: usize) {
    let thread = me();
    thread.kmp.pushed.take();
    let team = parallel::open_here(thread, 1, 0);
    let body = Body { function: nothing, data: std::ptr::null_mut(), outlined: call_site };
    parallel::launch(thread, team, body, call_site);
}

extern "C" fn nothing(_: *mut u8) {}

extern "C" fn fork_if(frame: *mut u8, parallel: i32, call_site: usize) {
    if parallel != 0 {
        return fork(std::ptr::null(), frame, call_site);
    }
    open_alone(call_site);
    calls::run(frame);
    parallel::close(me());
}

/// `void __kmpc_fork_call_if(location, count, function, condition, argument)`: a region of one thread where the condition is 0.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn __kmpc_fork_call_if() {
    arch::call_with_frame_of_one!(fork_if)
}

extern "C" fn begin_alone(_: *const Location, _: i32, call_site: usize) {
    open_alone(call_site);
}

with_caller! {
    /// `void __kmpc_serialized_parallel(location, thread)`: passes its return address on.
    __kmpc_serialized_parallel to begin_alone as argument 2;
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_serialized_parallel(_: *const Location, _: i32) {
    parallel::close(me());
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_push_num_threads(_: *const Location, _: i32, threads: i32) {
    me().kmp.push(|pushed| pushed.threads = threads.max(0) as u32);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_push_num_threads_strict(
    location: *const Location,
    thread: i32,
    threads: i32,
    _severity: i32,
    _message: *const u8,
) {
    // Teams have as many threads as they ask for, unless a limit of the user's is lower.
    __kmpc_push_num_threads(location, thread, threads);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_pop_num_threads(_: *const Location, _: i32) {}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_push_proc_bind(_: *const Location, _: i32, bind: i32) {
    me().kmp.push(|pushed| pushed.bind = bind as u32 & 7);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_global_thread_num(_: *const Location) -> i32 {
    me().kmp.number()
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_global_num_threads(_: *const Location) -> i32 {
    super::kept::threads()
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_bound_thread_num(_: *const Location) -> i32 {
    me().number() as i32
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_bound_num_threads(_: *const Location) -> i32 {
    me().team().threads() as i32
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_in_parallel(_: *const Location) -> i32 {
    i32::from(me().team().nesting.active_level.get() > 0)
}

/// Returns 1: every region may fork.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_ok_to_fork(_: *const Location) -> i32 {
    1
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_begin(_: *const Location, _: i32) {
    me();
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_end(_: *const Location) {}
