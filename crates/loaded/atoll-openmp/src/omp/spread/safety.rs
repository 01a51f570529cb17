//! The safety of a region that is spread over nodes: by what its code does, it is not spread at all, or has one writer at a time, or
//! many.
//!
//! The leader asks before a region runs; `atoll-code` disassembles what the region can reach, once for each function.
//! Many writers are allowed only where no memory is synchronised but by barriers: no atomic, fence, waiting loop or lock. Where only some
//! phases of a region synchronise otherwise, as the one behind its last barrier in which workers add up what they found, those have one
//! writer at a time and the others many.

use std::collections::BTreeMap;

use atoll_code::{Kind, Phase, Processor, Reach, Verdict, loaded};
use atoll_memory::futex::Lock;
use atoll_memory::region_spread::RunReason;
use atoll_nodes::region::SinglePhases;

use super::tls;
use crate::heap::scratch;

/// The most that may be done with a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// The origin runs it alone: it has a construct whose parts cannot be spread.
    Alone,
    /// One writer of a page at a time.
    Single,
    /// Many writers of a page at once, but in some of its phases.
    Many,
}

/// The phases of a region that have one writer of a page at a time, as they synchronise memory. None if no phase has many writers, or
/// there are too many phases.
fn single_phases(phases: &[Phase]) -> Option<SinglePhases> {
    SinglePhases::of(phases.iter().map(|phase| {
        let calls = || phase.calls.iter().any(|name| begins(name, &SYNCHRONISE));
        (phase.begin, Verdict::of(&phase.findings) != Verdict::Plain || calls())
    }))
}

/// The judgement of a region's code.
#[derive(Clone, Debug)]
pub(crate) struct Safety {
    pub(crate) how: How,
    /// The phases that have one writer, where there are many in others.
    pub(crate) phases: SinglePhases,
    /// Threads wait for nothing but barriers.
    pub(crate) plain: bool,
    /// Its threads make tasks, which other nodes may execute.
    pub(crate) tasks: bool,
    /// Threads look in a loop whether others have stored something.
    pub(crate) waits: bool,
    /// The reason why it may not be done with more.
    pub(crate) why: RunReason,
    /// The address of the code that is the reason, and what that code does.
    pub(crate) address: u64,
    pub(crate) text: String,
}

static KNOWN: Lock<BTreeMap<usize, &'static Safety>> = Lock::new(BTreeMap::new());

/// The judgement of the region of this outlined function.
pub(crate) fn of(function: usize) -> &'static Safety {
    let mut known = KNOWN.lock();
    known.entry(function).or_insert_with(|| {
        let examine = |reach: &Reach| (judge(reach), reach.calls.keys().any(|name| begins(name, &KEEP)));
        let unknown = || (single(RunReason::Code, function as u64, "no code".into()), false);
        let (safety, keeps) = examined(function, examine).unwrap_or_else(unknown);
        if keeps {
            tls::keep_by_thread();
        }
        Box::leak(Box::new(safety))
    })
}

/// What `examine` finds in all that the function can reach; `None` if its code is not to be had.
fn examined<T: Clone>(function: usize, examine: impl FnOnce(&Reach) -> T) -> Option<T> {
    Processor::HERE.prepare();
    scratch::within(|| loaded::with_code(&[], |code| examine(&code.reach(function as u64))))
}

/// Does the compiler's function that copies a task's arguments do nothing else? Then other nodes may have the bytes; a constructor
/// of C++ may do anything.
pub(crate) fn copies_only(copier: usize) -> bool {
    static KNOWN: Lock<BTreeMap<usize, bool>> = Lock::new(BTreeMap::new());
    *KNOWN.lock().entry(copier).or_insert_with(|| {
        let copies = |name: &String| matches!(name.as_str(), "memcpy" | "memmove");
        let examine = |reach: &Reach| reach.findings.is_empty() && reach.calls.keys().all(copies);
        examined(copier, examine).unwrap_or(false)
    })
}

/// Entry points of constructs that need all threads on one node.
const ALONE: [&str; 18] = [
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
    "__kmpc_ordered",
    "__kmpc_doacross_",
    "__kmpc_cancel",
    // The variables may be a thread's own, which other nodes do not see.
    "GOMP_single_copy_",
    "__kmpc_copyprivate",
    "__kmpc_task_reduction_modifier_",
    "__kmpc_taskred_modifier_",
    // Copies that begin as the origin's were.
    "__kmpc_threadprivate",
];
/// Entry points that synchronise memory between barriers.
const SYNCHRONISE: [&str; 15] = [
    "GOMP_critical_",
    "GOMP_atomic_",
    "GOMP_task",
    "omp_set_",
    "omp_test_",
    "omp_unset_",
    "GOMP_ordered_",
    "__kmpc_critical",
    "__kmpc_reduce",
    "__kmpc_atomic_",
    "__kmpc_omp_task",
    "__kmpc_task",
    "__kmpc_set_",
    "__kmpc_test_",
    "__kmpc_unset_",
];

/// Functions that set a value which the calling thread finds again in later regions.
const KEEP: [&str; 2] = ["pthread_setspecific", "tss_set"];

/// Entry points that make tasks.
const TASKS: [&str; 4] = ["GOMP_task", "__kmpc_omp_task", "__kmpc_task", "__kmpc_omp_target_task"];
/// The entry point by which a task is completed from elsewhere: an event is known to its task's node only.
const EVENTS: [&str; 1] = ["omp_fulfill_event"];

fn begins(name: &str, list: &[&str]) -> bool {
    list.iter().any(|begin| name.starts_with(begin))
}

fn single(why: RunReason, address: u64, text: String) -> Safety {
    let phases = SinglePhases::NONE;
    Safety { how: How::Single, phases, plain: false, tasks: false, waits: false, why, address, text }
}

fn judge(reach: &Reach) -> Safety {
    let call = |list: &[&str]| reach.calls.keys().find(|name| begins(name, list)).cloned();
    if let Some(text) = call(&ALONE) {
        return Safety { how: How::Alone, ..single(RunReason::Construct, 0, text) };
    }
    let safety = match reach.verdict {
        Verdict::Atomic(finding) | Verdict::Unknown(finding) => {
            single(RunReason::Code, finding.address, finding.kind.to_string())
        }
        Verdict::Plain => match call(&SYNCHRONISE) {
            Some(text) => single(RunReason::Call, 0, text),
            None => {
                return Safety {
                    how: How::Many,
                    plain: true,
                    ..single(RunReason::Unknown, 0, String::new())
                };
            }
        },
    };
    let waits = reach.findings.iter().any(|finding| finding.kind == Kind::Wait);
    let makes_tasks = call(&TASKS).is_some();
    let tasks = makes_tasks && call(&EVENTS).is_none();
    match single_phases(&reach.phases) {
        // A task runs on any node, while others wait at a barrier that ends another phase.
        _ if makes_tasks => Safety { tasks, waits, ..safety },
        Some(phases) => Safety { how: How::Many, phases, waits, ..safety },
        None => Safety { waits, ..safety },
    }
}
