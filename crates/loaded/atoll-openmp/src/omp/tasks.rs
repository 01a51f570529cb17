//! Explicit tasks: made, queued, stolen, executed, completed; `taskwait` and detached tasks.
//!
//! Each member queues the tasks it makes, and takes its own newest first and others' oldest first. A thread that waits inside a
//! task executes only descendants of that task, so that no task it takes can wait for something that it holds.

use super::depend::{self, Wanted};
use super::env;
use super::hooks;
use super::spread::{safety, stacks, travel};
use super::task::{BODY_ENDED, DETACHABLE, FULFILLED, Group, Packing, Task};
use super::team::{Function, Team, Thread, me};
use atoll_memory::futex::{self, Guard, Lock};
use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::Ordering;

pub(crate) const FLAG_FINAL: u32 = 1 << 1;
pub(crate) const FLAG_DEPEND: u32 = 1 << 3;
pub(crate) const FLAG_PRIORITY: u32 = 1 << 4;
pub(crate) const FLAG_DETACH: u32 = 1 << 13;

/// All waiters at a gate.
const ALL: u32 = i32::MAX as u32;

/// The program's function that copies a task's arguments.
pub(crate) type Copier = extern "C" fn(*mut u8, *mut u8);

/// The properties of a new task, except its arguments.
pub(crate) struct Recipe {
    pub(crate) function: Function,
    pub(crate) copier: Option<Copier>,
    pub(crate) size: usize,
    pub(crate) align: usize,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
}

/// Whether tasks made in `group` are cancelled before they begin.
pub(crate) fn is_cancelled(team: &Team, group: *const Group) -> bool {
    if !env::cancellation() {
        return false;
    }
    // SAFETY: a task's group is open while the task exists.
    team.is_cancelled() || unsafe { group.as_ref() }.is_some_and(Group::is_cancelled)
}

/// Whether the member may queue a task; otherwise it has to execute the task at once.
pub(crate) fn may_defer(team: &Team, parent: &Task) -> bool {
    !team.has_one_worker()
        && !parent.is_final.get()
        && (team.tasks.pending.load(Ordering::Relaxed) <= 64 * team.size.get() || !env::throttles_tasks())
}

/// Whether a task is left for later that its maker does not wait for.
pub(crate) fn shall_defer(team: &Team, parent: &Task, detachable: bool, depends: bool) -> bool {
    // In a team of one, only tasks are deferred that wait for an event, or for a task that does.
    let unfinished = depends && team.has_one_worker() && parent.children.load(Ordering::Relaxed) != 0;
    may_defer(team, parent) || (detachable || unfinished) && !parent.is_final.get()
}

/// Starts a task that has its arguments: queues it behind those it depends on, or executes it now where it is not deferred.
pub(crate) fn launch(thread: &Thread, task: &'static Task, defer: bool, dependences: Option<Wanted>) {
    let (team, parent) = (thread.team(), thread.task());
    if defer {
        count(team, task);
    }
    let ready = dependences.is_none_or(|wanted| depend::register(task, parent, wanted));
    if !defer {
        execute_at_once(thread, team, task);
    } else if ready {
        if team.has_one_worker() {
            parent.unbegun.fetch_sub(1, Ordering::Relaxed);
            execute(thread, team, task);
        } else {
            enqueue(team, task);
        }
    }
}

/// Makes a child of the current task; its arguments are still to be copied.
pub(crate) fn make(thread: &Thread, recipe: &Recipe, room: bool) -> &'static Task {
    let parent = thread.task();
    let (size, align) = if room { (recipe.size, recipe.align) } else { (0, 1) };
    let is_bytes = room && recipe.is_bytes(thread.team());
    // SAFETY: just made; lives until it completes.
    let task = unsafe { &*Task::explicit(thread, parent, (size, align), !is_bytes) };
    if is_bytes {
        task.packing.set(Packing::Bytes { size, align });
    }
    task.function.set(Some(recipe.function));
    task.is_final.set(parent.is_final.get() || recipe.flags & FLAG_FINAL != 0);
    task.priority.set(recipe.priority);
    task.team.set(thread.state.get().team);
    task.home.set(thread.id());
    task
}

