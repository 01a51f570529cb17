//! Where a worker starts to exist: a stack, a TLS block and a first function.
//!
//! `omp::crew` decides when one is needed and what it then does; here is only how it comes to be.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

/// Why a worker could not be started: an error number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StartError(pub(crate) i32);

/// What a worker runs, for ever.
pub(crate) type Entry = extern "C" fn(*mut c_void) -> *mut c_void;

/// Starts worker `index` (from 1), which runs `entry(arg)` for ever on a stack of its own of `stack_bytes`
/// (0: the system's choice).
pub(crate) fn start(
    index: usize,
    stack_bytes: usize,
    entry: Entry,
    arg: *mut c_void,
) -> Result<(), StartError> {
    let _ = index;
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
