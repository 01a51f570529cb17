//! Leagues of teams on the host: the calling thread is each team's first thread in turn.
//!
//! `target` has the loop over teams; `calls` passes on the program's arguments.

use super::super::target;
use super::super::team::me;
use super::calls::{self, framed};
use super::kinds::Location;

extern "C" fn fork(_: *const Location, frame: *mut u8, _: usize) {
    let pushed = me().kmp.pushed.take();
    target::league(pushed.teams, pushed.thread_limit, || calls::run(frame));
}

framed! {
    /// `void __kmpc_fork_teams(location, count, function, ...)`.
    __kmpc_fork_teams fork;
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_push_num_teams(_: *const Location, _: i32, teams: i32, thread_limit: i32) {
    me().kmp.push(|pushed| {
        pushed.teams = teams.max(0) as u32;
        pushed.thread_limit = thread_limit.max(0) as u32;
    });
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_push_num_teams_51(
    location: *const Location,
    thread: i32,
    _at_least: i32,
    at_most: i32,
    thread_limit: i32,
) {
    __kmpc_push_num_teams(location, thread, at_most, thread_limit);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_set_thread_limit(_: *const Location, _: i32, limit: i32) {
    target::limit(limit.max(0) as u32);
}