impl Recipe {
    /// May a copy of the arguments' bytes be used elsewhere?
    fn is_bytes(&self, team: &Team) -> bool {
        self.copier.is_none_or(|copier| team.sends_tasks() && safety::copies_only(copier as usize))
    }
}

/// Whether one of the words at `data` is an address among these `size` bytes.
///
/// # Safety
/// The bytes can be read.
unsafe fn refers_to_itself(data: *const u8, size: usize) -> bool {
    let own = data as usize..=data as usize + size;
    // SAFETY: the caller's promise; gaps may hold anything.
    (0..size / 8).any(|at| own.contains(&unsafe { data.add(8 * at).cast::<usize>().read_unaligned() }))
}

/// Copies the arguments into the task's own memory.
pub(crate) fn copy_arguments(task: &Task, recipe: &Recipe, data: *mut u8) {
    match recipe.copier {
        Some(copier) => {
            copier(task.data.get(), data);
            task.copied.set(true);
            // SAFETY: the task has so many bytes, which the copier has filled, but for gaps.
            let refers = || unsafe { refers_to_itself(task.data.get(), recipe.size) };
            if task.packing.get() != Packing::Fixed && refers() {
                task.packing.set(Packing::Fixed);
            }
        }
        // SAFETY: the program gives `size` bytes of arguments, and the task has room for as many.
        None => unsafe { task.data.get().copy_from_nonoverlapping(data, recipe.size) },
    }
}

/// Counts a task that will be complete later, wherever a thread may wait for it.
pub(crate) fn count(team: &Team, task: &Task) {
    task.deferred.set(true);
    task.hold_parent();
    // SAFETY: the parent is the current task.
    let parent = unsafe { &*task.parent.get() };
    parent.children.fetch_add(1, Ordering::Relaxed);
    parent.unbegun.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the group is open while a task is made in it.
    if let Some(group) = unsafe { task.made_in.get().as_ref() } {
        group.count.fetch_add(1, Ordering::Relaxed);
    }
    team.tasks.pending.fetch_add(1, Ordering::SeqCst);
}

/// Queues a counted task whose dependences are met, so that any member may begin it.
pub(crate) fn enqueue(team: &Team, task: &Task) {
    if task.priority.get() > 0 {
        let serial = team.tasks.urgent_serial.fetch_add(1, Ordering::Relaxed);
        team.tasks.urgent.lock().insert((-task.priority.get(), serial), task);
        team.tasks.urgent_count.fetch_add(1, Ordering::Release);
    } else {
        team.members[task.home.get() as usize].queue.lock().push_back(task);
    }
    // Other side: waiters' reads of `queued` and `events`.
    let first = team.tasks.queued.fetch_add(1, Ordering::SeqCst) == 0;
    team.tasks.events.fetch_add(1, Ordering::SeqCst);
    if first {
        // One is enough: whoever takes a task and leaves others wakes one more.
        team.gate.wake_up_to(1);
    }
    if first || !futex::is_crowded() {
        team.turns.wake_up_to(ALL);
    }
    travel::offer(team);
}

/// Notes that a task has left its queue and begins.
fn begin(team: &Team, task: *const Task) -> &'static Task {
    if team.tasks.queued.fetch_sub(1, Ordering::SeqCst) > 1 {
        team.gate.wake_up_to(1);
    }
    // SAFETY: a counted task lives until it completes.
    let task = unsafe { &*task };
    // SAFETY: the task keeps its parent alive.
    unsafe { &*task.parent.get() }.unbegun.fetch_sub(1, Ordering::Relaxed);
    task
}

/// The most tasks of a queue that are looked at for other nodes.
const MOST_LOOKED_AT: usize = 64;

