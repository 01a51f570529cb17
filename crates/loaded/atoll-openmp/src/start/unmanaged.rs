//! Processes of the run that are not managed and later use OpenMP all the same, by a library that they load.
//!
//! `constructor` leaves a process alone that has no OpenMP at its start, such as Python, and keeps the control block's
//! descriptor here; `omp` reports its first call. Only the process itself can tell: the launcher sees no more than that no
//! program is managed so far.

use std::sync::atomic::{AtomicI32, Ordering};

use atoll_memory::control::{Control, EXIT_SETUP, MEMFD_NAME};
use atoll_memory::sys;

use super::{objects, take_over};

static CONTROL: AtomicI32 = AtomicI32::new(-1);

/// Leaves this process alone; the control block is behind `fd`.
pub(super) fn leave_alone(fd: i32) {
    CONTROL.store(fd, Ordering::Relaxed);
}

/// Tells the user, when a thread calls OpenMP for the first time, that the process is not managed.
pub(crate) fn uses_openmp() {
    // The process needs no memory so far; when it does it becomes managed, and this runtime with it.
    if take_over::is_watched() || take_over::is_taken() {
        return;
    }
    let fd = CONTROL.swap(-1, Ordering::Relaxed);
    // The program may have closed the descriptor, or have another file there: then nobody can be told.
    if fd < 0 || !is_control(fd) {
        return;
    }
    let Some(control) = Control::map(fd) else { return };
    // A library may ask for the number of threads without any OpenMP runtime loaded: the process runs with threads of its own.
    if !objects::loaded().iter().any(objects::Object::is_openmp) {
        return CONTROL.store(fd, Ordering::Relaxed);
    }
    let me = std::process::id() as i32;
    if control.late.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return;
    }
    let s = &control.settings;
    if !s.has_asked_limit() && s.require == 0 {
        return;
    }
    let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let limit = if s.has_asked_limit() { ", and --near is not applied" } else { "" };
    sys::complain(&format!(
        "atoll: {} (process {me}) begins to use OpenMP through a library that it loaded after its start, when its memory was its own \
         already: it is not managed{limit}. LD_PRELOAD=libgomp.so.1 in front of atoll has it managed from its start\n",
        name.trim_end()
    ));
    if s.require != 0 {
        control.failure.store(EXIT_SETUP, Ordering::Release);
        // SAFETY: ends the process.
        unsafe { libc::_exit(EXIT_SETUP) }
    }
}

/// Whether the file behind `fd` is one that `atoll run` made.
fn is_control(fd: i32) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{fd}"));
    link.is_ok_and(|link| link.to_string_lossy().contains(MEMFD_NAME))
}
