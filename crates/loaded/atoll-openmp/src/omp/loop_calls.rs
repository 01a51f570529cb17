//! The ABI of loop constructs: libgomp's many names for starting a loop, taking its next chunk and ending it.
//!
//! `loops` deals out iterations; `loops_ull` has the unsigned names, `parallel_loops` the combined constructs.

use super::barrier;
use super::doacross::Doacross;
use super::hooks;
use super::icv::{SCHED_DYNAMIC, SCHED_GUIDED, SCHED_MONOTONIC, SCHED_STATIC};
use super::loops::{self, Plan};
use super::ordered;
use super::taskgroup;
use super::team::{Thread, me};
use super::workshare::{self, WorkShare};
use std::ptr;

/// The requests of a construct beside its iterations.
#[derive(Clone, Copy)]
pub(crate) struct Extras {
    /// The array of the reductions over tasks, or null.
    pub(crate) reductions: *mut usize,
    /// Null, or a pointer that holds a number of bytes and receives the address of as much zeroed memory.
    pub(crate) memory: *mut *mut u8,
}

pub(crate) const NOTHING: Extras = Extras { reductions: ptr::null_mut(), memory: ptr::null_mut() };

/// Makes the calling member meet a construct with this plan.
pub(crate) fn meet(thread: &Thread, plan: Plan, extras: Extras, counts: &[u64]) -> &'static WorkShare {
    let team = thread.team();
    let threads = team.size.get();
    if team.spans() && !(extras.reductions.is_null() && extras.memory.is_null()) {
        atoll_nodes::unsupported(
            "a loop or sections whose threads share a reduction over tasks or memory of the compiler's",
        );
    }
    let mut outer = ptr::null_mut();
    if !extras.reductions.is_null() {
        taskgroup::enter_workshare(thread);
        outer = taskgroup::outer_reductions(thread);
    }
    // SAFETY: where not null, the program's, and holding a size.
    let bytes = unsafe { extras.memory.as_ref() }.map_or(0, |memory| *memory as usize);
    let fill = |share: &WorkShare| {
        loops::lay_out(team, share, plan);
        if !counts.is_empty() {
            // SAFETY: the share is not published yet.
            unsafe { *share.doacross.get() = Some(Box::new(Doacross::new(counts, &plan, threads))) };
        }
        if !extras.reductions.is_null() {
            taskgroup::register(extras.reductions, outer, ptr::null(), threads as usize);
            share.reductions.set(extras.reductions);
        }
        if bytes != 0 {
            share.reserve(bytes);
        }
    };
    let spill = |_: &WorkShare| {
        if !extras.reductions.is_null() {
            taskgroup::unregister(extras.reductions, true);
        }
    };
    let (share, first) = workshare::meet(thread, team, fill, spill);
    if !extras.reductions.is_null() {
        if !first {
            taskgroup::register(extras.reductions, outer, share.reductions.get(), threads as usize);
        }
        taskgroup::set_reductions(thread, extras.reductions);
    }
    if !extras.memory.is_null() {
        // SAFETY: the program's.
        unsafe { *extras.memory = share.memory() };
    }
    share
}

/// Writes a chunk's bounds for the program; false where there is no chunk.
#[inline]
fn give(plan: &Plan, chunk: Option<(u64, u64)>, from: *mut u64, to: *mut u64) -> bool {
    let Some(chunk) = chunk else { return false };
    let (start, end) = plan.bounds(chunk);
    // SAFETY: the program gives two places for the bounds.
    unsafe {
        *from = start;
        *to = end;
    }
    true
}

/// Takes the next chunk of the loop that the calling member is in.
#[inline]
pub(crate) fn next(from: *mut u64, to: *mut u64) -> bool {
    let thread = me();
    let share = workshare::current(thread);
    let chunk = loops::next(thread, thread.team(), share);
    give(&share.plan.get(), chunk, from, to)
}

/// Takes the next chunk of a loop whose ordered regions take turns.
pub(crate) fn next_ordered(from: *mut u64, to: *mut u64) -> bool {
    let thread = me();
    ordered::pass_on(thread);
    let share = workshare::current(thread);
    let chunk = loops::next(thread, thread.team(), share);
    thread.update(|state| state.chunk = chunk.unwrap_or((0, 0)));
    give(&share.plan.get(), chunk, from, to)
}

/// Starts a loop and takes the first chunk, if the program wants one.
pub(crate) fn start(plan: Plan, extras: Extras, counts: &[u64], from: *mut u64, to: *mut u64) -> bool {
    meet(me(), plan, extras, counts);
    from.is_null() || next(from, to)
}

/// Starts a loop whose ordered regions take turns, and takes the first chunk.
pub(crate) fn start_ordered(plan: Plan, extras: Extras, from: *mut u64, to: *mut u64) -> bool {
    meet(me(), plan.in_order(), extras, &[]);
    from.is_null() || next_ordered(from, to)
}

/// The schedule that `schedule(runtime)` means now.
pub(crate) fn runtime() -> (u32, i64) {
    let icv = me().icv();
    (icv.schedule, i64::from(icv.chunk))
}

/// The schedule that a general start function is given, of which 0 means `runtime`.
pub(crate) fn given(schedule: i64, chunk: i64) -> (u32, i64) {
    let schedule = schedule as u32;
    if schedule & !SCHED_MONOTONIC == 0 { runtime() } else { (schedule, chunk) }
}