/// Takes up to `most` tasks out of the team's queues for which `fits` holds, the oldest of each queue, for other nodes.
/// Queues that somebody uses now are left out. The caller is the agent: nothing is allocated in a heap of the program's threads.
pub(crate) fn take_for_others(
    team: &Team,
    most: usize,
    mut fits: impl FnMut(&Task) -> bool,
    mut each: impl FnMut(&'static Task),
) {
    let mut left = most;
    for member in &team.members[..team.size.get() as usize] {
        let Some(mut queue) = member.queue.try_lock() else { continue };
        let mut passed = 0;
        while left > 0 && passed < queue.len().min(MOST_LOOKED_AT) {
            // SAFETY: queued tasks are not complete, and so they are alive.
            if !fits(unsafe { &*queue[passed] }) {
                passed += 1;
                continue;
            }
            let Some(task) = queue.remove(passed) else { break };
            left -= 1;
            team.tasks.queued.fetch_sub(1, Ordering::SeqCst);
            // SAFETY: a counted task lives until it completes.
            let task = unsafe { &*task };
            // SAFETY: the task keeps its parent alive.
            unsafe { &*task.parent.get() }.unbegun.fetch_sub(1, Ordering::Relaxed);
            each(task);
        }
    }
}

/// Queues a task again that `take_for_others` took and that nobody began.
pub(crate) fn queue_again(team: &Team, task: &Task) {
    // SAFETY: the task keeps its parent alive.
    unsafe { &*task.parent.get() }.unbegun.fetch_add(1, Ordering::Relaxed);
    enqueue(team, task);
}

/// The most tasks that a member takes over besides the one that it executes.
const MOST_TAKEN_OVER: usize = 7;

/// How a member looks for a task.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Search {
    /// It may execute any task, and takes over some more from a member that has many: queues of two members that meet at every
    /// task are slow.
    Any,
    /// It may execute few tasks, and looks at the first ones of each queue.
    Near,
    /// The same, and a child of its own task waits somewhere, maybe taken over by another member: it looks at all.
    Deep,
}

/// Takes the first queued task for which `fits` holds.
fn take(thread: &Thread, team: &Team, search: Search, fits: impl Fn(&Task) -> bool) -> Option<&'static Task> {
    if team.tasks.queued.load(Ordering::Acquire) == 0 {
        return None;
    }
    // SAFETY: queued tasks are not complete, and so they are alive.
    let fits = |task: &*const Task| fits(unsafe { &**task });
    if team.tasks.urgent_count.load(Ordering::Acquire) != 0 {
        let mut urgent = team.tasks.urgent.lock();
        if let Some(key) = urgent.iter().find(|(_, task)| fits(task)).map(|(key, _)| *key) {
            let task = urgent.remove(&key);
            team.tasks.urgent_count.fetch_sub(1, Ordering::Relaxed);
            return task.map(|task| begin(team, task));
        }
    }
    let depth = if search == Search::Deep { usize::MAX } else { 4 };
    let own = thread.id() as usize;
    {
        let mut queue = team.members[own].queue.lock();
        let found = queue.iter().rev().take(depth).position(&fits);
        if let Some(back) = found {
            let at = queue.len() - 1 - back;
            return queue.remove(at).map(|task| begin(team, task));
        }
    }
    let size = team.size.get() as usize;
    for victim in (own + 1..size).chain(0..own) {
        let mut queue = team.members[victim].queue.lock();
        let found = queue.iter().take(depth).position(&fits);
        if let Some(at) = found {
            let task = queue.remove(at);
            if search == Search::Any {
                take_over(queue, &team.members[own].queue);
            }
            return task.map(|task| begin(team, task));
        }
    }
    None
}

/// Moves some of the oldest tasks of another member's queue, half of them at most, to the member's own.
fn take_over(mut from: Guard<'_, VecDeque<*const Task>>, own: &Lock<VecDeque<*const Task>>) {
    let mut taken = [ptr::null(); MOST_TAKEN_OVER];
    let count = (from.len() / 2).min(MOST_TAKEN_OVER);
    for (place, task) in taken.iter_mut().zip(from.drain(..count)) {
        *place = task;
    }
    // No member holds two queues.
    drop(from);
    if count > 0 {
        own.lock().extend(&taken[..count]);
    }
}

