//! The clock of all times in a profile: CLOCK_MONOTONIC, in nanoseconds.
//!
//! The kernel stamps samples with this clock, and the marks from inside the program carry its times.

/// Returns the time now, in nanoseconds.
pub fn now_ns() -> u64 {
    time_ns(libc::CLOCK_MONOTONIC)
}

/// Returns the processor time of the calling thread, in nanoseconds.
pub fn thread_ns() -> u64 {
    time_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the processor time of a process, all its threads together, in nanoseconds; `None` once the process is gone.
pub fn process_ns(pid: u32) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut clock = 0;
    // SAFETY: both are valid for writes.
    let known = unsafe {
        libc::clock_getcpuclockid(pid as i32, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    known.then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

fn time_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: time is valid for writes. Every Linux has these clocks, so the call does not fail.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
