//! Chooses near memory where the user gives no `--near`: what the machine, or the memory group, can give.
//!
//! `near` asks for the most that it can ever be, and `watch` keeps the limit of the moment up to date while the program runs. All that the
//! run takes of the machine counts, far memory that is compressed in memory too.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use atoll_memory::control::Control;
use atoll_memory::layout;

use super::mpi;
use crate::cgroup;

/// The part of the memory, one in this number, that is left to others and to what the program needs besides paged memory.
const LEFT_PART: u64 = 16;
/// The most bytes that are left.
const LEFT_MOST: u64 = 1 << 30;
/// The least bytes that are left, and those for each worker besides: the launcher and the program's private memory take 7M, and what the
/// kernel keeps of a worker's process 0.5M. They come after the first look at what there is.
const LEFT_LEAST: u64 = 12 << 20;
const LEFT_BY_WORKER: u64 = 512 << 10;
/// The least near memory: a program makes progress with it, and the kernel swaps or ends others where there is not even so much.
const LEAST: u64 = 8 << 20;
/// The time between two looks at what the machine can give.
const PERIOD: Duration = Duration::from_millis(250);
/// A change by less than one part in this number is none.
const STEADY_PART: u64 = 64;

/// Returns the most that near memory can ever be, in bytes.
pub(super) fn most() -> u64 {
    of(cgroup::memory_allowed(), 1, 1).min(layout::ARENA_BYTES as u64)
}

/// Returns the most bytes of memory that compressed far memory may take of `near` bytes.
pub(super) fn far_memory(near: u64) -> u64 {
    near / 2
}

/// Returns near memory for a run of `workers` that may take `bytes` of memory in all, one of `ranks` runs that share them.
fn of(bytes: u64, ranks: u64, workers: u32) -> u64 {
    let ranks = ranks.max(1);
    let least = ranks * (LEFT_LEAST + u64::from(workers) * LEFT_BY_WORKER);
    let left = (bytes / LEFT_PART).min(LEFT_MOST).max(least);
    (bytes.saturating_sub(left) / ranks).max(LEAST)
}

/// The choice of the moment.
#[derive(Debug)]
pub(super) struct Automatic {
    /// When it was made; `None` where the user set the limit.
    looked: Option<Instant>,
}

impl Automatic {
    /// Chooses for the first time, before the program starts.
    pub(super) fn begin(control: &Control) -> Self {
        if control.settings.near_automatic == 0 {
            return Self { looked: None };
        }
        let available = cgroup::memory_available_with_swap();
        let near = of(available, mpi::ranks_here(), control.settings.workers);
        control.near_now.store(near, Relaxed);
        Self { looked: Some(Instant::now()) }
    }

    /// Chooses anew, if it is time. What the run has already is its own: it does not count as taken by others.
    pub(super) fn look(&mut self, control: &Control) {
        if self.looked.is_none_or(|last| last.elapsed() < PERIOD) {
            return;
        }
        self.looked = Some(Instant::now());
        let available = cgroup::memory_available_with_swap() / mpi::ranks_here().max(1);
        let near = of(available + control.totals.held_bytes(), 1, control.settings.workers);
        let before = control.near_now.load(Relaxed);
        if near.abs_diff(before) > before / STEADY_PART {
            control.near_now.store(near, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_left_to_others() {
        assert_eq!(of(1 << 30, 1, 2), 960 << 20);
        assert_eq!(of(64 << 30, 1, 2), 63 << 30);
        assert_eq!(of(64 << 30, 4, 2), 63 << 28);
        assert_eq!(of(8 << 20, 1, 2), LEAST);
    }

    /// In a small memory group the launcher and the kernel took more than the sixteenth that was left, and the kernel killed a
    /// program that allocated all its memory before the second look.
    #[test]
    fn what_is_left_in_a_small_group_was_too_little() {
        assert_eq!(of(100 << 20, 1, 2), 87 << 20);
        assert_eq!(of(100 << 20, 1, 16), 80 << 20);
        assert_eq!(of(400 << 20, 4, 2), 87 << 20);
    }
}
