//! How a region may be spread over nodes, by what its code does: not at all, one writer at a time, or many.
//!
//! The leader asks before a region runs; `atoll-code` disassembles what the region can reach, once for each function.
//! Many writers are allowed only where no memory is synchronised but by barriers: no atomic, fence, waiting loop or lock.

use std::collections::BTreeMap;

use atoll_code::{Reach, Verdict, loaded};
use atoll_memory::region_spread::Why;

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

/// What is known of a region's code.
#[derive(Debug)]
pub(crate) struct Safety {
    pub(crate) how: How,
    /// Why not more.
    pub(crate) why: Why,
    /// Where the code is that keeps it from more, and what it does.
    pub(crate) address: u64,
    pub(crate) text: String,
}

static KNOWN: Lock<BTreeMap<usize, &'static Safety>> = Lock::new(BTreeMap::new());

/// How the region of this outlined function may run.
pub(crate) fn of(function: usize) -> &'static Safety {
    let mut known = KNOWN.lock();
    known.entry(function).or_insert_with(|| {
        let safety = loaded::with_code(&[], |code| judge(&code.reach(function as u64)));
        let unknown =
            || Safety { how: How::Single, why: Why::Code, address: function as u64, text: "no code".into() };
        Box::leak(Box::new(safety.unwrap_or_else(unknown)))
    })
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

fn judge(reach: &Reach) -> Safety {
    let call = |list: &[&str]| {
        reach.calls.keys().find(|name| list.iter().any(|begin| name.starts_with(begin))).cloned()
    };
    if let Some(text) = call(&ALONE) {
        return Safety { how: How::Alone, why: Why::Construct, address: 0, text };
    }
    match reach.verdict {
        Verdict::Atomic(finding) | Verdict::Unknown(finding) => Safety {
            how: How::Single,
            why: Why::Code,
            address: finding.address,
            text: finding.kind.to_string(),
        },
        Verdict::Plain => match call(&SYNCHRONISE) {
            Some(text) => Safety { how: How::Single, why: Why::Call, address: 0, text },
            None => Safety { how: How::Many, why: Why::Unknown, address: 0, text: String::new() },
        },
    }
}
