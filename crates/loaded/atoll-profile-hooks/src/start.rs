//! Before `main`: finds the journal, and restores an OpenMP program's environment as it would have been.
//!
//! A process without OpenMP may only start the program (`timeout`, `env`, a script). It keeps the environment and the journal's
//! descriptor, so that the programs it executes or starts are profiled in turn. `blocks` and `regions` make their marks through
//! here.

use std::ffi::{CStr, c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use atoll_profile_wire::{ENVIRONMENT, ENVIRONMENT_PRELOAD, ENVIRONMENT_USERFAULT, Journal, What, userfault};

static JOURNAL: AtomicPtr<Journal> = AtomicPtr::new(std::ptr::null_mut());
static PID: AtomicU32 = AtomicU32::new(0);

/// Whether anything is marked.
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

/// Stops marking in a child, which is a process of its own with a copy of the parent's memory.
extern "C" fn in_child() {
    PID.store(std::process::id(), Ordering::Relaxed);
}

extern "C" fn begin() {
    let Some(fd) = std::env::var(ENVIRONMENT).ok().and_then(|fd| fd.parse::<i32>().ok()) else { return };
    let wants_userfault = std::env::var_os(ENVIRONMENT_USERFAULT).is_some();
    let uses_openmp = uses_openmp();
    if uses_openmp {
        put_environment_back();
    }
    // The process that started this one may have closed the descriptor, and another file may have its number.
    if let Some(journal) = Journal::map(fd) {
        PID.store(std::process::id(), Ordering::Relaxed);
        JOURNAL.store(std::ptr::from_ref(journal).cast_mut(), Ordering::Release);
        // SAFETY: a function without arguments that stays loaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if uses_openmp {
            // SAFETY: no pointers; the mapping lives on without its descriptor.
            unsafe { libc::close(fd) };
        }
    }
    if wants_userfault && on() {
        hand_over_userfault();
    }
}

/// Whether libgomp or libomp was loaded with the program.
fn uses_openmp() -> bool {
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: the dynamic linker's own list; names are C strings or null, and `found` is the caller's flag.
        unsafe {
            let name = (*info).dlpi_name;
            if !name.is_null() {
                let path = CStr::from_ptr(name).to_bytes();
                let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
                let runtimes: [&[u8]; 3] = [b"libgomp.so", b"libomp.so", b"libiomp5.so"];
                *found.cast::<bool>() |= runtimes.iter().any(|runtime| file.starts_with(runtime));
            }
        }
        0
    }
    let mut found = false;
    // SAFETY: the function has the type that is asked for, and the flag outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}

fn put_environment_back() {
    let preload = std::env::var_os(ENVIRONMENT_PRELOAD);
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
}

/// Makes the descriptor by which the profiler protects pages, under a number that programs do not use by accident.
fn hand_over_userfault() {
    const OUT_OF_THE_WAY: i32 = 900;
    let Ok(low) = userfault() else { return };
    // SAFETY: duplicates a descriptor of this library's; the copy stays open as long as the process.
    let fd = unsafe { libc::fcntl(low.as_raw_fd(), libc::F_DUPFD_CLOEXEC, OUT_OF_THE_WAY) };
    if fd >= 0 {
        mark(What::Userfault { fd });
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
