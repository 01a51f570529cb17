//! glibc's list of threads whose stacks it was given, kept apart for each process.
//!
//! A worker's process begins as a copy of another one (`process`): with a copy of the list's head, whose members, the threads
//! of the other process, lie in memory that both share. What glibc did to the list in the one would change the other's. So the
//! first thing a new process does is to forget the members, as glibc itself does after `fork`.
//!
//! The head's place is told by what glibc keeps for debuggers (`nptl_db/structs.def`). Rules of [`forget`]: no libc.

use std::ffi::CStr;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where the dynamic linker's data is this process's own: the lists of threads and their lock. Empty where that is not known.
pub(super) fn place() -> Range<usize> {
    let lists = LISTS.load(Ordering::Relaxed);
    if lists == 0 {
        return 0..0;
    }
    // The list of the threads that glibc itself made stacks for comes right before.
    lists - size_of::<List>()..lists + size_of::<Lists>()
}

/// glibc's `list_t`.
#[repr(C)]
struct List {
    next: *mut List,
    previous: *mut List,
}

/// What follows the head in glibc's `_rtld_global`: stacks that are kept for later threads, and the lock of all these lists.
#[repr(C)]
struct Lists {
    user: List,
    cache: List,
    cached_bytes: usize,
    in_flight: usize,
    lock: i32,
}

/// Where the lists are; 0: not known.
static LISTS: AtomicUsize = AtomicUsize::new(0);
/// Is what follows the head as this file thinks?
static WITH_LOCK: AtomicUsize = AtomicUsize::new(0);

fn symbol(name: &CStr) -> usize {
    // SAFETY: two strings; null where there is none.
    unsafe { libc::dlvsym(libc::RTLD_DEFAULT, name.as_ptr(), c"GLIBC_PRIVATE".as_ptr()) as usize }
}

/// Finds the lists. Before the program's first thread is made.
pub(super) fn find() {
    let (global, described) = (symbol(c"_rtld_global"), symbol(c"_thread_db_rtld_global__dl_stack_user"));
    if global == 0 || described == 0 {
        return;
    }
    // SAFETY: three numbers: bits, elements, offset. The lists lie at that offset in the dynamic linker's data.
    unsafe {
        let offset = *(described as *const u32).add(2) as usize;
        let lists = (global + offset) as *const Lists;
        let first = (*lists).user.next;
        // The first thread is the only member.
        let is_list = !first.is_null()
            && (*first).next == lists as *mut List
            && (*first).previous == lists as *mut List;
        if !is_list {
            return;
        }
        let cache = &raw const (*lists).cache;
        let with_lock = (*lists).cache.next.cast_const() == cache
            && (*lists).cache.previous.cast_const() == cache
            && ((*lists).cached_bytes, (*lists).in_flight, (*lists).lock) == (0, 0, 0);
        WITH_LOCK.store(usize::from(with_lock), Ordering::Relaxed);
        LISTS.store(lists as usize, Ordering::Relaxed);
    }
}

/// The calling process is new, and its copy of the lists names another one's threads: none of them is here.
pub(super) fn forget() {
    let lists = LISTS.load(Ordering::Relaxed) as *mut Lists;
    if lists.is_null() {
        return;
    }
    // SAFETY: glibc's own data, in a process with one thread.
    unsafe {
        (*lists).user = List { next: lists.cast(), previous: lists.cast() };
        if WITH_LOCK.load(Ordering::Relaxed) != 0 {
            // Somebody may have held it at the moment of cloning, in the middle of a change.
            (*lists).in_flight = 0;
            (*lists).lock = 0;
        }
    }
}
