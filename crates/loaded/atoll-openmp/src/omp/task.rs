//! Tasks and task groups: their descriptors, and how long these live.
//!
//! `tasks` makes, queues and executes tasks; `depend` orders them; `taskgroup` waits for them.

use super::depend::{Links, Table};
use super::icv::Icv;
use super::kmp;
use super::team::{Function, Team, Thread, in_region, known};
use crate::heap::exports;
use std::alloc::{Layout, alloc, dealloc};
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Bits of `Task::detach`.
pub(crate) const DETACHABLE: u32 = 1;
pub(crate) const BODY_ENDED: u32 = 2;
pub(crate) const FULFILLED: u32 = 4;

/// Whether and how a task's arguments can be copied to another place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packing {
    /// They stay where they are.
    Fixed,
    /// They are so many bytes, aligned so.
    Bytes { size: usize, align: usize },
    /// They are a block of `kmp::block`.
    Block,
}

/// A task. Implicit tasks lie in their team, explicit ones on the heap in front of their arguments.
pub(crate) struct Task {
    /// One reference for the task itself until it is complete, and one for each child that still knows it as its parent: a
    /// child takes it when it is counted, or when it ends before its own children.
    references: AtomicU32,
    pub(crate) parent: Cell<*const Task>,
    /// The number of children that are not complete, and of those among them that no thread has begun.
    pub(crate) children: AtomicU32,
    pub(crate) unbegun: AtomicU32,
    /// The task group for children made now, and the one that this task was made in.
    pub(crate) group: Cell<*const Group>,
    pub(crate) made_in: Cell<*const Group>,
    pub(crate) icv: Cell<Icv>,
    pub(crate) is_final: Cell<bool>,
    /// The number of explicit tasks around it, and itself.
    pub(crate) depth: Cell<u32>,
    /// Whether the task is counted as pending, and queued once its dependences are met.
    pub(crate) deferred: Cell<bool>,
    /// Whether the program's copy function made the arguments, so that the body must run to destroy them.
    pub(crate) copied: Cell<bool>,
    pub(crate) priority: Cell<i32>,
    pub(crate) team: Cell<*const Team>,
    /// The member that made the task.
    pub(crate) home: Cell<u32>,
    pub(crate) function: Cell<Option<Function>>,
    pub(crate) data: Cell<*mut u8>,
    pub(crate) packing: Cell<Packing>,
    /// The paged block with the arguments, where they do not lie behind the task.
    block: Cell<*mut c_void>,
    pub(crate) detach: AtomicU32,
    /// The function called once the body is over, or will not run.
    pub(crate) ending: Cell<Option<Function>>,
    /// Whether the body may queue the task again, to go on in another thread; and how often it is queued or executed now.
    pub(crate) untied: Cell<bool>,
    pub(crate) parts: AtomicU32,
    /// The task's dependences on siblings, and the table of its children's, by address.
    pub(crate) links: UnsafeCell<Option<Box<Links>>>,
    pub(crate) table: UnsafeCell<Option<Box<Table>>>,
    layout: Layout,
}

// SAFETY: the maker sets cells before the task is queued; later only the thread that executes the task does.
unsafe impl Sync for Task {}

/// A task group: counts its tasks and all their descendants.
pub(crate) struct Group {
    pub(crate) outer: *const Group,
    pub(crate) count: AtomicU32,
    pub(crate) cancelled: AtomicBool,
    /// Whether the runtime made the group for the reductions of a work-sharing construct.
    pub(crate) workshare: bool,
    pub(crate) reductions: Cell<*mut usize>,
    /// The reductions of LLVM's ABI.
    pub(crate) kmp_reductions: Cell<*mut kmp::Reductions>,
}

// SAFETY: `reductions` is set by the thread whose task opened the group, before it makes tasks in it.
unsafe impl Sync for Group {}

/// The memory of a task whose arguments are few.
const BLOCK: Layout = match Layout::from_size_align(512, 64) {
    Ok(layout) => layout,
    Err(_) => panic!("a block has such a size"),
};
/// The most blocks that a thread keeps.
const MOST_BLOCKS: u32 = 64;

/// The blocks of memory that a thread keeps of tasks that ended, as a list: each begins with the address of the next.
pub(crate) struct Blocks {
    first: Cell<*mut u8>,
    count: Cell<u32>,
}

impl Blocks {
    pub(crate) const fn new() -> Blocks {
        Blocks { first: Cell::new(ptr::null_mut()), count: Cell::new(0) }
    }

    /// Takes a block; `None` if there is none. Only the thread itself takes and gives.
    #[inline]
    fn take(&self) -> Option<*mut u8> {
        let block = self.first.get();
        if block.is_null() {
            return None;
        }
        // SAFETY: a block in the list holds the address of the next.
        self.first.set(unsafe { block.cast::<*mut u8>().read() });
        self.count.set(self.count.get() - 1);
        Some(block)
    }

