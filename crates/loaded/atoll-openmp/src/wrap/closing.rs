//! `close`, `close_range` and `closefrom`: a program that closes all descriptors, known and unknown, as daemons do, leaves those of atoll
//! open.
//!
//! `atoll_memory::sys` knows which these are. To the program they are not open.

use std::ffi::{c_int, c_uint};

use atoll_memory::sys;

use super::io::set_errno;
use crate::state;

/// `close`: as if atoll's descriptors were not open.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn close(fd: c_int) -> c_int {
    if state::pager().is_some() && sys::is_own_descriptor(fd) {
        set_errno(libc::EBADF);
        return -1;
    }
    let call = real!("close", unsafe extern "C" fn(c_int) -> c_int);
    // SAFETY: the caller's descriptor.
    unsafe { call(fd) }
}

/// `close_range`: in pieces between atoll's descriptors.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let call = real!("close_range", unsafe extern "C" fn(c_uint, c_uint, c_int) -> c_int);
    let mut from = first;
    if state::pager().is_some() && first <= last {
        for own in sys::own_descriptors().filter(|own| (first..=last).contains(own)) {
            // SAFETY: the caller's descriptors.
            if own > from && unsafe { call(from, own - 1, flags) } < 0 {
                return -1;
            }
            from = own + 1;
        }
        if from > last {
            return 0;
        }
    }
    // SAFETY: the caller's descriptors.
    unsafe { call(from, last, flags) }
}

/// `closefrom`: as [`close_range`] up to the highest descriptor.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn closefrom(least: c_int) {
    if state::pager().is_some() {
        // SAFETY: the caller's descriptors.
        if unsafe { close_range(least.max(0) as c_uint, c_uint::MAX, 0) } == 0 {
            return;
        }
    }
    let call = real!("closefrom", unsafe extern "C" fn(c_int));
    // SAFETY: the caller's descriptors.
    unsafe { call(least) }
}
