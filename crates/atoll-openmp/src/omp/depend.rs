//! Dependences between sibling tasks, by the addresses in their `depend` clauses.
//!
//! Each parent has a table of its children's addresses; `tasks` asks here whether a task may begin, and tells
//! when one is complete.

use super::task::Task;
use super::tasks::{self, Recipe};
use super::team::{Team, Thread, me};
use crate::futex::Lock;
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

/// What one task depends on, and what depends on it.
pub(crate) struct Links {
    addresses: Vec<usize>,
    /// Tasks not complete that must be; one more while it is being registered.
    missing: AtomicU32,
    /// Guarded by the parent's table.
    successors: UnsafeCell<Vec<*const Task>>,
}

/// The unfinished children of one task that have dependences.
pub(crate) struct Table(Lock<BTreeMap<usize, Entry>>);

/// One address: the last task that writes it, and the tasks after that read it.
#[derive(Default)]
struct Entry {
    writer: Option<*const Task>,
    readers: Vec<*const Task>,
}

/// `omp_depend_t` kinds.
const KIND_IN: usize = 1;

/// The addresses of a `depend` argument, each with whether it is only read. Everything else than `in` counts as
/// written: `mutexinoutset` is ordered like `inout`, which it may be.
fn addresses(depend: *const *mut u8) -> Vec<(usize, bool)> {
    // SAFETY: the program gives an array as described at GOMP_task: either the numbers of all and of written
    // addresses, then these; or 0, the number of all, of out/inout, of mutexinoutset and of in, then these, then
    // addresses of depend objects.
    let word = |index: usize| unsafe { *depend.add(index) } as usize;
    let mut list = Vec::new();
    if word(0) != 0 {
        let (all, written) = (word(0), word(1));
        list.extend((0..all).map(|index| (word(2 + index), index >= written)));
    } else {
        let (all, written, readers) = (word(1), word(2) + word(3), word(4));
        list.extend((0..written + readers).map(|index| (word(5 + index), index >= written)));
        for index in written + readers..all {
            let object = word(5 + index) as *const usize;
            // SAFETY: a depend object is an address and a kind.
            let (address, kind) = unsafe { (*object, *object.add(1)) };
            list.push((address, kind == KIND_IN));
        }
    }
    // Of several clauses for one address the strictest decides, so it comes first.
    list.sort_unstable();
    list.dedup_by_key(|(address, _)| *address);
    list
}

/// Puts the task behind those siblings it depends on. True if there are none, so that it may begin.
pub(crate) fn register(task: &'static Task, parent: &Task, depend: *const *mut u8) -> bool {
    let wanted = addresses(depend);
    let links = Links {
        addresses: wanted.iter().map(|(address, _)| *address).collect(),
        missing: AtomicU32::new(1),
        successors: UnsafeCell::new(Vec::new()),
    };
    // SAFETY: nobody else knows the task yet.
    unsafe { *task.links.get() = Some(Box::new(links)) };
    // SAFETY: only this thread, which executes the parent, makes the table; children complete only after.
    let table = unsafe { &mut *parent.table.get() }
        .get_or_insert_with(|| Box::new(Table(Lock::new(BTreeMap::new()))));
    let mut map = table.0.lock();
    let Some(links) = links_of(task) else { return true };
    let follow = |before: *const Task| {
        // SAFETY: tasks in the table are not complete.
        let Some(other) = links_of(unsafe { &*before }) else { return };
        // SAFETY: the table is locked.
        let successors = unsafe { &mut *other.successors.get() };
        if successors.last().is_none_or(|last| !std::ptr::eq(*last, task)) {
            successors.push(task);
            links.missing.fetch_add(1, Ordering::Relaxed);
        }
    };
    for (address, only_read) in wanted {
        let entry = map.entry(address).or_default();
        if let Some(writer) = entry.writer {
            follow(writer);
        }
        if only_read {
            entry.readers.push(task);
        } else {
            entry.readers.drain(..).for_each(follow);
            entry.writer = Some(task);
        }
    }
    drop(map);
    // Other side: the subtraction in `complete`.
    links.missing.fetch_sub(1, Ordering::AcqRel) == 1
}

fn links_of(task: &Task) -> Option<&Links> {
    // SAFETY: set before the task is known to others; the successors, which change, are only used under the lock.
    unsafe { (*task.links.get()).as_deref() }
}

/// The task is complete: lets those begin that waited only for it.
pub(crate) fn complete(team: &Team, task: &'static Task) {
    let Some(links) = links_of(task) else { return };
    // SAFETY: the task's reference keeps its parent, and the table was made before the task's links.
    let Some(table) = (unsafe { (*(*task.parent.get()).table.get()).as_deref() }) else { return };
    let successors = {
        let mut map = table.0.lock();
        for address in &links.addresses {
            let Some(entry) = map.get_mut(address) else { continue };
            if entry.writer.is_some_and(|writer| std::ptr::eq(writer, task)) {
                entry.writer = None;
            }
            entry.readers.retain(|reader| !std::ptr::eq(*reader, task));
            if entry.writer.is_none() && entry.readers.is_empty() {
                map.remove(address);
            }
        }
        // SAFETY: the table is locked.
        std::mem::take(unsafe { &mut *links.successors.get() })
    };
    for successor in successors {
        // SAFETY: it has not begun, for this task was missing.
        let successor = unsafe { &*successor };
        let deferred = successor.deferred.get();
        let Some(links) = links_of(successor) else { continue };
        // Other side: the same subtraction for the other tasks it waits for, and `wait_until_ready`.
        if links.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            if deferred {
                tasks::enqueue(team, successor);
            } else {
                team.announce();
            }
        }
    }
}

/// Executes other tasks until this one, which its maker executes itself, may begin.
pub(crate) fn wait_until_ready(thread: &Thread, team: &'static Team, task: &Task) {
    if let Some(links) = links_of(task)
        && links.missing.load(Ordering::Acquire) != 0
    {
        tasks::work_until(thread, team, || links.missing.load(Ordering::SeqCst) == 0);
    }
}

extern "C" fn nothing(_: *mut u8) {}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn GOMP_taskwait_depend(depend: *const *mut u8) {
    let thread = me();
    let parent = thread.task();
    // SAFETY: only this thread makes the table.
    if unsafe { (*parent.table.get()).is_none() } {
        return;
    }
    let recipe = Recipe { function: nothing, copier: None, size: 0, align: 1, flags: 0, priority: 0 };
    let task = tasks::make(thread, &recipe, false);
    register(task, parent, depend);
    tasks::execute_at_once(thread, thread.team(), task);
}