/// Executes any queued task of the team; false where there is none. `belongs` tells, with the task's queue locked, whether the
/// thread still has a part in the region.
pub(crate) fn execute_any(thread: &Thread, team: &'static Team, belongs: impl Fn() -> bool) -> bool {
    match take(thread, team, Search::Any, |_| belongs()) {
        Some(task) => {
            execute(thread, team, task);
            true
        }
        None => false,
    }
}

/// Executes a counted task, and completes it unless its event is still to come.
pub(crate) fn execute(thread: &Thread, team: &'static Team, task: &'static Task) {
    if team.tasks.queued.load(Ordering::Relaxed) != 0 {
        travel::offer(team);
    }
    let skip = !task.copied.get() && is_cancelled(team, task.made_in.get());
    if !skip {
        run_body(thread, team, task);
    }
    // Other side: the addition in `go_on`. A later part of the task ends it.
    if task.untied.get() && task.parts.fetch_sub(1, Ordering::AcqRel) != 1 {
        return;
    }
    if let Some(ending) = task.ending.get() {
        ending(task.data.get());
    }
    if task.detach.load(Ordering::Acquire) & DETACHABLE != 0 && !skip {
        // Other side: `omp_fulfill_event`. The thread that comes second completes the task.
        let before = task.detach.fetch_or(BODY_ENDED, Ordering::AcqRel);
        if before & FULFILLED == 0 {
            return;
        }
    }
    complete(team, task);
}