    /// Keeps a block that nobody uses; false if there are enough.
    #[inline]
    fn give(&self, block: *mut u8) -> bool {
        if self.count.get() == MOST_BLOCKS {
            return false;
        }
        // SAFETY: the block is nobody's, and has room for an address.
        unsafe { block.cast::<*mut u8>().write(self.first.get()) };
        self.first.set(block);
        self.count.set(self.count.get() + 1);
        true
    }
}

/// The memory of a new task: a block that was kept, or else memory from the heap.
#[inline]
fn memory(kept: Option<*mut u8>, layout: Layout) -> *mut u8 {
    let memory = kept.unwrap_or_else(|| {
        // SAFETY: the layout is not empty.
        unsafe { alloc(layout) }
    });
    if memory.is_null() {
        super::fatal("Out of memory allocating a task");
    }
    memory
}

impl Group {
    pub(crate) fn open(outer: *const Group, workshare: bool) -> *const Group {
        // SAFETY: an outer group is open as long as the inner one.
        let reductions = unsafe { outer.as_ref() }.map_or(ptr::null_mut(), |outer| outer.reductions.get());
        Box::into_raw(Box::new(Group {
            outer,
            count: AtomicU32::new(0),
            cancelled: AtomicBool::new(false),
            workshare,
            reductions: Cell::new(reductions),
            kmp_reductions: Cell::new(ptr::null_mut()),
        }))
    }

    /// Frees a group without tasks.
    ///
    /// # Safety
    /// The group comes from `open`, and no task refers to it.
    pub(crate) unsafe fn close(group: *const Group) {
        // SAFETY: the caller promises it.
        drop(unsafe { Box::from_raw(group.cast_mut()) });
    }

    /// Whether the group is cancelled, or the one that its work-sharing construct is in.
    pub(crate) fn is_cancelled(&self) -> bool {
        if self.cancelled.load(Ordering::Acquire) {
            return true;
        }
        // SAFETY: an outer group is open as long as the inner one.
        let outer = unsafe { self.outer.as_ref() };
        self.workshare && outer.is_some_and(|outer| outer.cancelled.load(Ordering::Acquire))
    }
}

impl Task {
    #[inline(always)]
    fn new(layout: Layout) -> Task {
        Task {
            references: AtomicU32::new(1),
            parent: Cell::new(ptr::null()),
            children: AtomicU32::new(0),
            unbegun: AtomicU32::new(0),
            group: Cell::new(ptr::null()),
            made_in: Cell::new(ptr::null()),
            icv: Cell::new(Icv::initial(1)),
            is_final: Cell::new(false),
            depth: Cell::new(0),
            deferred: Cell::new(false),
            copied: Cell::new(false),
            priority: Cell::new(0),
            team: Cell::new(ptr::null()),
            home: Cell::new(0),
            function: Cell::new(None),
            data: Cell::new(ptr::null_mut()),
            packing: Cell::new(Packing::Fixed),
            block: Cell::new(ptr::null_mut()),
            detach: AtomicU32::new(0),
            ending: Cell::new(None),
            untied: Cell::new(false),
            parts: AtomicU32::new(0),
            links: UnsafeCell::new(None),
            table: UnsafeCell::new(None),
            layout,
        }
    }

    /// What a child of `parent` begins as.
    #[inline(always)]
    fn child(parent: &Task, layout: Layout) -> Task {
        let group = parent.group.get();
        Task {
            parent: Cell::new(parent),
            depth: Cell::new(parent.depth.get().saturating_add(1)),
            icv: Cell::new(parent.icv.get()),
            group: Cell::new(group),
            made_in: Cell::new(group),
            ..Task::new(layout)
        }
    }

    /// Makes an implicit task, which lies in a team.
    pub(crate) fn implicit() -> Task {
        Task::new(Layout::new::<Task>())
    }

    /// Starts an implicit task. All children of its last region are complete.
    pub(crate) fn begin_implicit(&self, icv: Icv, group: *const Group) {
        self.icv.set(icv);
        self.group.set(group);
        // SAFETY: only children use the table, and there are none.
        unsafe { *self.table.get() = None };
    }

    /// Makes a child of `parent` with room for `size` bytes of arguments, aligned to `align`. `stays`: no other node may execute it.
    pub(crate) fn explicit(
        thread: &Thread,
        parent: &Task,
        (size, align): (usize, usize),
        stays: bool,
    ) -> *const Task {
        // A region in such a task may be spread, and its own tasks may travel: other nodes then read the arguments.
        let is_read = || !in_region() || (stays && thread.team().sends_tasks());
        let block = if atoll_nodes::active() && size > 0 && is_read() {
            exports::program_block(size.saturating_add(align))
        } else {
            None
        };
        let size = if block.is_some() { 0 } else { size };
        let arguments = Layout::from_size_align(size, align.max(1)).unwrap_or(Layout::new::<u128>());
        let Ok((needed, offset)) = Layout::new::<Task>().extend(arguments) else {
            super::fatal("Out of memory allocating a task");
        };
        let small = needed.size() <= BLOCK.size() && needed.align() <= BLOCK.align();
        let layout = if small { BLOCK } else { needed };
        let memory = memory(if small { thread.blocks.take() } else { None }, layout);
        let task = Task::child(parent, layout);
        // SAFETY: the memory has room for a task, and the arguments begin within it.
        unsafe {
            task.data.set(memory.add(offset));
            if let Some(block) = block {
                task.block.set(block);
                task.data.set(block.cast::<u8>().add(block.cast::<u8>().align_offset(align.max(1))));
            }
            memory.cast::<Task>().write(task);
        }
        memory.cast::<Task>()
    }

