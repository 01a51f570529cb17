//! Dependences between sibling tasks, by the addresses in their `depend` clauses.
//!
//! Each parent has a table of the addresses of its children; `tasks` asks here whether a task may begin, and reports when one
//! is complete.

use super::task::Task;
use super::tasks::{self, Recipe};
use super::team::{Team, Thread, me};
use atoll_memory::futex::Lock;
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

/// The dependences of one task, in both directions.
pub(crate) struct Links {
    addresses: Vec<usize>,
    /// Whether the task comes behind all earlier siblings with dependences, and before all later ones.
    all: bool,
    /// The number of incomplete tasks that this one waits for; one more while it is being registered.
    missing: AtomicU32,
    /// The tasks that wait for this one; guarded by the parent's table.
    successors: UnsafeCell<Vec<*const Task>>,
}

/// The unfinished children of one task that have dependences.
pub(crate) struct Table(Lock<Siblings>);

#[derive(Default)]
struct Siblings {
    entries: BTreeMap<usize, Entry>,
    /// The last task that came behind all others.
    all: Option<*const Task>,
}

/// The tasks of one address: those that wrote it last, together; those that read it after that; and those after these that will
/// write it together, while no other task comes.
#[derive(Default)]
struct Entry {
    writers: Vec<*const Task>,
    readers: Vec<*const Task>,
    set: Vec<*const Task>,
}

impl Entry {
    /// Adds the task to this address; calls `follow` with each task that it comes behind.
    fn join(&mut self, task: *const Task, access: Access, mut follow: impl FnMut(*const Task)) {
        if access != Access::Together && !self.set.is_empty() {
            // The tasks of the set came behind the others, so they are the last writers now.
            self.writers = std::mem::take(&mut self.set);
            self.readers.clear();
        }
        self.writers.iter().copied().for_each(&mut follow);
        match access {
            Access::Read => self.readers.push(task),
            Access::Together => {
                self.readers.iter().copied().for_each(&mut follow);
                self.set.push(task);
            }
            Access::Write => {
                self.readers.drain(..).for_each(&mut follow);
                self.writers.clear();
                self.writers.push(task);
            }
        }
    }

    /// Removes the complete task; returns true if no task is left.
    fn leave(&mut self, task: *const Task) -> bool {
        for list in [&mut self.writers, &mut self.readers, &mut self.set] {
            list.retain(|other| !std::ptr::eq(*other, task));
        }
        self.writers.is_empty() && self.readers.is_empty() && self.set.is_empty()
    }

    fn tasks(&self) -> impl Iterator<Item = *const Task> {
        [&self.writers, &self.readers, &self.set].into_iter().flatten().copied()
    }
}

/// The access of a task to an address, the strictest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    Write,
    /// Writes the address, in any order or at once with others that do so (`inoutset`).
    Together,
    Read,
}

/// All that a task must come behind.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) list: Vec<(usize, Access)>,
    /// Whether the task depends on all memory (`omp_all_memory`).
    pub(crate) all: bool,
}

/// The kinds of `omp_depend_t`.
const KIND_IN: usize = 1;

/// The addresses of a `depend` argument, each with the task's access. Every kind but `in` counts as written: `mutexinoutset` is
/// ordered like `inout`, which the specification allows.
pub(crate) fn wanted(depend: *const *mut u8) -> Wanted {
    // SAFETY: the program gives an array as described at GOMP_task: either the numbers of all and of written
    // addresses, then these; or 0, the number of all, of out/inout, of mutexinoutset and of in, then these, then
    // addresses of depend objects.
    let word = |index: usize| unsafe { *depend.add(index) } as usize;
    let access = |read: bool| if read { Access::Read } else { Access::Write };
    let mut list = Vec::new();
    if word(0) != 0 {
        let (all, written) = (word(0), word(1));
        list.extend((0..all).map(|index| (word(2 + index), access(index >= written))));
    } else {
        // A clause with iterators may name no address at all: then nothing follows the two words that both forms have.
        let all = word(1);
        let (written, readers) = if all == 0 { (0, 0) } else { (word(2) + word(3), word(4)) };
        for index in 0..all {
            if index < written + readers {
                list.push((word(5 + index), access(index >= written)));
                continue;
            }
            let object = word(5 + index) as *const usize;
            // SAFETY: a depend object is an address and a kind.
            let (address, kind) = unsafe { (*object, *object.add(1)) };
            list.push((address, access(kind == KIND_IN)));
        }
    }
    Wanted { list, all: false }
}

