//! The atomics of the shared page table: std's, or the model checker's under `--cfg loom`.
//!
//! `page_word` and `frames` take their atomics from here and from nowhere else, so what `model` checks is the code that runs.
//! Without `--cfg loom` no line of loom is compiled.

#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Waiting for whoever has a page locked.
#[cfg(not(loom))]
pub(super) use crate::spin::Backoff;

/// Waiting for whoever has a page locked: the model lets another thread go on.
#[cfg(loom)]
pub(super) struct Backoff;

#[cfg(loom)]
impl Backoff {
    pub(super) const fn new() -> Backoff {
        Backoff
    }

    pub(super) fn pause(&mut self) {
        loom::thread::yield_now();
    }
}
