//! Task loops: a loop's iterations dealt out to tasks.
//!
//! Stands on `tasks` and `taskgroup`; the signed and the unsigned loop differ only in how their iterations are counted.

use super::taskgroup::{GOMP_taskgroup_end, GOMP_taskgroup_reduction_register, GOMP_taskgroup_start};
use super::tasks::{self, Copier, Recipe};
use super::team::{Function, me};

const FLAG_UP: u32 = 1 << 8;
pub(super) const FLAG_GRAINSIZE: u32 = 1 << 9;
const FLAG_IF: u32 = 1 << 10;
const FLAG_NOGROUP: u32 = 1 << 11;
const FLAG_REDUCTION: u32 = 1 << 12;
pub(super) const FLAG_STRICT: u32 = 1 << 14;

/// How many tasks a loop of `iterations` gets, and how long they are: (tasks, tasks that are longer, iterations of each longer
/// one, of each other one).
pub(super) fn deal(iterations: u64, flags: u32, wanted: u64, threads: u64) -> (u64, u64, u64, u64) {
    let wanted = wanted.max(u64::from(flags & FLAG_GRAINSIZE != 0));
    if flags & FLAG_GRAINSIZE != 0 && flags & FLAG_STRICT != 0 {
        // Every task but the last has the grain size; the last has what is left.
        let tasks = iterations.div_ceil(wanted);
        let rest = iterations - (tasks - 1) * wanted;
        return (tasks, tasks - 1, wanted, rest);
    }
    let tasks = match (flags & FLAG_GRAINSIZE != 0, wanted) {
        (true, grain) => (iterations / grain).max(1),
        (false, 0) => threads,
        (false, number) => number,
    }
    .min(iterations);
    let (each, more) = (iterations / tasks, iterations % tasks);
    (tasks, more, each + 1, each)
}

/// A loop that becomes tasks.
struct Loop {
    start: u64,
    step: u64,
    iterations: u64,
}

fn run(recipe: Recipe, data: *mut u8, wanted: u64, bounds: Loop) {
    let flags = recipe.flags;
    let thread = me();
    let team = thread.team();
    let grouped = flags & FLAG_NOGROUP == 0;
    // SAFETY: the arguments begin with the first and last bound, then, if there are reductions, their array.
    let reductions = || unsafe { *data.cast::<*mut usize>().add(2) };
    if bounds.iterations == 0 || tasks::is_cancelled(team, thread.task().group.get()) {
        if grouped && flags & FLAG_REDUCTION != 0 {
            // The word tells the program that no reduction was registered.
            // SAFETY: the array is the program's, of more than three words.
            unsafe { *reductions().add(2) = 0 };
        }
        return;
    }
    if grouped {
        GOMP_taskgroup_start();
        if flags & FLAG_REDUCTION != 0 {
            GOMP_taskgroup_reduction_register(reductions());
        }
    }
    let (number, longer, long, short) = deal(bounds.iterations, flags, wanted, u64::from(team.workers()));
    let parent = thread.task();
    let mut start = bounds.start;
    for index in 0..number {
        let length = if index < longer { long } else { short };
        let end = start.wrapping_add(length.wrapping_mul(bounds.step));
        let defer = flags & FLAG_IF != 0 && tasks::may_defer(team, parent);
        let task = tasks::make(thread, &recipe, true);
        tasks::copy_arguments(task, &recipe, data);
        // SAFETY: the arguments begin with the first and last bound.
        unsafe {
            task.data.get().cast::<u64>().write(start);
            task.data.get().cast::<u64>().add(1).write(end);
        }
        if defer {
            tasks::count(team, task);
            tasks::enqueue(team, task);
        } else {
            tasks::execute_at_once(thread, team, task);
        }
        start = end;
    }
    if grouped {
        GOMP_taskgroup_end();
    }
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_taskloop(
    function: Function,
    data: *mut u8,
    copier: Option<Copier>,
    size: i64,
    align: i64,
    flags: u32,
    wanted: u64,
    priority: i32,
    start: i64,
    end: i64,
    step: i64,
) {
    let iterations = if step > 0 {
        if start < end { (end.wrapping_sub(start) as u64 - 1) / step as u64 + 1 } else { 0 }
    } else if start > end {
        (start.wrapping_sub(end) as u64 - 1) / step.unsigned_abs() + 1
    } else {
        0
    };
    let priority = tasks::priority(flags, priority);
    let recipe = Recipe { function, copier, size: size as usize, align: align as usize, flags, priority };
    run(recipe, data, wanted, Loop { start: start as u64, step: step as u64, iterations });
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_taskloop_ull(
    function: Function,
    data: *mut u8,
    copier: Option<Copier>,
    size: i64,
    align: i64,
    flags: u32,
    wanted: u64,
    priority: i32,
    start: u64,
    end: u64,
    step: u64,
) {
    let iterations = if flags & FLAG_UP != 0 {
        if start < end { (end - start - 1) / step + 1 } else { 0 }
    } else if start > end {
        (start - end - 1) / step.wrapping_neg() + 1
    } else {
        0
    };
    let priority = tasks::priority(flags, priority);
    let recipe = Recipe { function, copier, size: size as usize, align: align as usize, flags, priority };
    run(recipe, data, wanted, Loop { start, step, iterations });
}

#[cfg(test)]
mod tests {
    use super::{FLAG_GRAINSIZE, FLAG_STRICT, deal};

    #[test]
    fn every_iteration_is_dealt_once() {
        for iterations in 1..40 {
            for wanted in 0..12 {
                for flags in [0, FLAG_GRAINSIZE, FLAG_STRICT, FLAG_GRAINSIZE | FLAG_STRICT] {
                    let (tasks, longer, long, short) = deal(iterations, flags, wanted, 3);
                    assert_eq!(longer * long + (tasks - longer) * short, iterations);
                    assert!(tasks <= iterations);
                }
            }
        }
    }
}
