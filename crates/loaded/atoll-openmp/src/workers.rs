//! The making of a worker: a stack, a TLS block and a first function.
//!
//! `omp::crew` decides when one is needed and what it then does.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering;

use atoll_memory::control::MAX_WORKERS;
use atoll_memory::sys;

use crate::start::process;
use crate::state;

/// The reasons why a worker could not be started.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(crate) enum StartError {
    /// There are as many workers as there can be.
    #[error(
        "a program can have {MAX_WORKERS} workers in all its teams together, the first thread among them, and asks for more"
    )]
    TooMany,
    /// The system refused to start it.
    #[error("worker {worker} cannot be started: {}{}", sys::Errno(*errno), hint(*errno))]
    System {
        /// The worker's number.
        worker: usize,
        /// The error number.
        errno: i32,
    },
}

/// A hint for the user what to do about the error.
fn hint(errno: i32) -> &'static str {
    match errno {
        libc::EAGAIN => "; raise the limit of processes (ulimit -u, or pids.max of the control group)",
        libc::EMFILE => "; raise the hard limit of open files (ulimit -Hn): each worker needs two",
        libc::ENOMEM => {
            "; this machine has no memory left for a worker's page table and stack, or OMP_STACKSIZE is too large"
        }
        _ => "",
    }
}

/// The function that a worker runs, for ever.
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
    let system = |e: sys::Errno| StartError::System { worker: index, errno: e.0 };
    if state::pager().is_some() && index >= MAX_WORKERS {
        return Err(StartError::TooMany);
    }
    match state::control() {
        Some(control) if !control.settings.shared_tables() => {
            process::start(index, stack_bytes, entry, arg).map_err(system)
        }
        Some(control) => {
            let thread = Box::into_raw(Box::new(Thread { index, entry, arg }));
            control.workers.fetch_max(index as u32 + 1, Ordering::Release);
            start_thread(stack_bytes, managed_thread, thread.cast()).map_err(system)
        }
        None => start_thread(stack_bytes, entry, arg).map_err(system),
    }
}

/// The numbers that a managed thread needs to know about itself.
struct Thread {
    index: usize,
    entry: Entry,
    arg: *mut c_void,
}

extern "C" fn managed_thread(thread: *mut c_void) -> *mut c_void {
    // SAFETY: made by `start` for this thread alone.
    let thread = unsafe { Box::from_raw(thread.cast::<Thread>()) };
    sys::with_descriptors(|| state::become_worker(thread.index, 0));
    process::make_alternate_stack(thread.index);
    if let Some(pager) = state::pager() {
        // SAFETY: no arguments. The system call itself: glibc has had a function for it since 2.30.
        let id = unsafe { sys::syscall(libc::SYS_gettid, [0; 6]) }.unwrap_or(0);
        pager.control().figures[thread.index].pid.store(id as i32, Ordering::Relaxed);
    }
    (thread.entry)(thread.arg)
}

fn start_thread(stack_bytes: usize, entry: Entry, arg: *mut c_void) -> Result<(), sys::Errno> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread: libc::pthread_t = 0;
    // SAFETY: the attributes are initialised before use and destroyed after; entry and arg live for ever.
    let error = unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        if stack_bytes != 0 {
            // Too small a size is refused, as in libgomp: the system's default then stays.
            libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack_bytes);
        }
        let error = libc::pthread_create(ptr::addr_of_mut!(thread), attributes.as_ptr(), entry, arg);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        error
    };
    if error == 0 { Ok(()) } else { Err(sys::Errno(error)) }
}
