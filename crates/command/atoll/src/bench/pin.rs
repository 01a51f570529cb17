//! Keeps threads on one CPU during a measurement.

use std::mem::MaybeUninit;

/// Keeps the calling thread on `cpu`; where that is refused the thread stays as it was.
pub(super) fn pin(cpu: usize) {
    // SAFETY: a set on the stack, of the calling thread.
    unsafe {
        let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed().assume_init();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
