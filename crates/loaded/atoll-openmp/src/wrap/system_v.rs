//! `shmat` and `shmdt`: System V shared memory, attached at the same address in every worker.
//!
//! Stands on `replay`, which repeats in the other workers what one of them did. The segment itself is the kernel's: it is not paged.
//! Several nodes have no such memory: there `shmat` fails, as where the kernel lacks it, and libraries that only try it do without.

use std::ffi::{c_int, c_void};
use std::sync::Once;

use atoll_memory::sys::{self, Errno};

use super::replay;
use crate::heap::mapping;

/// Attaches segment `id` at `at`; `flags` are those of `shmat`.
///
/// # Errors
/// The kernel's.
pub(super) fn attach(id: c_int, at: usize, flags: c_int) -> Result<usize, Errno> {
    // SAFETY: memory is mapped where nothing is, or where the program wants it.
    unsafe { sys::syscall(libc::SYS_shmat, [id as usize, at, flags as usize, 0, 0, 0]) }
}

/// The segment's length, bytes; none if it may not be asked for.
fn length(id: c_int) -> Option<usize> {
    // SAFETY: plain data, valid for writes.
    unsafe {
        let mut of: libc::shmid_ds = std::mem::zeroed();
        let about = [id as usize, libc::IPC_STAT as usize, (&raw mut of) as usize, 0, 0, 0];
        sys::syscall(libc::SYS_shmctl, about).ok()?;
        Some(of.shm_segsz)
    }
}

/// `shmat`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn shmat(id: c_int, at: *const c_void, flags: c_int) -> *mut c_void {
    if atoll_nodes::active() {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            sys::complain("atoll: shmat failed: System V shared memory is not possible on several nodes\n");
        });
        return mapping::result(Err(Errno(libc::ENOSYS)));
    }
    let free = || {
        let len = length(id).filter(|_| at.is_null())?;
        // The kernel refuses an address where something is.
        mapping::free_everywhere(len, |at, _| attach(id, at, flags & !libc::SHM_REMAP))
    };
    let attached = free().map_or_else(|| attach(id, at as usize, flags), Ok);
    mapping::result(attached.inspect(|&at| replay::attached(id, at, flags)))
}

/// `shmdt`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn shmdt(at: *const c_void) -> c_int {
    mapping::status(detach(at as usize).inspect(|_| replay::detached(at as usize)))
}

/// Detaches what was attached at `at`.
///
/// # Errors
/// The kernel's.
pub(super) fn detach(at: usize) -> Result<usize, Errno> {
    // SAFETY: the program's own, as it asks.
    unsafe { sys::syscall(libc::SYS_shmdt, [at, 0, 0, 0, 0, 0]) }
}
