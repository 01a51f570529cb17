//! glibc's list of threads whose stacks it was given, kept apart for each process.
//!
//! A worker's process begins as a copy of another one (`process`), with a copy of the list's head. The list's members, the
//! threads of the other process, lie in memory that both share, so a change of the list in one process would damage the
//! other's. Therefore a new process first forgets the members, as glibc itself does after `fork`.
//!
//! The head is found by what glibc keeps for debuggers (`nptl_db/structs.def`). Rules of [`forget`]: no libc.

use std::ffi::CStr;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The range of the dynamic linker's data that is private to each process: the lists of threads and their lock. Empty if it is
/// not known.
pub(super) fn place() -> Range<usize> {
    let lists = LISTS.load(Ordering::Relaxed);
    if lists == 0 {
        return 0..0;
    }
    // The list of threads with stacks of glibc's own comes right before this one.
    lists - size_of::<List>()..lists + size_of::<Lists>()
}

/// glibc's `list_t`.
#[repr(C)]
struct List {
    next: *mut List,
    previous: *mut List,
}

/// The structure behind the head in glibc's `_rtld_global`: stacks kept for later threads, and the lock of all these lists.
#[repr(C)]
struct Lists {
    user: List,
    cache: List,
    cached_bytes: usize,
    in_flight: usize,
    lock: i32,
}

/// The address of the lists; 0 if it is not known.
static LISTS: AtomicUsize = AtomicUsize::new(0);
/// Not 0 if the memory behind the head is laid out as this file expects.
static WITH_LOCK: AtomicUsize = AtomicUsize::new(0);

/// The address of a variable that glibc keeps for itself and for debuggers; 0 if there is none.
pub(super) fn symbol(name: &CStr) -> usize {
    // SAFETY: two strings; the result is null where there is no such symbol.
    unsafe { libc::dlvsym(libc::RTLD_DEFAULT, name.as_ptr(), c"GLIBC_PRIVATE".as_ptr()) as usize }
}

/// Finds the lists, before the program's first thread is made.
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

/// Empties the calling process's copy of the lists, which name threads of the process it was cloned from.
pub(super) fn forget() {
    let lists = LISTS.load(Ordering::Relaxed) as *mut Lists;
    if lists.is_null() {
        return;
    }
    // SAFETY: glibc's own data, in a process with one thread.
    unsafe {
        (*lists).user = List { next: lists.cast(), previous: lists.cast() };
        if WITH_LOCK.load(Ordering::Relaxed) != 0 {
            // A thread may have held the lock at the moment of cloning, in the middle of a change.
            (*lists).in_flight = 0;
            (*lists).lock = 0;
        }
    }
}
