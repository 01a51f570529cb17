//! The combined constructs: a parallel region that is one loop, or one set of sections.
//!
//! The leader fills the team's first work share before it sends the members to work (`parallel`); these take chunks from it
//! without a start of their own.

use super::icv::{SCHED_DYNAMIC, SCHED_GUIDED, SCHED_STATIC};
use super::loop_calls::runtime;
use super::loops::{self, Plan};
use super::parallel;
use super::team::{Body, Function, Team, me};
use crate::arch;
use atoll_libgomp::with_caller;

/// Puts the plan in the team's first work share.
fn prepare(team: &Team, plan: Plan) {
    // SAFETY: nobody works in the team yet.
    loops::lay_out(team, unsafe { &*team.sharing.first.get() }, plan);
}

fn region(function: Function, data: *mut u8, asked: u32, flags: u32, call_site: usize, plan: Plan) {
    let thread = me();
    let body = Body::plain(function, data);
    let team = parallel::open(thread, parallel::key(body.outlined, call_site, Some(&plan)), asked, flags);
    prepare(team, plan);
    parallel::launch(thread, team, body, call_site);
    parallel::call(team, body);
    parallel::close(thread);
}

fn launch(function: Function, data: *mut u8, asked: u32, plan: Plan) {
    let thread = me();
    let body = Body::plain(function, data);
    let team = parallel::open(thread, parallel::key(body.outlined, 0, Some(&plan)), asked, 0);
    prepare(team, plan);
    parallel::launch(thread, team, body, 0);
}

macro_rules! regions {
    ($($name:ident $body:ident $schedule:ident;)*) => {$(
        extern "C" fn $body(
            function: Function,
            data: *mut u8,
            asked: u32,
            a: i64,
            b: i64,
            step: i64,
            chunk: i64,
            flags: u32,
            call_site: usize,
        ) {
            region(function, data, asked, flags, call_site, Plan::signed(a, b, step, $schedule, chunk));
        }
        /// `void (fn, data, num_threads, start, end, incr, chunk, flags)`: adds its return address.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            arch::call_with_caller_ninth!($body)
        }
    )*};
}

regions! {
    GOMP_parallel_loop_static parallel_static SCHED_STATIC;
    GOMP_parallel_loop_dynamic parallel_dynamic SCHED_DYNAMIC;
    GOMP_parallel_loop_guided parallel_guided SCHED_GUIDED;
    GOMP_parallel_loop_nonmonotonic_dynamic parallel_nonmonotonic_dynamic SCHED_DYNAMIC;
    GOMP_parallel_loop_nonmonotonic_guided parallel_nonmonotonic_guided SCHED_GUIDED;
}

macro_rules! runtime_regions {
    ($($name:ident $body:ident $schedule:ident;)*) => {$(
        extern "C" fn $body(
            function: Function,
            data: *mut u8,
            asked: u32,
            a: i64,
            b: i64,
            step: i64,
            flags: u32,
            call_site: usize,
        ) {
            let (schedule, chunk) = $schedule();
            region(function, data, asked, flags, call_site, Plan::signed(a, b, step, schedule, chunk));
        }
        /// `void (fn, data, num_threads, start, end, incr, flags)`: adds its return address.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            arch::call_with_caller_eighth!($body)
        }
    )*};
}

runtime_regions! {
    GOMP_parallel_loop_runtime parallel_runtime runtime;
    GOMP_parallel_loop_nonmonotonic_runtime parallel_nonmonotonic_runtime runtime;
    GOMP_parallel_loop_maybe_nonmonotonic_runtime parallel_maybe_nonmonotonic_runtime runtime;
}

macro_rules! older {
    ($($name:ident $schedule:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            function: Function,
            data: *mut u8,
            asked: u32,
            a: i64,
            b: i64,
            step: i64,
            chunk: i64,
        ) {
            launch(function, data, asked, Plan::signed(a, b, step, $schedule, chunk));
        }
    )*};
}

older! {
    GOMP_parallel_loop_static_start SCHED_STATIC;
    GOMP_parallel_loop_dynamic_start SCHED_DYNAMIC;
    GOMP_parallel_loop_guided_start SCHED_GUIDED;
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_parallel_loop_runtime_start(
    function: Function,
    data: *mut u8,
    asked: u32,
    a: i64,
    b: i64,
    step: i64,
) {
    let (schedule, chunk) = runtime();
    launch(function, data, asked, Plan::signed(a, b, step, schedule, chunk));
}

/// The plan of `count` sections, which are a dynamic loop over their numbers, from 1.
pub(crate) fn sections(count: u32) -> Plan {
    Plan::signed(1, i64::from(count) + 1, 1, SCHED_DYNAMIC, 1)
}

extern "C" fn parallel_sections(
    function: Function,
    data: *mut u8,
    asked: u32,
    count: u32,
    flags: u32,
    call_site: usize,
) {
    region(function, data, asked, flags, call_site, sections(count));
}

with_caller! {
    /// `void GOMP_parallel_sections(fn, data, num_threads, count, flags)`: passes its return address on.
    GOMP_parallel_sections to parallel_sections as argument 5;
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_parallel_sections_start(function: Function, data: *mut u8, asked: u32, count: u32) {
    launch(function, data, asked, sections(count));
}
