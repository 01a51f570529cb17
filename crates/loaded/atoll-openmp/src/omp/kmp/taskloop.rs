//! Task loops: copies of a pattern task, each with a part of the iterations.
//!
//! The runtime's `taskloop::deal` says how many tasks there are; `block` copies the pattern.

use super::super::task::Task;
use super::super::taskgroup;
use super::super::taskloop::{FLAG_GRAINSIZE, FLAG_STRICT, deal};
use super::super::tasks;
use super::super::team::me;
use super::block::{self, Block};
use super::kinds::Location;
use std::sync::atomic::Ordering;

/// The program's function that copies what plain copying cannot, and tells the last task that it is the last: to, from, last.
type Duplicate = extern "C" fn(*mut Block, *mut Block, i32);

/// The values of the schedule argument: 0, the runtime decides; 1, the grain size, in iterations for each task; 2, the number
/// of tasks.
const GRAINSIZE: i32 = 1;
const TASKS: i32 = 2;

/// A loop that becomes tasks.
struct Loop {
    pattern: *mut Block,
    /// The offsets of the loop's bounds in a block; the upper bound is the last iteration.
    lower: usize,
    upper: usize,
    start: u64,
    step: i64,
    iterations: u64,
    duplicate: Option<Duplicate>,
}

impl Loop {
    /// Makes the task that executes iterations `from` to `to`.
    fn part(&self, (from, to): (u64, u64)) -> &'static Task {
        let new = Block::copy(me(), self.pattern);
        let at = |iteration: u64| self.start.wrapping_add((self.step as u64).wrapping_mul(iteration));
        // SAFETY: the bounds lie in the block, at the same place as in the pattern's.
        unsafe {
            new.cast::<u8>().add(self.lower).cast::<u64>().write(at(from));
            new.cast::<u8>().add(self.upper).cast::<u64>().write(at(to - 1));
        }
        if let Some(duplicate) = self.duplicate {
            duplicate(new, self.pattern, i32::from(to == self.iterations));
        }
        Block::task(new)
    }

    /// Makes all tasks and queues them.
    fn run(&self, (tasks, longer, long, short): (u64, u64, u64, u64), deferrable: bool) {
        let thread = me();
        let (team, parent) = (thread.team(), thread.task());
        let mut from = 0;
        for index in 0..tasks {
            let to = from + if index < longer { long } else { short };
            let task = self.part((from, to));
            task.parts.store(1, Ordering::Relaxed);
            tasks::launch(thread, task, deferrable && tasks::may_defer(team, parent), None);
            from = to;
        }
    }
}

/// The clauses of a task loop that say how it is dealt out.
struct Clauses {
    deferrable: bool,
    grouped: bool,
    schedule: i32,
    number: u64,
    strict: bool,
}

fn run(
    pattern: *mut Block,
    (lower, upper): (*mut u64, *mut u64),
    step: i64,
    clauses: &Clauses,
    duplicate: Option<Duplicate>,
) {
    let thread = me();
    let team = thread.team();
    if clauses.grouped {
        taskgroup::enter(thread, false);
    }
    // SAFETY: the bounds are the program's, in the pattern's block.
    let (start, end) = unsafe { (*lower, *upper) };
    let iterations = match step {
        1 => end.wrapping_sub(start).wrapping_add(1),
        step if step < 0 => start.wrapping_sub(end) / step.unsigned_abs() + 1,
        step => end.wrapping_sub(start) / step.max(1) as u64 + 1,
    };
    if iterations != 0 && !tasks::is_cancelled(team, thread.task().group.get()) {
        let place = |bound: *mut u64| bound as usize - pattern as usize;
        let (lower, upper) = (place(lower), place(upper));
        debug_assert!(lower < Block::bytes(pattern) && upper < Block::bytes(pattern));
        let all = Loop { pattern, lower, upper, start, step, iterations, duplicate };
        let strict = if clauses.strict { FLAG_STRICT } else { 0 };
        let parts = match clauses.schedule {
            GRAINSIZE => deal(iterations, FLAG_GRAINSIZE | strict, clauses.number, 1),
            TASKS => deal(iterations, 0, clauses.number, 1),
            _ => deal(iterations, 0, 10 * u64::from(team.workers()), 1),
        };
        all.run(parts, clauses.deferrable);
    }
    block::forget(thread, pattern);
    if clauses.grouped {
        taskgroup::leave(thread);
    }
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_taskloop(
    location: *const Location,
    thread: i32,
    pattern: *mut Block,
    deferrable: i32,
    lower: *mut u64,
    upper: *mut u64,
    step: i64,
    nogroup: i32,
    schedule: i32,
    number: u64,
    duplicate: Option<Duplicate>,
) {
    __kmpc_taskloop_5(
        location, thread, pattern, deferrable, lower, upper, step, nogroup, schedule, number, 0, duplicate,
    );
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_taskloop_5(
    _: *const Location,
    _: i32,
    pattern: *mut Block,
    deferrable: i32,
    lower: *mut u64,
    upper: *mut u64,
    step: i64,
    nogroup: i32,
    schedule: i32,
    number: u64,
    modifier: i32,
    duplicate: Option<Duplicate>,
) {
    let clauses = Clauses {
        deferrable: deferrable != 0,
        grouped: nogroup == 0,
        schedule,
        number,
        strict: modifier != 0,
    };
    run(pattern, (lower, upper), step, &clauses, duplicate);
}
