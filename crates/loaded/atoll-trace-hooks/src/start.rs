//! Before `main`: reads what is asked of this library, and restores the environment that the program would have had.
//!
//! `mark` and `record` look here whether they have anything to do.

use std::ffi::CStr;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, Ordering};

use atoll_trace_wire::{ENVIRONMENT_FILTER, ENVIRONMENT_MODE, ENVIRONMENT_PIPE, ENVIRONMENT_PRELOAD};

use crate::{modules, record};

/// What is asked of this library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mode {
    /// The library does nothing.
    Off,
    /// The library makes marks, for an engine that sees the accesses.
    Mark,
    /// The library records accesses and marks.
    Record,
}

static MODE: AtomicU8 = AtomicU8::new(Mode::Off as u8);
static PIPE: AtomicI32 = AtomicI32::new(-1);
static FILTER: AtomicU32 = AtomicU32::new(0);

/// Returns what is asked of this library.
#[inline]
pub(crate) fn mode() -> Mode {
    match MODE.load(Ordering::Relaxed) {
        1 => Mode::Mark,
        2 => Mode::Record,
        _ => Mode::Off,
    }
}

/// Returns the pipe's descriptor.
pub(crate) fn pipe() -> i32 {
    PIPE.load(Ordering::Relaxed)
}

/// Returns the number of places in the filter.
pub(crate) fn filter() -> u32 {
    FILTER.load(Ordering::Relaxed)
}

fn number(name: &str) -> Option<u32> {
    std::env::var(name).ok()?.parse().ok()
}

extern "C" fn begin() {
    let mode = match std::env::var(ENVIRONMENT_MODE).as_deref() {
        Ok("mark") => Mode::Mark,
        Ok("record") => Mode::Record,
        _ => return,
    };
    let (Some(pipe), Some(filter)) = (number(ENVIRONMENT_PIPE), number(ENVIRONMENT_FILTER)) else { return };
    let preload = std::env::var_os(ENVIRONMENT_PRELOAD);
    // SAFETY: the dynamic linker runs this before the program's first thread is made.
    unsafe {
        for name in [ENVIRONMENT_MODE, ENVIRONMENT_PIPE, ENVIRONMENT_FILTER, ENVIRONMENT_PRELOAD] {
            std::env::remove_var(name);
        }
        match preload {
            Some(own) => std::env::set_var("LD_PRELOAD", own),
            None => std::env::remove_var("LD_PRELOAD"),
        }
    }
    // A program executed from here is not traced, and must not hold the pipe open.
    // SAFETY: no pointers.
    if unsafe { libc::fcntl(pipe as i32, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return;
    }
    PIPE.store(pipe as i32, Ordering::Relaxed);
    FILTER.store(filter, Ordering::Relaxed);
    modules::tell(pipe as i32);
    MODE.store(mode as u8, Ordering::Relaxed);
    if mode == Mode::Record {
        // SAFETY: the function takes no argument and stays loaded.
        unsafe { libc::atexit(record::end) };
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// The file that the program was started from, where the dynamic linker does not say.
pub(crate) const OWN_FILE: &CStr = c"/proc/self/exe";
