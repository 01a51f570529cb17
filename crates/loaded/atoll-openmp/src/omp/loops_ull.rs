//! The ABI of loop constructs over unsigned 64-bit numbers, upwards or downwards.
//!
//! Stands on `loop_calls` and differs in the types; the doacross forms of both are there, being alike.

use super::icv::{SCHED_DYNAMIC, SCHED_GUIDED, SCHED_STATIC};
use super::loop_calls::{self as calls, Extras, NOTHING, next, next_ordered};
use super::loops::Plan;

macro_rules! starts {
    ($($start:ident $next:ident $schedule:ident $begin:ident $go_on:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $start(
            up: bool,
            a: u64,
            b: u64,
            step: u64,
            chunk: u64,
            from: *mut u64,
            to: *mut u64,
        ) -> bool {
            $begin(Plan::unsigned(up, a, b, step, $schedule, chunk), from, to)
        }
        #[unsafe(no_mangle)]
        extern "C" fn $next(from: *mut u64, to: *mut u64) -> bool {
            $go_on(from, to)
        }
    )*};
}

macro_rules! runtime_starts {
    ($($start:ident $next:ident $schedule:ident $begin:ident $go_on:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $start(up: bool, a: u64, b: u64, step: u64, from: *mut u64, to: *mut u64) -> bool {
            let (schedule, chunk) = calls::$schedule();
            $begin(Plan::unsigned(up, a, b, step, schedule, chunk as u64), from, to)
        }
        #[unsafe(no_mangle)]
        extern "C" fn $next(from: *mut u64, to: *mut u64) -> bool {
            $go_on(from, to)
        }
    )*};
}

fn plain(plan: Plan, from: *mut u64, to: *mut u64) -> bool {
    calls::start(plan, NOTHING, &[], from, to)
}

fn in_order(plan: Plan, from: *mut u64, to: *mut u64) -> bool {
    calls::start_ordered(plan, NOTHING, from, to)
}

starts! {
    GOMP_loop_ull_static_start GOMP_loop_ull_static_next SCHED_STATIC plain next;
    GOMP_loop_ull_dynamic_start GOMP_loop_ull_dynamic_next SCHED_DYNAMIC plain next;
    GOMP_loop_ull_guided_start GOMP_loop_ull_guided_next SCHED_GUIDED plain next;
    GOMP_loop_ull_nonmonotonic_dynamic_start GOMP_loop_ull_nonmonotonic_dynamic_next SCHED_DYNAMIC plain next;
    GOMP_loop_ull_nonmonotonic_guided_start GOMP_loop_ull_nonmonotonic_guided_next SCHED_GUIDED plain next;
    GOMP_loop_ull_ordered_static_start GOMP_loop_ull_ordered_static_next SCHED_STATIC in_order next_ordered;
    GOMP_loop_ull_ordered_dynamic_start GOMP_loop_ull_ordered_dynamic_next SCHED_DYNAMIC in_order next_ordered;
    GOMP_loop_ull_ordered_guided_start GOMP_loop_ull_ordered_guided_next SCHED_GUIDED in_order next_ordered;
}

runtime_starts! {
    GOMP_loop_ull_runtime_start GOMP_loop_ull_runtime_next runtime plain next;
    GOMP_loop_ull_nonmonotonic_runtime_start GOMP_loop_ull_nonmonotonic_runtime_next runtime plain next;
    GOMP_loop_ull_maybe_nonmonotonic_runtime_start GOMP_loop_ull_maybe_nonmonotonic_runtime_next runtime plain next;
    GOMP_loop_ull_ordered_runtime_start GOMP_loop_ull_ordered_runtime_next runtime in_order next_ordered;
}

fn plan(up: bool, a: u64, b: u64, step: u64, schedule: i64, chunk: u64) -> Plan {
    let (schedule, chunk) = calls::given(schedule, chunk as i64);
    Plan::unsigned(up, a, b, step, schedule, chunk as u64)
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_loop_ull_start(
    up: bool,
    a: u64,
    b: u64,
    step: u64,
    schedule: i64,
    chunk: u64,
    from: *mut u64,
    to: *mut u64,
    reductions: *mut usize,
    memory: *mut *mut u8,
) -> bool {
    calls::start(plan(up, a, b, step, schedule, chunk), Extras { reductions, memory }, &[], from, to)
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_loop_ull_ordered_start(
    up: bool,
    a: u64,
    b: u64,
    step: u64,
    schedule: i64,
    chunk: u64,
    from: *mut u64,
    to: *mut u64,
    reductions: *mut usize,
    memory: *mut *mut u8,
) -> bool {
    calls::start_ordered(plan(up, a, b, step, schedule, chunk), Extras { reductions, memory }, from, to)
}
