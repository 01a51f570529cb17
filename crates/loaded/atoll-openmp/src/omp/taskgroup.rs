//! Task groups, and the reductions over the tasks of a group.
//!
//! `tasks` counts a group's tasks; constructs with `reduction(task, …)` register their reductions here.

use super::barrier;
use super::kmp;
use super::task::Group;
use super::tasks;
use super::team::{Thread, me};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr;
use std::sync::atomic::Ordering;

// Indices of words in the array that the compiler passes for a set of reductions.
/// The number of reductions.
const COUNT: usize = 0;
/// The bytes of one thread's private copies.
const STRIDE: usize = 1;
/// The alignment wanted; after registration, the address of the first thread's copies.
const BASE: usize = 2;
/// The address of the next array: first those of the same construct, then those of the enclosing group.
const NEXT: usize = 4;
/// After registration, 1 in the first array of a construct and 0 in the others.
const HEAD: usize = 5;
/// After registration, the end of the last thread's copies.
const END: usize = 6;
/// The first reduction's words. Each has three: the original's address, its offset in a thread's copies, and one unused.
const FIRST: usize = 7;

/// The bytes before an allocation, which hold its size and alignment, so that freeing it needs only its address.
const HEADER: usize = 2 * size_of::<usize>();

fn allocate(align: usize, size: usize) -> usize {
    let align = align.max(64);
    let Ok(layout) = Layout::from_size_align(size.max(1) + align.max(HEADER), align) else {
        super::fatal("Out of memory allocating reductions")
    };
    // SAFETY: the layout is not empty; the header fits before the aligned memory handed out.
    unsafe {
        let memory = alloc_zeroed(layout);
        if memory.is_null() {
            super::fatal("Out of memory allocating reductions");
        }
        let base = memory.add(align);
        base.cast::<usize>().sub(1).write(layout.size());
        base.cast::<usize>().sub(2).write(align);
        base as usize
    }
}

/// Frees an allocation; returns the alignment it had.
fn free(base: usize) -> usize {
    // SAFETY: `base` is from `allocate`.
    unsafe {
        let base = base as *mut usize;
        let (size, align) = (base.sub(1).read(), base.sub(2).read());
        dealloc(base.cast::<u8>().sub(align), Layout::from_size_align_unchecked(size, align));
        align
    }
}

/// Gives the reductions in `data` memory for each of `threads` threads, or the memory of `shared`, which another member
/// registered for the same construct. `outer` are the reductions of the enclosing group.
pub(crate) fn register(data: *mut usize, outer: *mut usize, mut shared: *const usize, threads: usize) {
    let mut at = data;
    // SAFETY: the arrays are the compiler's, in the form described above.
    unsafe {
        loop {
            if shared.is_null() {
                let bytes = *at.add(STRIDE) * threads;
                *at.add(BASE) = allocate(*at.add(BASE), bytes);
                *at.add(END) = *at.add(BASE) + bytes;
            } else {
                *at.add(BASE) = *shared.add(BASE);
                *at.add(END) = *shared.add(END);
                shared = *shared.add(NEXT) as *const usize;
            }
            *at.add(HEAD) = 0;
            if *at.add(NEXT) == 0 {
                *at.add(NEXT) = outer as usize;
                break;
            }
            at = *at.add(NEXT) as *mut usize;
        }
        *data.add(HEAD) = 1;
    }
}

/// Frees what `register` allocated; with `restore`, sets the arrays back to their content before it.
pub(crate) fn unregister(data: *mut usize, restore: bool) {
    let mut at = data;
    // SAFETY: the arrays were registered; the next construct's first array has its head word set.
    unsafe {
        loop {
            let align = free(*at.add(BASE));
            if restore {
                *at.add(BASE) = align;
            }
            let next = *at.add(NEXT) as *mut usize;
            if next.is_null() || *next.add(HEAD) != 0 {
                if restore {
                    *at.add(NEXT) = 0;
                }
                break;
            }
            at = next;
        }
    }
}

/// Opens a group in the current task.
pub(super) fn enter(thread: &Thread, workshare: bool) -> *const Group {
    let task = thread.task();
    let group = Group::open(task.group.get(), workshare);
    task.group.set(group);
    group
}