/// Registers the task behind the siblings it depends on. Returns true if there are none, so that the task may begin.
pub(crate) fn register(task: &'static Task, parent: &Task, mut wanted: Wanted) -> bool {
    // Of several clauses for one address the strictest decides, so it is sorted to the front.
    wanted.list.sort_unstable();
    wanted.list.dedup_by_key(|(address, _)| *address);
    let links = Links {
        addresses: wanted.list.iter().map(|(address, _)| *address).collect(),
        all: wanted.all,
        missing: AtomicU32::new(1),
        successors: UnsafeCell::new(Vec::new()),
    };
    // SAFETY: no other thread knows the task yet.
    unsafe { *task.links.get() = Some(Box::new(links)) };
    // SAFETY: only this thread, which executes the parent, makes the table; children complete only after.
    let table = unsafe { &mut *parent.table.get() }
        .get_or_insert_with(|| Box::new(Table(Lock::new(Siblings::default()))));
    let mut siblings = table.0.lock();
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
    siblings.all.into_iter().for_each(follow);
    if wanted.all {
        siblings.entries.values().flat_map(Entry::tasks).for_each(follow);
        siblings.entries.clear();
        siblings.all = Some(task);
    } else {
        for (address, access) in wanted.list {
            siblings.entries.entry(address).or_default().join(task, access, follow);
        }
    }
    drop(siblings);
    // Other side: the subtraction in `complete`.
    links.missing.fetch_sub(1, Ordering::AcqRel) == 1
}

fn links_of(task: &Task) -> Option<&Links> {
    // SAFETY: set before other threads know the task; the successors, which change, are only used under the lock.
    unsafe { (*task.links.get()).as_deref() }
}

/// Notes that the task is complete, and lets those tasks begin that waited only for it.
pub(crate) fn complete(team: &Team, task: &'static Task) {
    let Some(links) = links_of(task) else { return };
    // SAFETY: the task's reference keeps its parent, and the table was made before the task's links.
    let Some(table) = (unsafe { (*(*task.parent.get()).table.get()).as_deref() }) else { return };
    let successors = {
        let mut siblings = table.0.lock();
        if links.all && siblings.all.is_some_and(|all| std::ptr::eq(all, task)) {
            siblings.all = None;
        }
        for address in &links.addresses {
            let entry = siblings.entries.get_mut(address);
            if entry.is_some_and(|entry| entry.leave(task)) {
                siblings.entries.remove(address);
            }
        }
        // SAFETY: the table is locked.
        std::mem::take(unsafe { &mut *links.successors.get() })
    };
    for successor in successors {
        // SAFETY: the successor has not begun, because this task was missing.
        let successor = unsafe { &*successor };
        let deferred = successor.deferred.get();
        let Some(links) = links_of(successor) else { continue };
        // Other side: the same subtraction for the other tasks that the successor waits for, and `wait_until_ready`.
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

/// Waits until the tasks are complete that the current task's next child would come behind; with `later`, only makes later
/// tasks wait.
pub(crate) fn wait_for(wanted: Wanted, later: bool) {
    let thread = me();
    let (team, parent) = (thread.team(), thread.task());
    // SAFETY: only this thread makes the table.
    if unsafe { (*parent.table.get()).is_none() } {
        return;
    }
    let recipe = Recipe { function: nothing, copier: None, size: 0, align: 1, flags: 0, priority: 0 };
    let task = tasks::make(thread, &recipe, false);
    let defer = later && tasks::shall_defer(team, parent, false, true);
    tasks::launch(thread, task, defer, Some(wanted));
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn GOMP_taskwait_depend(depend: *const *mut u8) {
    wait_for(wanted(depend), false);
}