/// Queues the next part of an untied task for any member to execute. The task's body asks for this, and then returns.
pub(crate) fn go_on(thread: &Thread, team: &'static Team, task: &'static Task) {
    task.parts.fetch_add(1, Ordering::AcqRel);
    if task.deferred.get() && !team.has_one_worker() {
        // SAFETY: the task's reference keeps its parent.
        unsafe { &*task.parent.get() }.unbegun.fetch_add(1, Ordering::Relaxed);
        enqueue(team, task);
    } else {
        run_body(thread, team, task);
        // The part that asked goes on, so the task is not over.
        task.parts.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Discards a task that was made and shall not run.
pub(crate) fn drop_unbegun(team: &Team, task: &'static Task) {
    if let Some(ending) = task.ending.get() {
        ending(task.data.get());
    }
    complete(team, task);
}

/// Begins the body of a task in the calling thread, which executes the body itself.
pub(crate) fn begin_here(thread: &Thread, task: &'static Task) {
    thread.set_task(task);
}

/// Ends a body that `begin_here` began; the maker of the task goes on.
pub(crate) fn end_here(thread: &Thread, team: &'static Team, task: &'static Task) {
    thread.update(|state| state.task = task.parent.get());
    finish_at_once(thread, team, task);
}

pub(crate) fn run_body(thread: &Thread, team: &Team, task: &'static Task) {
    let outer = thread.state.get().task;
    let leaving = thread.leaving.replace(false);
    if leaving {
        // The region was left already, but the pages that the task touches still belong to it.
        hooks::region_enter(team.key());
    }
    thread.set_task(task);
    if let Some(function) = task.function.get() {
        match task.packing.get() {
            Packing::Bytes { size, align } if team.sends_tasks() => {
                stacks::call_with_copy(thread, team, function, (task.data.get(), size, align));
            }
            _ => stacks::call(thread, team, function, task.data.get()),
        }
    }
    thread.update(|state| state.task = outer);
    if leaving {
        hooks::region_leave();
        thread.leaving.set(true);
    }
}

/// Completes a task: tells all threads that may wait for it.
///
/// When no task is pending any more, nobody at a barrier is woken: the member that completes the last task comes to the barrier
/// itself, and opens it if it is the last to come.
pub(crate) fn complete(team: &Team, task: &'static Task) {
    depend::complete(team, task);
    if !task.deferred.get() {
        // SAFETY: the task is over, and its parent is the current task.
        unsafe { Task::end_at_once(task) };
        return;
    }
    // SAFETY: the task's reference keeps its parent.
    let parent = unsafe { &*task.parent.get() };
    // Other side: the read in `wait_for_children`.
    let mut last = parent.children.fetch_sub(1, Ordering::SeqCst) == 1;
    // SAFETY: the group stays open until its count is 0, and is not used after that.
    if let Some(group) = unsafe { task.made_in.get().as_ref() } {
        last |= group.count.fetch_sub(1, Ordering::SeqCst) == 1;
    }
    // SAFETY: the task's own reference, not used any more.
    unsafe { Task::release(task) };
    // Other side: `Barrier::claim`. From here on the region may be over.
    team.tasks.pending.fetch_sub(1, Ordering::SeqCst);
    if last {
        team.announce();
    }
}

/// Executes descendants of the current task until `done`.
pub(crate) fn work_until(thread: &Thread, team: &'static Team, done: impl Fn() -> bool) {
    let current = thread.task();
    loop {
        // Read before the checks below: any later event changes it.
        let events = team.tasks.events.load(Ordering::Acquire);
        if done() {
            return;
        }
        if travel::settle(team) {
            continue;
        }
        let search = if current.unbegun.load(Ordering::Relaxed) != 0 { Search::Deep } else { Search::Near };
        if let Some(task) = take(thread, team, search, |task| task.descends_from(current)) {
            execute(thread, team, task);
            continue;
        }
        if team.tasks.queued.load(Ordering::Relaxed) != 0 {
            // The tasks are for others.
            team.gate.wake_up_to(1);
        }
        travel::wait_inside(team);
        team.turns.wait_until(|| done() || team.tasks.events.load(Ordering::SeqCst) != events);
    }
}

/// Executes another task, if there is one that the thread may execute now: outside explicit tasks any, inside one only its
/// descendants.
pub(crate) fn yield_to_another(thread: &Thread) {
    let (team, current) = (thread.team(), thread.task());
    let any = current.parent.get().is_null();
    if let Some(task) = take(thread, team, Search::Near, |task| any || task.descends_from(current)) {
        execute(thread, team, task);
    }
}

/// Waits for the current task's children.
pub(crate) fn wait_for_children(thread: &Thread) {
    let task = thread.task();
    if task.children.load(Ordering::Acquire) != 0 {
        work_until(thread, thread.team(), || task.children.load(Ordering::SeqCst) == 0);
    }
}

/// Executes a task of the calling thread at once that has no dependences and no event, so that nobody else hears of it. Where a
/// program makes tasks down to some depth and no further, nearly all are such.
#[inline]
fn execute_simple(thread: &Thread, team: &Team, is_final: bool, (function, data): (Function, *mut u8)) {
    let parent = thread.task();
    // SAFETY: just made; lives until it ends below.
    let task = unsafe { &*Task::at_once(thread, parent, is_final) };
    thread.set_task(task);
    stacks::call(thread, team, function, data);
    thread.set_task(parent);
    // SAFETY: the task is over, and its parent is the current task.
    unsafe { Task::end_at_once(task) };
}

/// The same of a task whose arguments the program's function copies.
#[inline(never)]
fn execute_with_copy(
    thread: &Thread,
    team: &Team,
    is_final: bool,
    (function, copier, data, size, align): (Function, Copier, *mut u8, usize, usize),
) {
    stacks::with_room(size, align, |room| {
        copier(room, data);
        execute_simple(thread, team, is_final, (function, room));
    });
}

/// Executes a task that was not counted, while its maker waits.
pub(crate) fn execute_at_once(thread: &Thread, team: &'static Team, task: &'static Task) {
    depend::wait_until_ready(thread, team, task);
    run_body(thread, team, task);
    finish_at_once(thread, team, task);
}

/// Ends the body of a task that was not counted.
fn finish_at_once(thread: &Thread, team: &'static Team, task: &'static Task) {
    if let Some(ending) = task.ending.get() {
        ending(task.data.get());
    }
    if task.detach.load(Ordering::Acquire) & DETACHABLE != 0 {
        work_until(thread, team, || task.detach.load(Ordering::SeqCst) & FULFILLED != 0);
    }
    complete(team, task);
}

/// The priority that a task gets when it asks for `asked`.
pub(crate) fn priority(flags: u32, asked: i32) -> i32 {
    if flags & FLAG_PRIORITY == 0 { 0 } else { asked.min(env::max_task_priority()) }
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_task(
    function: Function,
    data: *mut u8,
    copier: Option<Copier>,
    size: i64,
    align: i64,
    deferrable: bool,
    flags: u32,
    depend: *const *mut u8,
    priority_asked: i32,
    detach: *mut *const Task,
) {
    let thread = me();
    let team = thread.team();
    let parent = thread.task();
    if is_cancelled(team, parent.group.get()) {
        return;
    }
    let (size, align) = (size as usize, align as usize);
    let is_simple = flags & (FLAG_DETACH | FLAG_DEPEND) == 0 && !thread.leaving.get();
    if is_simple && !(deferrable && may_defer(team, parent)) {
        let is_final = parent.is_final.get() || flags & FLAG_FINAL != 0;
        match copier {
            None => return execute_simple(thread, team, is_final, (function, data)),
            Some(copier) if !team.sends_tasks() && stacks::has_room(size, align) => {
                return execute_with_copy(thread, team, is_final, (function, copier, data, size, align));
            }
            Some(_) => {}
        }
    }
    let priority = priority(flags, priority_asked);
    let recipe = Recipe { function, copier, size, align, flags, priority };
    make_and_launch(thread, &recipe, (data, deferrable), (depend, detach));
}

/// Makes a task that may be left for later, or of which others hear, and starts it.
#[inline(never)]
fn make_and_launch(
    thread: &Thread,
    recipe: &Recipe,
    (data, deferrable): (*mut u8, bool),
    (depend, detach): (*const *mut u8, *mut *const Task),
) {
    let (team, parent) = (thread.team(), thread.task());
    let (flags, copier) = (recipe.flags, recipe.copier);
    let detachable = flags & FLAG_DETACH != 0;
    let depends = flags & FLAG_DEPEND != 0;
    let defer = deferrable && shall_defer(team, parent, detachable, depends);
    let task = make(thread, recipe, defer || copier.is_some());
    if detachable {
        task.detach.store(DETACHABLE, Ordering::Relaxed);
        // SAFETY: the program gives the place of its event variable, and the arguments begin with a copy of it.
        unsafe {
            *detach = task;
            *data.cast::<*const Task>() = task;
        }
    }
    if defer || copier.is_some() {
        copy_arguments(task, recipe, data);
    } else {
        task.data.set(data);
    }
    launch(thread, task, defer, depends.then(|| depend::wanted(depend)));
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_taskwait() {
    wait_for_children(me());
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_taskyield() {}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_fulfill_event(event: *const Task) {
    // SAFETY: an event is the task that waits for it, alive until fulfilled.
    let task = unsafe { &*event };
    // SAFETY: teams are never freed.
    let team = unsafe { &*task.team.get() };
    // Other side: `execute` and `execute_at_once`.
    let before = task.detach.fetch_or(FULFILLED, Ordering::AcqRel);
    if before & FULFILLED != 0 {
        super::fatal("omp_fulfill_event: event already fulfilled");
    }
    if before & BODY_ENDED != 0 {
        complete(team, task);
        // The caller may be no member that comes to a barrier.
        team.tasks.events.fetch_add(1, Ordering::SeqCst);
        team.gate.wake_up_to(ALL);
    } else {
        team.announce();
    }
}
