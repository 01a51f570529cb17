//! Before `main`: where the journal is, and an environment as the program would have had it.
//!
//! `blocks` and `regions` make their marks through here.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use atoll_profile_wire::{ENVIRONMENT, ENVIRONMENT_PRELOAD, Journal, What};

static JOURNAL: AtomicPtr<Journal> = AtomicPtr::new(std::ptr::null_mut());
static PID: AtomicU32 = AtomicU32::new(0);

/// Is anything marked?
#[inline]
pub(crate) fn on() -> bool {
    !JOURNAL.load(Ordering::Relaxed).is_null()
}

/// Makes a mark.
pub(crate) fn mark(what: What) {
    // SAFETY: null or a journal that stays mapped.
    if let Some(journal) = unsafe { JOURNAL.load(Ordering::Acquire).as_ref() } {
        journal.mark(PID.load(Ordering::Relaxed), what);
    }
}

/// A child is a process of its own, with a copy of the parent's memory.
extern "C" fn in_child() {
    PID.store(std::process::id(), Ordering::Relaxed);
}

extern "C" fn begin() {
    let Some(fd) = std::env::var(ENVIRONMENT).ok().and_then(|fd| fd.parse::<i32>().ok()) else { return };
    let preload = std::env::var_os(ENVIRONMENT_PRELOAD);
    // SAFETY: the dynamic linker runs this before the program's first thread is made.
    unsafe {
        std::env::remove_var(ENVIRONMENT);
        std::env::remove_var(ENVIRONMENT_PRELOAD);
        match preload {
            Some(own) => std::env::set_var("LD_PRELOAD", own),
            None => std::env::remove_var("LD_PRELOAD"),
        }
    }
    if let Some(journal) = Journal::map(fd) {
        PID.store(std::process::id(), Ordering::Relaxed);
        JOURNAL.store(std::ptr::from_ref(journal).cast_mut(), Ordering::Release);
        // SAFETY: a function without arguments that stays loaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
    // SAFETY: no pointers; the mapping lives on without its descriptor.
    unsafe { libc::close(fd) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