    /// Makes a child of `parent` that the thread itself executes at once, with arguments that stay where they are.
    #[inline]
    pub(crate) fn at_once(thread: &Thread, parent: &Task, is_final: bool) -> *const Task {
        let task = memory(thread.blocks.take(), BLOCK).cast::<Task>();
        // SAFETY: a block has room for a task.
        unsafe { task.write(Task { is_final: Cell::new(is_final), ..Task::child(parent, BLOCK) }) };
        task
    }

    /// Whether the task's arguments lie behind it, in memory that is not paged.
    pub(crate) fn has_own_arguments(&self) -> bool {
        self.block.get().is_null()
    }

    /// Takes the reference to the parent that a task needs which may outlive its maker's wait for it. Only the thread that
    /// executes the parent calls this.
    pub(crate) fn hold_parent(&self) {
        // SAFETY: the parent is the current task.
        unsafe { &*self.parent.get() }.references.fetch_add(1, Ordering::Relaxed);
    }

    /// Frees a task that did not hold its parent, at its end; if children know it still, the last of these frees it.
    ///
    /// # Safety
    /// The caller executed the task, while the task's parent waited, and no longer uses it.
    pub(crate) unsafe fn end_at_once(task: *const Task) {
        // SAFETY: the caller promises it. Only the thread that executes a task adds references to it, so that the last is its own.
        unsafe {
            // Other side: the subtractions in `release`.
            if (*task).references.load(Ordering::Acquire) == 1 {
                Task::free(task);
            } else {
                (*task).hold_parent();
                Task::release(task);
            }
        }
    }

    /// Frees a task's memory.
    ///
    /// # Safety
    /// The task is not used any more.
    unsafe fn free(task: *const Task) {
        let memory = task.cast_mut().cast::<u8>();
        // SAFETY: the memory is from `explicit`, and nobody uses it.
        unsafe {
            let layout = (*task).layout;
            if !(*task).block.get().is_null() {
                exports::free((*task).block.get());
            }
            ptr::drop_in_place(task.cast_mut());
            if layout == BLOCK && known().is_some_and(|thread| thread.blocks.give(memory)) {
                return;
            }
            dealloc(memory, layout);
        }
    }

    /// Whether `ancestor` is this task's parent or a further ancestor.
    pub(crate) fn descends_from(&self, ancestor: *const Task) -> bool {
        let mut at = self.parent.get();
        while !at.is_null() {
            if ptr::eq(at, ancestor) {
                return true;
            }
            // SAFETY: a task's reference keeps its parent.
            at = unsafe { (*at).parent.get() };
        }
        false
    }

    /// Gives up one reference to an explicit task. The last one frees the task and gives up its reference to its parent.
    ///
    /// # Safety
    /// The reference is the caller's, who no longer uses the task, and the task holds its parent.
    pub(crate) unsafe fn release(task: *const Task) {
        let mut at = task;
        // SAFETY: each turn gives up one reference that was held: the caller's, then that of the task just freed.
        unsafe {
            while !at.is_null() && (*at).references.fetch_sub(1, Ordering::AcqRel) == 1 {
                let parent = (*at).parent.get();
                Task::free(at);
                at = parent;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::team::adopt;
    use super::*;

    #[test]
    fn the_memory_of_a_task_that_ended_is_the_next_ones() {
        let thread = Thread::new(false, false);
        adopt(thread);
        let root = Task::implicit();
        let first = Task::explicit(thread, &root, (8, 8), false);
        // SAFETY: the task is over, and nobody uses it.
        unsafe { Task::end_at_once(first) };
        assert!(ptr::eq(Task::explicit(thread, &root, (8, 8), false), first));
    }

    #[test]
    fn a_task_that_ended_stays_as_long_as_its_children() {
        let thread = Thread::new(false, false);
        adopt(thread);
        let root = Task::implicit();
        let parent = Task::explicit(thread, &root, (8, 8), false);
        // SAFETY: the parent is not over yet.
        let child = Task::explicit(thread, unsafe { &*parent }, (1000, 8), false);
        // SAFETY: the child is alive; the parent is over, and only the child uses it.
        unsafe {
            (*child).hold_parent();
            Task::end_at_once(parent);
            assert!((*child).descends_from(&root));
        }
        assert_eq!(root.references.load(Ordering::Relaxed), 2);
        assert!(!ptr::eq(Task::explicit(thread, &root, (8, 8), false), parent));
        // SAFETY: the child is over.
        unsafe { Task::release(child) };
        assert_eq!(root.references.load(Ordering::Relaxed), 1);
        assert!(ptr::eq(Task::explicit(thread, &root, (8, 8), false), parent));
    }
}
