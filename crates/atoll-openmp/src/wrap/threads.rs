//! Threads the program makes itself: they share a page table with the worker that made them.
//!
//! Called by the program; the pager is told, since from then on a page may be written while the worker that evicts
//! it waits in its handler.

use std::ffi::{c_int, c_void};

use crate::{start, state};

/// `pthread_create`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    routine: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    type Create = unsafe extern "C" fn(
        *mut libc::pthread_t,
        *const libc::pthread_attr_t,
        extern "C" fn(*mut c_void) -> *mut c_void,
        *mut c_void,
    ) -> c_int;
    if let Some(pager) = state::pager()
        && !start::objects::is_own_code(routine as *const () as usize)
    {
        pager.set_threads_share_tables();
    }
    let call = real!("pthread_create", Create);
    // SAFETY: as the caller asked.
    unsafe { call(thread, attributes, routine, argument) }
}
