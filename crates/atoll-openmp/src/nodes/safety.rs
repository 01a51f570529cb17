//! How a region may be spread over nodes, by what its code does: not at all, one writer at a time, or many.
//!
//! The leader asks before a region runs; `atoll-code` disassembles what the region can reach, once for each function.
//! Many writers are allowed only where no memory is synchronised but by barriers: no atomic, fence, waiting loop or lock.

use std::collections::BTreeMap;

use atoll_code::{Reach, loaded};

use crate::futex::Lock;

/// What may be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// The origin runs it alone: it has a construct whose parts cannot be spread.
    Alone,
    /// One writer of a page at a time.
    Single,
    /// Many.
    Many,
}

static KNOWN: Lock<BTreeMap<usize, How>> = Lock::new(BTreeMap::new());

/// How the region of this outlined function may run.
pub(crate) fn of(function: usize) -> How {
    let mut known = KNOWN.lock();
    if let Some(how) = known.get(&function) {
        return *how;
    }
    let how = loaded::with_code(&[], |code| judge(&code.reach(function as u64))).unwrap_or(How::Single);
    known.insert(function, how);
    how
}

/// Entry points of constructs that need all threads on one node.
const ALONE: [&str; 10] = [
    "GOMP_ordered_",
    "GOMP_doacross_",
    "GOMP_cancel",
    "GOMP_loop_ordered_",
    "GOMP_loop_ull_ordered_",
    "GOMP_scope_",
    // Reductions over tasks, and memory that the compiler asks for.
    "GOMP_workshare_task_reduction_",
    "GOMP_loop_start",
    "GOMP_loop_ull_start",
    "GOMP_sections2_start",
];
/// Entry points that synchronise memory between barriers.
const SYNCHRONISE: [&str; 7] =
    ["GOMP_critical_", "GOMP_atomic_", "GOMP_task", "omp_set_", "omp_test_", "omp_unset_", "GOMP_ordered_"];

fn judge(reach: &Reach) -> How {
    let calls =
        |list: &[&str]| reach.calls.keys().any(|name| list.iter().any(|begin| name.starts_with(begin)));
    if calls(&ALONE) {
        How::Alone
    } else if reach.verdict.allows_multiple_writers() && !calls(&SYNCHRONISE) {
        How::Many
    } else {
        How::Single
    }
}
