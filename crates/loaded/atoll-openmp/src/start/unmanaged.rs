//! Processes of the run that are not managed and later use OpenMP all the same, by a library that they load.
//!
//! `constructor` leaves a process alone that has no OpenMP at its start, such as Python, and keeps where the control
//! block is here; `omp` reports its first call. Only the process itself can tell: the launcher sees no more than that no
//! program is managed so far.

use std::sync::atomic::Ordering;

use atoll_memory::control::{EXIT_SETUP, Handle};
use atoll_memory::spin::Spin;
use atoll_memory::sys;

use super::{objects, take_over};

static HANDLE: Spin<Option<Handle>> = Spin::new(None);

/// Leaves this process alone.
pub(super) fn leave_alone(handle: Handle) {
    *HANDLE.lock() = Some(handle);
}

/// Tells the user, when a thread calls OpenMP for the first time, that the process is not managed.
pub(crate) fn uses_openmp() {
    // The process needs no memory so far; when it does it becomes managed, and this runtime with it.
    if take_over::is_watched() || take_over::is_taken() {
        return;
    }
    let Some(handle) = HANDLE.lock().take() else { return };
    let Some((control, _)) = handle.map() else { return };
    // A library may ask for the number of threads without any OpenMP runtime loaded: the process runs with threads of its own.
    if !objects::loaded().iter().any(objects::Object::is_openmp) {
        return leave_alone(handle);
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
