//! `mlock` and its relatives, which are refused where they would keep near what the pager decides about.
//!
//! Stands beside `mapping`. The refusal is the kernel's for what is beyond RLIMIT_MEMLOCK, with which programs go on. In a segment all is
//! near anyway.

use std::ffi::{c_int, c_void};

use atoll_memory::sys::{self, Errno};

use super::mapping::{in_arena, status};
use crate::start::take_over;
use crate::state;

/// The result for memory of which the pager decides what is near.
fn refused_but_in_a_segment() -> Result<usize, Errno> {
    let locked = state::pager().is_some_and(atoll_memory::pager::Pager::is_segment);
    if locked { Ok(0) } else { Err(Errno(libc::ENOMEM)) }
}

/// C's `mlock`.
///
/// # Safety
/// The same as for C's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mlock(at: *const c_void, len: usize) -> c_int {
    if in_arena(at as usize, len) {
        return status(refused_but_in_a_segment());
    }
    // SAFETY: the caller's promise.
    status(unsafe { sys::syscall(libc::SYS_mlock, [at as usize, len, 0, 0, 0, 0]) })
}

/// C's `mlock2`.
///
/// # Safety
/// The same as for C's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mlock2(at: *const c_void, len: usize, flags: c_int) -> c_int {
    if in_arena(at as usize, len) {
        return status(refused_but_in_a_segment());
    }
    // SAFETY: the caller's promise.
    status(unsafe { sys::syscall(libc::SYS_mlock2, [at as usize, len, flags as usize, 0, 0, 0]) })
}

/// C's `mlockall`: refused as well where the process may be managed later. The kernel would fill all addresses that atoll has reserved,
/// which are more than any machine has memory for.
///
/// # Safety
/// The same as for C's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    if state::pager().is_some() || take_over::is_watched() {
        return status(refused_but_in_a_segment());
    }
    // SAFETY: no memory is named.
    status(unsafe { sys::syscall(libc::SYS_mlockall, [flags as usize, 0, 0, 0, 0, 0]) })
}
