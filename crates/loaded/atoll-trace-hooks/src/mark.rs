//! Makes marks in the way that `atoll trace` asked for.
//!
//! `regions` and `barriers` call it.

use std::ffi::c_int;

use atoll_libgomp::real;
use atoll_trace_wire::MARK_CALL;
use atoll_trace_wire::word::{Kind, member, with_amount};

use crate::record;
use crate::start::{Mode, mode};

/// Marks that the calling thread begins or ends its part of the region of `function`.
pub(crate) fn region(kind: Kind, function: usize) {
    if mode() == Mode::Off || !outermost() {
        return;
    }
    let worker = real!(omp_get_thread_num, fn() -> c_int)();
    let team = real!(omp_get_num_threads, fn() -> c_int)();
    make(member(kind, worker as u16, team as u32), function as u64);
}

/// Marks that the calling thread passed the barrier that returns to `site`.
pub(crate) fn barrier(site: usize) {
    if mode() != Mode::Off && outermost() {
        make(with_amount(Kind::Barrier, 0), site as u64);
    }
}

/// Whether the team is an outermost one. Teams inside of teams make no marks, as their workers' numbers belong to other
/// workers, too.
fn outermost() -> bool {
    real!(omp_get_level, fn() -> c_int)() == 1
}

fn make(mark: u64, number: u64) {
    match mode() {
        Mode::Off => {}
        Mode::Record => record::mark(mark, number),
        Mode::Mark => {
            // The program must find its errno unchanged.
            // SAFETY: the calling thread's errno; the call has no effect, as no kernel knows it.
            unsafe {
                let errno = libc::__errno_location();
                let before = *errno;
                libc::syscall(MARK_CALL, mark, number);
                *errno = before;
            }
        }
    }
}
