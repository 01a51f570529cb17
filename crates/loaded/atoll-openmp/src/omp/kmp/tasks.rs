//! Explicit tasks: made in two steps, queued, waited for; task groups and detached tasks.
//!
//! `block` is the memory that the compiler fills; the runtime's `tasks` queues and executes; `dependences` reads the tasks'
//! dependences.

use super::super::depend::{self, Wanted};
use super::super::task::{DETACHABLE, Task};
use super::super::taskgroup;
use super::super::tasks;
use super::super::team::me;
use super::block::{self, Block, Routine};
use super::dependences::{self, Dependence};
use super::kinds::Location;
use std::sync::atomic::Ordering;

#[unsafe(no_mangle)]
extern "C" fn __kmpc_omp_task_alloc(
    _: *const Location,
    _: i32,
    flags: i32,
    bytes: usize,
    shareds: usize,
    routine: Option<Routine>,
) -> *mut Block {
    Block::make(me(), flags as u32, bytes, shareds, routine)
}

/// Makes the task of a `target` construct, which the host executes.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_omp_target_task_alloc(
    _: *const Location,
    _: i32,
    flags: i32,
    bytes: usize,
    shareds: usize,
    routine: Option<Routine>,
    _device: i64,
) -> *mut Block {
    Block::make(me(), flags as u32, bytes, shareds, routine)
}

/// Queues a task behind the tasks it depends on.
fn send(block: *mut Block, wanted: Option<Wanted>) -> i32 {
    let thread = me();
    let (team, task) = (thread.team(), Block::task(block));
    if task.untied.get() && task.parts.load(Ordering::Relaxed) != 0 {
        // The body of an untied task asks for its own next part.
        tasks::go_on(thread, team, task);
        return 0;
    }
    if tasks::is_cancelled(team, task.made_in.get()) {
        block::forget(thread, block);
        return 0;
    }
    task.parts.store(1, Ordering::Relaxed);
    Block::settle(block);
    let defer = tasks::shall_defer(team, thread.task(), block::is_detachable(task), wanted.is_some());
    tasks::launch(thread, task, defer, wanted);
    0
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_omp_task(_: *const Location, _: i32, block: *mut Block) -> i32 {
    send(block, None)
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_omp_task_parts(_: *const Location, _: i32, block: *mut Block) -> i32 {
    send(block, None)
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_omp_task_with_deps(
    _: *const Location,
    _: i32,
    block: *mut Block,
    count: i32,
    list: *const Dependence,
    more: i32,
    further: *const Dependence,
) -> i32 {
    let wanted = dependences::wanted([(count, list), (more, further)]);
    send(block, wanted)
}

/// Begins a task whose body the program executes itself, now.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_omp_task_begin_if0(_: *const Location, _: i32, block: *mut Block) {
    let task = Block::task(block);
    task.parts.store(1, Ordering::Relaxed);
    tasks::begin_here(me(), task);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_omp_task_complete_if0(_: *const Location, _: i32, block: *mut Block) {
    let thread = me();
    tasks::end_here(thread, thread.team(), Block::task(block));
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_omp_taskwait(_: *const Location, _: i32) -> i32 {
    tasks::wait_for_children(me());
    0
}

/// Waits until the tasks are complete that a task with these dependences would come behind.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_omp_wait_deps(
    location: *const Location,
    thread: i32,
    count: i32,
    list: *const Dependence,
    more: i32,
    further: *const Dependence,
) {
    __kmpc_omp_taskwait_deps_51(location, thread, count, list, more, further, 0);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_omp_taskwait_deps_51(
    _: *const Location,
    _: i32,
    count: i32,
    list: *const Dependence,
    more: i32,
    further: *const Dependence,
    nowait: i32,
) {
    if let Some(wanted) = dependences::wanted([(count, list), (more, further)]) {
        depend::wait_for(wanted, nowait != 0);
    }
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_omp_taskyield(_: *const Location, _: i32, _: i32) -> i32 {
    tasks::yield_to_another(me());
    0
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_taskgroup(_: *const Location, _: i32) {
    taskgroup::enter(me(), false);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_taskgroup(_: *const Location, _: i32) {
    taskgroup::leave(me());
}

/// Makes the task wait for an event once its body is over; returns the event, which is the task itself.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_task_allow_completion_event(
    _: *const Location,
    _: i32,
    block: *mut Block,
) -> *const Task {
    let task = Block::task(block);
    task.detach.store(DETACHABLE, Ordering::Relaxed);
    task
}

/// Completes a proxy task; called by one of the team's threads.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_proxy_task_completed(_: i32, block: *mut Block) {
    tasks::omp_fulfill_event(Block::task(block));
}

/// Completes a proxy task; called by any thread.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_proxy_task_completed_ooo(block: *mut Block) {
    tasks::omp_fulfill_event(Block::task(block));
}

/// Ignores where a task should run.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_omp_reg_task_with_affinity(
    _: *const Location,
    _: i32,
    _: *mut Block,
    _count: i32,
    _list: *const u8,
) -> i32 {
    0
}

/// A number that no other task has at the same time as the current one.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_get_taskid() -> i64 {
    me().state.get().task as i64
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_get_parent_taskid() -> i64 {
    me().task().parent.get() as i64
}
