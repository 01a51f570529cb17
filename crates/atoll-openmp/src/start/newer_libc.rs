//! Variables of glibc that only newer ones have: asked for by name, so that the library can be loaded with glibc 2.28.
//!
//! `wrap` has them found while the master has one thread; `process` asks in a new worker, where nothing can be looked up.

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicIsize, AtomicU32, Ordering};

static RSEQ_OFFSET: AtomicIsize = AtomicIsize::new(0);
static RSEQ_SIZE: AtomicU32 = AtomicU32::new(0);

/// From this minor version of glibc 2 on, its own locks look at `__libc_single_threaded` and not at the thread.
const ASKS_THE_VARIABLE: u32 = 35;

fn variable<T>(name: &CStr) -> Option<*mut T> {
    // SAFETY: the name is a string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found.cast())
}

/// 36 of "2.36".
fn minor_version() -> u32 {
    // SAFETY: a string that stays.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    let minor = version.to_str().ok().and_then(|version| version.split('.').nth(1)?.parse().ok());
    minor.unwrap_or(u32::MAX)
}

/// Looks up what `rseq_area` tells.
pub(crate) fn find() {
    let (offset, size) = (variable::<isize>(c"__rseq_offset"), variable::<u32>(c"__rseq_size"));
    if let (Some(offset), Some(size)) = (offset, size) {
        // SAFETY: glibc's constants of these types.
        let (offset, size) = unsafe { (*offset, *size) };
        RSEQ_OFFSET.store(offset, Ordering::Relaxed);
        RSEQ_SIZE.store(size, Ordering::Relaxed);
    }
}

/// Where glibc registered restartable sequences with the kernel, counted from the thread pointer; none where it did not.
pub(super) fn rseq_area() -> Option<isize> {
    (RSEQ_SIZE.load(Ordering::Relaxed) > 0).then(|| RSEQ_OFFSET.load(Ordering::Relaxed))
}

/// Takes back libc's promise that there is one thread, by which libstdc++ leaves atomics (reference counts, guards of
/// static locals) and wake-ups out, and libc its own locks. The calling thread's word goes to its copies.
pub(crate) fn not_single_threaded() {
    if let Some(single) = variable::<u8>(c"__libc_single_threaded") {
        // SAFETY: a byte that libc itself clears when a thread is made.
        unsafe { *single = 0 };
    }
    if minor_version() < ASKS_THE_VARIABLE {
        let many: c_int = 1;
        // SAFETY: `multiple_threads` of the thread's head (sysdeps/x86_64/nptl/tls.h), which libc itself sets when a thread is made.
        unsafe {
            std::arch::asm!("mov dword ptr fs:[0x18], {0:e}", in(reg) many, options(nostack, preserves_flags));
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_glibc_has_a_version_and_no_variable_that_nobody_defines() {
        assert!((17..1000).contains(&minor_version()));
        assert!(variable::<u8>(c"__atoll_no_such_variable").is_none());
    }
}
