//! Loops whose chunks are dealt out while they run: dynamic, guided and ordered loops, and those whose schedule is chosen at
//! run time.
//!
//! `loops` deals the chunks; each thread learns the bounds of its next chunk here, of which the upper one is the last
//! iteration.

use super::super::icv::SCHED_ANY_ORDER;
use super::super::loop_calls::{self, NOTHING};
use super::super::loops::{self, Plan};
use super::super::ordered;
use super::super::team::me;
use super::super::workshare;
use super::kinds::{self, DISTRIBUTE, Location};
use super::static_loops::{self, Places};

/// Makes the calling member meet a loop of `count` iterations from `start` by `step`.
pub(super) fn meet(kind: i32, chunk: i64, start: u64, step: i64, count: u64) {
    let any_order = if kinds::any_order(kind) { SCHED_ANY_ORDER } else { 0 };
    let (kind, ordered) = kinds::plain(kind);
    let (schedule, chunk) = kinds::schedule(kind, chunk, count);
    let thread = me();
    loop_calls::meet(thread, Plan::counted(start, step, count, schedule | any_order, chunk), NOTHING, &[]);
    // No loop with an ordered region runs over several nodes; a loop that only has the clause needs no turns.
    thread.update(|state| state.kmp.ordered = ordered && !thread.team().spans());
}

/// Takes the calling member's next chunk: the values of its first and last iteration, the step, and whether it is the loop's
/// last chunk.
#[inline]
fn next() -> Option<(u64, u64, u64, bool)> {
    let thread = me();
    let ordered = thread.state.get().kmp.ordered;
    if ordered {
        ordered::pass_on(thread);
    }
    let share = workshare::current(thread);
    let chunk = loops::next(thread, thread.team(), share);
    if ordered {
        thread.update(|state| state.chunk = chunk.unwrap_or((0, 0)));
    }
    let (from, to) = chunk?;
    let plan = share.plan.get();
    let at = |iteration: u64| plan.start.wrapping_add(iteration.wrapping_mul(plan.step));
    Some((at(from), at(to - 1), plan.step, to == plan.count))
}

macro_rules! calls {
    ($($init:ident $next:ident $fini:ident $dist:ident $type:ty, $step:ty;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $init(
            _: *const Location,
            _: i32,
            kind: i32,
            lower: $type,
            upper: $type,
            step: $step,
            chunk: $step,
        ) {
            let step = i64::from(step);
            let count = match step {
                0 => 0,
                step if step > 0 && lower <= upper => {
                    ((i128::from(upper) - i128::from(lower)) / i128::from(step) + 1) as u64
                }
                step if step < 0 && lower >= upper => {
                    ((i128::from(lower) - i128::from(upper)) / -i128::from(step) + 1) as u64
                }
                _ => 0,
            };
            meet(kind, i64::from(chunk), i128::from(lower) as u64, step, count);
        }

        /// Starts the team's part of a loop that the league's teams share.
        #[unsafe(no_mangle)]
        extern "C" fn $dist(
            location: *const Location,
            thread: i32,
            kind: i32,
            last: *mut i32,
            mut lower: $type,
            mut upper: $type,
            step: $step,
            chunk: $step,
        ) {
            let mut stride = 0;
            let places = Places {
                last,
                lower: &raw mut lower,
                upper: &raw mut upper,
                stride: &raw mut stride,
            };
            static_loops::init(DISTRIBUTE, places, i64::from(step), 1);
            $init(location, thread, kind, lower, upper, step, chunk);
        }

        #[unsafe(no_mangle)]
        extern "C" fn $next(
            _: *const Location,
            _: i32,
            last: *mut i32,
            lower: *mut $type,
            upper: *mut $type,
            stride: *mut $step,
        ) -> i32 {
            let Some((from, to, step, is_last)) = next() else { return 0 };
            // SAFETY: the program's variables, of which it may leave out some.
            unsafe {
                if let Some(last) = last.as_mut() {
                    *last = i32::from(is_last);
                }
                *lower = from as $type;
                *upper = to as $type;
                if let Some(stride) = stride.as_mut() {
                    *stride = step as $step;
                }
            }
            1
        }

        /// Ends an iteration of an ordered loop; the turn is passed on when the next chunk is asked for.
        #[unsafe(no_mangle)]
        extern "C" fn $fini(_: *const Location, _: i32) {}
    )*};
}

calls! {
    __kmpc_dispatch_init_4 __kmpc_dispatch_next_4 __kmpc_dispatch_fini_4 __kmpc_dist_dispatch_init_4 i32, i32;
    __kmpc_dispatch_init_4u __kmpc_dispatch_next_4u __kmpc_dispatch_fini_4u __kmpc_dist_dispatch_init_4u u32, i32;
    __kmpc_dispatch_init_8 __kmpc_dispatch_next_8 __kmpc_dispatch_fini_8 __kmpc_dist_dispatch_init_8 i64, i64;
    __kmpc_dispatch_init_8u __kmpc_dispatch_next_8u __kmpc_dispatch_fini_8u __kmpc_dist_dispatch_init_8u u64, i64;
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_dispatch_deinit(_: *const Location, _: i32) {}