macro_rules! starts {
    ($($start:ident $next:ident $schedule:ident $begin:ident $go_on:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $start(a: i64, b: i64, step: i64, chunk: i64, from: *mut u64, to: *mut u64) -> bool {
            $begin(Plan::signed(a, b, step, $schedule, chunk), from, to)
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
        extern "C" fn $start(a: i64, b: i64, step: i64, from: *mut u64, to: *mut u64) -> bool {
            let (schedule, chunk) = $schedule();
            $begin(Plan::signed(a, b, step, schedule, chunk), from, to)
        }
        #[unsafe(no_mangle)]
        extern "C" fn $next(from: *mut u64, to: *mut u64) -> bool {
            $go_on(from, to)
        }
    )*};
}

fn plain(plan: Plan, from: *mut u64, to: *mut u64) -> bool {
    start(plan, NOTHING, &[], from, to)
}

fn in_order(plan: Plan, from: *mut u64, to: *mut u64) -> bool {
    start_ordered(plan, NOTHING, from, to)
}

starts! {
    GOMP_loop_static_start GOMP_loop_static_next SCHED_STATIC plain next;
    GOMP_loop_dynamic_start GOMP_loop_dynamic_next SCHED_DYNAMIC plain next;
    GOMP_loop_guided_start GOMP_loop_guided_next SCHED_GUIDED plain next;
    GOMP_loop_nonmonotonic_dynamic_start GOMP_loop_nonmonotonic_dynamic_next SCHED_DYNAMIC plain next;
    GOMP_loop_nonmonotonic_guided_start GOMP_loop_nonmonotonic_guided_next SCHED_GUIDED plain next;
    GOMP_loop_ordered_static_start GOMP_loop_ordered_static_next SCHED_STATIC in_order next_ordered;
    GOMP_loop_ordered_dynamic_start GOMP_loop_ordered_dynamic_next SCHED_DYNAMIC in_order next_ordered;
    GOMP_loop_ordered_guided_start GOMP_loop_ordered_guided_next SCHED_GUIDED in_order next_ordered;
}

runtime_starts! {
    GOMP_loop_runtime_start GOMP_loop_runtime_next runtime plain next;
    GOMP_loop_nonmonotonic_runtime_start GOMP_loop_nonmonotonic_runtime_next runtime plain next;
    GOMP_loop_maybe_nonmonotonic_runtime_start GOMP_loop_maybe_nonmonotonic_runtime_next runtime plain next;
    GOMP_loop_ordered_runtime_start GOMP_loop_ordered_runtime_next runtime in_order next_ordered;
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_loop_start(
    a: i64,
    b: i64,
    step: i64,
    schedule: i64,
    chunk: i64,
    from: *mut u64,
    to: *mut u64,
    reductions: *mut usize,
    memory: *mut *mut u8,
) -> bool {
    let (schedule, chunk) = given(schedule, chunk);
    start(Plan::signed(a, b, step, schedule, chunk), Extras { reductions, memory }, &[], from, to)
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_loop_ordered_start(
    a: i64,
    b: i64,
    step: i64,
    schedule: i64,
    chunk: i64,
    from: *mut u64,
    to: *mut u64,
    reductions: *mut usize,
    memory: *mut *mut u8,
) -> bool {
    let (schedule, chunk) = given(schedule, chunk);
    start_ordered(Plan::signed(a, b, step, schedule, chunk), Extras { reductions, memory }, from, to)
}

/// Starts a loop whose iterations wait for each other: the outermost of its `dimensions` loops is dealt out.
pub(crate) fn start_doacross(
    dimensions: u32,
    counts: *const u64,
    (schedule, chunk): (u32, i64),
    extras: Extras,
    from: *mut u64,
    to: *mut u64,
) -> bool {
    // SAFETY: the program gives as many counts as it says.
    let counts = unsafe { std::slice::from_raw_parts(counts, dimensions as usize) };
    let plan = Plan::unsigned(true, 0, counts[0], 1, schedule, chunk.max(0) as u64).in_order();
    start(plan, extras, counts, from, to)
}

macro_rules! doacross_starts {
    ($($start:ident $schedule:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $start(n: u32, counts: *const u64, chunk: i64, from: *mut u64, to: *mut u64) -> bool {
            start_doacross(n, counts, ($schedule, chunk), NOTHING, from, to)
        }
    )*};
}

doacross_starts! {
    GOMP_loop_doacross_static_start SCHED_STATIC;
    GOMP_loop_doacross_dynamic_start SCHED_DYNAMIC;
    GOMP_loop_doacross_guided_start SCHED_GUIDED;
    GOMP_loop_ull_doacross_static_start SCHED_STATIC;
    GOMP_loop_ull_doacross_dynamic_start SCHED_DYNAMIC;
    GOMP_loop_ull_doacross_guided_start SCHED_GUIDED;
}

macro_rules! doacross_general {
    ($($runtime:ident $start:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $runtime(n: u32, counts: *const u64, from: *mut u64, to: *mut u64) -> bool {
            start_doacross(n, counts, runtime(), NOTHING, from, to)
        }
        #[unsafe(no_mangle)]
        extern "C" fn $start(
            n: u32,
            counts: *const u64,
            schedule: i64,
            chunk: i64,
            from: *mut u64,
            to: *mut u64,
            reductions: *mut usize,
            memory: *mut *mut u8,
        ) -> bool {
            start_doacross(n, counts, given(schedule, chunk), Extras { reductions, memory }, from, to)
        }
    )*};
}

doacross_general! {
    GOMP_loop_doacross_runtime_start GOMP_loop_doacross_start;
    GOMP_loop_ull_doacross_runtime_start GOMP_loop_ull_doacross_start;
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_loop_end() {
    barrier::meet(me());
    hooks::barrier_passed(0);
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_loop_end_nowait() {}

#[unsafe(no_mangle)]
extern "C" fn GOMP_loop_end_cancel() -> bool {
    barrier::meet_cancellable(me())
}
