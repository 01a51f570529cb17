//! The deferred tasks of a team, counted; those with a priority are kept here.
//!
//! `omp::tasks` makes and executes them. Tasks without a priority are in their makers' queues (`Member::queue`).

use super::super::task::Task;
use atoll_memory::futex::Lock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The deferred tasks of a team.
pub(crate) struct Tasks {
    /// The number of deferred tasks that are not complete.
    pub(crate) pending: AtomicU32,
    /// The number of those that wait in queues.
    pub(crate) queued: AtomicU32,
    /// The number of events so far that may concern a member waiting in a task.
    pub(crate) events: AtomicU32,
    /// Tasks with a priority, ordered by falling priority and then by age.
    pub(crate) urgent: Lock<BTreeMap<(i32, u64), *const Task>>,
    /// The number of tasks in `urgent`.
    pub(crate) urgent_count: AtomicU32,
    /// The age that the next task in `urgent` gets.
    pub(crate) urgent_serial: AtomicU64,
}

impl Tasks {
    pub(super) const fn new() -> Tasks {
        Tasks {
            pending: AtomicU32::new(0),
            queued: AtomicU32::new(0),
            events: AtomicU32::new(0),
            urgent: Lock::new(BTreeMap::new()),
            urgent_count: AtomicU32::new(0),
            urgent_serial: AtomicU64::new(0),
        }
    }
}
