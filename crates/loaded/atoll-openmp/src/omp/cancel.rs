//! Cancellation: of a region, a work-sharing construct or a task group; only where OMP_CANCELLATION allows it.
//!
//! `barrier` lets members of a cancelled region go; `tasks` drops the cancelled tasks.

use super::env;
use super::team::{Thread, me};
use std::sync::atomic::Ordering;

const PARALLEL: i32 = 1;
const LOOP_OR_SECTIONS: i32 = 2 | 4;
const TASKGROUP: i32 = 8;

/// The present barrier generation, which tells work-sharing constructs apart, as a mark that cannot be 0.
fn mark(thread: &Thread) -> u64 {
    u64::from(thread.team().barriers.inner.generation()) + 1
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn GOMP_cancellation_point(what: i32) -> bool {
    if !env::cancellation() {
        return false;
    }
    let thread = me();
    let team = thread.team();
    if what & LOOP_OR_SECTIONS != 0 {
        return team.sharing.cancelled.load(Ordering::Acquire) == mark(thread);
    }
    if what & TASKGROUP != 0 {
        // SAFETY: the current task's group is open.
        let group = unsafe { thread.task().group.get().as_ref() };
        if group.is_some_and(super::task::Group::is_cancelled) {
            return true;
        }
    }
    team.is_cancelled()
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn GOMP_cancel(what: i32, really: bool) -> bool {
    if !env::cancellation() {
        return false;
    }
    if !really {
        return GOMP_cancellation_point(what);
    }
    let thread = me();
    let team = thread.team();
    if team.spans() && what & TASKGROUP == 0 {
        atoll_nodes::unsupported("cancelling a region");
    }
    if what & LOOP_OR_SECTIONS != 0 {
        // Other side: `GOMP_cancellation_point`. The mark is no longer valid after the next barrier.
        team.sharing.cancelled.store(mark(thread), Ordering::Release);
    } else if what & TASKGROUP != 0 {
        // SAFETY: the current task's group is open.
        let Some(mut group) = (unsafe { thread.task().group.get().as_ref() }) else { return true };
        if group.workshare {
            // SAFETY: the enclosing group is open as long as the inner one.
            if let Some(outer) = unsafe { group.outer.as_ref() } {
                group = outer;
            }
        }
        group.cancelled.store(true, Ordering::Release);
    } else if what & PARALLEL != 0 {
        // Other side: `Team::is_cancelled` in barriers and task making.
        team.cancelled.store(true, Ordering::SeqCst);
        team.gate.notify();
    }
    true
}
