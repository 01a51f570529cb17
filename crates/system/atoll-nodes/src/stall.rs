//! The time for which each worker has waited for pages, for whoever asks what a piece of work took.
//!
//! `mail` adds to it, from a worker's fault handler; the runtime asks.
//!
//! Rules: no allocation, no locks, no arena access.

use std::sync::atomic::{AtomicU64, Ordering};

use atoll_memory::control::{MAX_THREADS, MAX_WORKERS};
use atoll_memory::managed;

use crate::clock;

/// The nanoseconds of each executor. Only the executor itself adds.
static STALLED: [AtomicU64; MAX_WORKERS + MAX_THREADS] =
    [const { AtomicU64::new(0) }; MAX_WORKERS + MAX_THREADS];

/// The nanoseconds for which the calling worker has waited for pages of its node's agent until now.
pub fn own() -> u64 {
    STALLED[managed::executor_index()].load(Ordering::Relaxed)
}

/// The calling worker waits for a page by `wait`.
pub(crate) fn measured<R>(wait: impl FnOnce() -> R) -> R {
    let began = clock::now();
    let result = wait();
    STALLED[managed::executor_index()].fetch_add(clock::now().saturating_sub(began), Ordering::Relaxed);
    result
}