/// Waits for the current group's tasks and closes it.
pub(super) fn leave(thread: &Thread) {
    let task = thread.task();
    // SAFETY: the group was opened in this task, and closes below.
    let Some(group) = (unsafe { task.group.get().as_ref() }) else { return };
    if group.count.load(Ordering::Acquire) != 0 {
        tasks::work_until(thread, thread.team(), || group.count.load(Ordering::SeqCst) == 0);
    }
    kmp::finish_reductions(group);
    task.group.set(group.outer);
    // SAFETY: from `open`, and its tasks are complete.
    unsafe { Group::close(group) };
}

/// Begins a work-sharing construct with task reductions: opens a group for each member's tasks.
pub(crate) fn enter_workshare(thread: &Thread) {
    enter(thread, true);
}

/// The reductions of the current group, which enclose those registered next.
pub(crate) fn outer_reductions(thread: &Thread) -> *mut usize {
    // SAFETY: the current task's group is open.
    unsafe { thread.task().group.get().as_ref() }.map_or(ptr::null_mut(), |group| group.reductions.get())
}

/// Makes `data` the reductions of the current group.
pub(crate) fn set_reductions(thread: &Thread, data: *mut usize) {
    // SAFETY: the current task's group is open.
    if let Some(group) = unsafe { thread.task().group.get().as_ref() } {
        group.reductions.set(data);
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn GOMP_taskgroup_start() {
    enter(me(), false);
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn GOMP_taskgroup_end() {
    leave(me());
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn GOMP_taskgroup_reduction_register(data: *mut usize) {
    let thread = me();
    // The program goes through the copies of all threads, those of other nodes included.
    let threads = thread.team().threads() as usize;
    register(data, outer_reductions(thread), ptr::null(), threads);
    set_reductions(thread, data);
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_taskgroup_reduction_unregister(data: *mut usize) {
    unregister(data, false);
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_workshare_task_reduction_unregister(cancelled: bool) {
    let thread = me();
    let data = outer_reductions(thread);
    leave(thread);
    if thread.id() == 0 {
        unregister(data, false);
    }
    if !cancelled {
        barrier::meet(thread);
    }
}

/// Replaces each of `count` addresses, of an original or of any thread's copy, by that of the calling thread's copy; for the
/// first `originals` also stores the original's address.
#[unsafe(no_mangle)]
extern "C" fn GOMP_task_reduction_remap(count: usize, originals: usize, pointers: *mut usize) {
    let thread = me();
    let reductions = outer_reductions(thread);
    for index in 0..count {
        // SAFETY: the program gives `count` addresses and room for `originals` more.
        let address = unsafe { *pointers.add(index) };
        let Some((copy, original)) = find(reductions, address, thread.id() as usize) else {
            super::fatal(&format!(
                "couldn't find matching task_reduction or reduction with task modifier for {address:#x}"
            ));
        };
        // SAFETY: as above.
        unsafe {
            *pointers.add(index) = copy;
            if index < originals {
                *pointers.add(count + index) = original;
            }
        }
    }
}

/// The copy of thread `id` for `address`, and the original's address.
fn find(reductions: *const usize, address: usize, id: usize) -> Option<(usize, usize)> {
    let mut at = reductions;
    // SAFETY: the arrays are registered and form a list.
    unsafe {
        // The originals of the innermost construct come first.
        while !at.is_null() {
            let entries = (0..*at.add(COUNT)).map(|entry| at.add(FIRST + 3 * entry));
            for entry in entries {
                if *entry == address {
                    return Some((*at.add(BASE) + id * *at.add(STRIDE) + *entry.add(1), address));
                }
            }
            at = *at.add(NEXT) as *const usize;
        }
        at = reductions;
        while !at.is_null() {
            if (*at.add(BASE)..*at.add(END)).contains(&address) {
                let offset = (address - *at.add(BASE)) % *at.add(STRIDE);
                let mut entries = (0..*at.add(COUNT)).map(|entry| at.add(FIRST + 3 * entry));
                let original = entries.find(|entry| *entry.add(1) == offset).map_or(0, |entry| *entry);
                return Some((*at.add(BASE) + id * *at.add(STRIDE) + offset, original));
            }
            at = *at.add(NEXT) as *const usize;
        }
    }
    None
}
