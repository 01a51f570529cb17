//! Threads that stay on one CPU while something is measured.

use std::mem::MaybeUninit;

/// The CPUs this process may use, ascending.
pub(super) fn cpus() -> Vec<usize> {
    // SAFETY: the set is valid for writes, and read only if it was filled.
    unsafe {
        let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr()) != 0 {
            return Vec::new();
        }
        let set = set.assume_init();
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

/// Keeps the calling thread on `cpu`; where that is refused it stays as it was.
pub(super) fn pin(cpu: usize) {
    // SAFETY: a set on the stack, of the calling thread.
    unsafe {
        let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed().assume_init();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
