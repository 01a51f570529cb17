//! Where a worker starts to exist: a stack, a TLS block and a first function.
//!
//! `omp::crew` decides when one is needed and what it then does; here is only how it comes to be.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering;

use crate::start::{process, signal};
use crate::state;

/// Why a worker could not be started: an error number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StartError(pub(crate) i32);

/// What a worker runs, for ever.
pub(crate) type Entry = extern "C" fn(*mut c_void) -> *mut c_void;

/// Starts worker `index` (from 1), which runs `entry(arg)` for ever on a stack of its own of `stack_bytes`
/// (0: the system's choice): a process with a page table of its own, or a thread where page tables are shared or
/// the program is not managed.
pub(crate) fn start(
    index: usize,
    stack_bytes: usize,
    entry: Entry,
    arg: *mut c_void,
) -> Result<(), StartError> {
    match state::control() {
        Some(control) if !control.settings.shared_tables() => {
            process::start(index, stack_bytes, entry, arg).map_err(|e| StartError(e.0))
        }
        Some(control) => {
            let thread = Box::into_raw(Box::new(Thread { index, entry, arg }));
            control.workers.fetch_max(index as u32 + 1, Ordering::Release);
            start_thread(stack_bytes, managed_thread, thread.cast())
        }
        None => start_thread(stack_bytes, entry, arg),
    }
}

/// What a managed thread needs to know of itself.
struct Thread {
    index: usize,
    entry: Entry,
    arg: *mut c_void,
}

extern "C" fn managed_thread(thread: *mut c_void) -> *mut c_void {
    // SAFETY: made by `start` for this thread alone.
    let thread = unsafe { Box::from_raw(thread.cast::<Thread>()) };
    state::become_worker(thread.index, 0);
    signal::use_stack(process::alternate_stack(thread.index));
    if let Some(pager) = state::pager() {
        // SAFETY: no pointers.
        let id = unsafe { libc::gettid() };
        pager.control().figures[thread.index].pid.store(id, Ordering::Relaxed);
    }
    (thread.entry)(thread.arg)
}

fn start_thread(stack_bytes: usize, entry: Entry, arg: *mut c_void) -> Result<(), StartError> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread: libc::pthread_t = 0;
    // SAFETY: the attributes are initialised before use and destroyed after; entry and arg live for ever.
    let error = unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        if stack_bytes != 0 {
            // Too small a size is refused, as in libgomp: the system's choice is then kept.
            libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack_bytes);
        }
        let error = libc::pthread_create(ptr::addr_of_mut!(thread), attributes.as_ptr(), entry, arg);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        error
    };
    if error == 0 { Ok(()) } else { Err(StartError(error)) }
}
