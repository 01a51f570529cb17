//! Before `main`: where the journal is, and an environment as the program would have had it.
//!
//! `blocks` and `regions` make their marks through here.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use atoll_profile_wire::{ENVIRONMENT, ENVIRONMENT_PRELOAD, ENVIRONMENT_USERFAULT, Journal, What, userfault};

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
    let wants_userfault = std::env::var_os(ENVIRONMENT_USERFAULT).is_some();
    // SAFETY: the dynamic linker runs this before the program's first thread is made.
    unsafe {
        std::env::remove_var(ENVIRONMENT);
        std::env::remove_var(ENVIRONMENT_PRELOAD);
        std::env::remove_var(ENVIRONMENT_USERFAULT);
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
    if wants_userfault {
        hand_over_userfault();
    }
    // SAFETY: no pointers; the mapping lives on without its descriptor.
    unsafe { libc::close(fd) };
}

/// Makes the descriptor by which the profiler protects pages, under a number that programs do not count on.
fn hand_over_userfault() {
    const OUT_OF_THE_WAY: i32 = 900;
    let Ok(low) = userfault() else { return };
    // SAFETY: duplicates a descriptor of ours; the copy stays open as long as the process.
    let fd = unsafe { libc::fcntl(low.as_raw_fd(), libc::F_DUPFD_CLOEXEC, OUT_OF_THE_WAY) };
    if fd >= 0 {
        mark(What::Userfault { fd });
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
