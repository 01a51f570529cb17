//! Anonymous memory that a program shares with processes that it forks (`MAP_SHARED`): a file of its own, which is not paged.
//!
//! Called by `mapping`. In a program that calls no `fork` such memory is the arena's, as other anonymous memory is.

use std::sync::atomic::{AtomicBool, Ordering};

use atoll_memory::sys::{self, Errno};

use super::mapping;
use crate::wrap::replay;

/// Whether the program may fork.
static FORKS: AtomicBool = AtomicBool::new(false);

/// Notes that the program, or a library it was started with, calls `fork`.
pub(crate) fn program_forks() {
    FORKS.store(true, Ordering::Relaxed);
}

/// Whether an anonymous mapping with these flags is to be shared with processes that the program forks.
pub(super) fn is_wanted(flags: i32) -> bool {
    flags & libc::MAP_SHARED != 0 && FORKS.load(Ordering::Relaxed)
}

/// Maps `len` bytes that all workers, and processes forked from here on, share.
///
/// # Errors
/// The kernel's.
pub(super) fn map(len: usize, prot: i32) -> Result<usize, Errno> {
    let fd = sys::memfd(c"atoll-shared", 0, len as u64)?;
    let place = |at: usize, fixed: i32| {
        // SAFETY: a new mapping where nothing is.
        unsafe { sys::mmap(at, len, prot, libc::MAP_SHARED | fixed, fd, 0) }
    };
    let mapped = mapping::free_everywhere(len, place).map_or_else(|| place(0, 0), Ok);
    if let Ok(at) = mapped {
        replay::mapped(at, len, prot, libc::MAP_SHARED, fd, 0);
    }
    sys::close(fd);
    mapped
}
