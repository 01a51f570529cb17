//! Chooses near memory where the user gives no `--near`: what the machine, or the memory group, can give.
//!
//! `near` asks for the most that it can ever be, and `watch` keeps the limit of the moment up to date while the program runs. All that the
//! run takes of the machine counts, far memory that is compressed in memory too.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use atoll_memory::control::Control;
use atoll_memory::layout;

use super::mpi;
use crate::cgroup::{self, Limit};

/// The part of the memory, one in this number, that is left to others and to what the program needs besides paged memory.
const LEFT_PART: u64 = 16;
/// The most bytes that are left.
const LEFT_MOST: u64 = 1 << 30;
/// The least bytes that are left, and those for each worker besides: the launcher and the program's private memory take 7M, and what the
/// kernel keeps of a worker's process 0.5M. They come after the first look at what there is.
const LEFT_LEAST: u64 = 12 << 20;
const LEFT_BY_WORKER: u64 = 512 << 10;
/// Once a program runs in a memory group, what it needs besides paged memory is in use and seen. Where no sudden growth is expected, less is left for
/// more of it: so many bytes at least, this part of the group's memory, and so many times the fastest growth between two looks.
const GROWTH_LEAST: u64 = 3 << 20;
const GROWTH_PART: u64 = 64;
const GROWTH_TIMES: u64 = 2;
/// With each look the fastest growth that was seen counts less by one part in this number.
const FORGET_PART: u64 = 16;
/// The least near memory: a program makes progress with it, and the kernel swaps or ends others where there is not even so much.
const LEAST: u64 = 8 << 20;
/// The time between two looks at what the machine can give.
const PERIOD: Duration = Duration::from_millis(250);
/// A change by less than one part in this number is none.
const STEADY_PART: u64 = 64;

/// Returns the most that near memory can ever be, in bytes.
pub(super) fn most() -> u64 {
    most_of(cgroup::memory_allowed()).min(layout::ARENA_BYTES as u64)
}

/// Returns the most bytes of memory that compressed far memory may take of `near` bytes.
pub(super) fn far_memory(near: u64) -> u64 {
    near / 2
}

/// Returns the most that near memory can ever be of `bytes` of memory.
fn most_of(bytes: u64) -> u64 {
    bytes.saturating_sub(left_for_growth(bytes).min(LEFT_MOST)).max(LEAST)
}

/// Returns the least bytes that are left for growth, of `bytes` of memory.
fn left_for_growth(bytes: u64) -> u64 {
    GROWTH_LEAST.max(bytes / GROWTH_PART)
}

/// Returns near memory for a run of `workers` that may take `bytes` of memory in all, one of `ranks` runs that share them.
fn of(bytes: u64, ranks: u64, workers: u32) -> u64 {
    let ranks = ranks.max(1);
    let least = ranks * (LEFT_LEAST + u64::from(workers) * LEFT_BY_WORKER);
    let left = (bytes / LEFT_PART).min(LEFT_MOST).max(least);
    (bytes.saturating_sub(left) / ranks).max(LEAST)
}

/// What the looks at a memory group have shown.
#[derive(Debug, Default)]
struct Growth {
    /// The bytes that were in use besides near memory at the last look; `None` before the first.
    others: Option<u64>,
    /// The most bytes by which they grew between two looks, less what was forgotten since.
    fastest: u64,
}

impl Growth {
    /// Takes note of the bytes in use besides near memory.
    fn see(&mut self, others: u64) {
        let grown = others.saturating_sub(self.others.unwrap_or(others));
        self.fastest = grown.max(self.fastest - self.fastest / FORGET_PART);
        self.others = Some(others);
    }

    /// Returns near memory for a run that is alone in the group, and `coming` workers of which do not run yet. The code and the other files
    /// that are in frequent use keep their place beside it, up to the part of memory that is left to others where less is known.
    fn near(&self, group: &Limit<u64>, coming: u32) -> u64 {
        let by_workers = u64::from(coming) * LEFT_BY_WORKER;
        let files = group.files_in_use.min(group.limit / LEFT_PART);
        let growth = left_for_growth(group.limit) + by_workers + GROWTH_TIMES * self.fastest;
        let left = (files + growth).min((group.limit / LEFT_PART).max(LEFT_LEAST + by_workers));
        group.limit.saturating_sub(self.others.unwrap_or(0) + left).max(LEAST)
    }
}

/// The choice of the moment.
#[derive(Debug)]
pub(super) struct Automatic {
    /// When it was made; `None` where the user set the limit.
    looked: Option<Instant>,
    growth: Growth,
}

impl Automatic {
    /// Chooses for the first time, before the program starts.
    pub(super) fn begin(control: &Control) -> Self {
        if control.settings.near_automatic == 0 {
            return Self { looked: None, growth: Growth::default() };
        }
        let available = cgroup::memory_available_with_swap(cgroup::memory().as_ref());
        let near = of(available, mpi::ranks_here(), control.settings.workers);
        control.near_now.store(near, Relaxed);
        control.near_for_growth.store(near, Relaxed);
        Self { looked: Some(Instant::now()), growth: Growth::default() }
    }

    /// Chooses anew, if it is time. What the run has already is its own: it does not count as taken by others. `is_alone` tells that
    /// nothing but the program runs below the launcher.
    pub(super) fn look(&mut self, control: &Control, is_alone: bool) {
        if self.looked.is_none_or(|last| last.elapsed() < PERIOD) {
            return;
        }
        self.looked = Some(Instant::now());
        let (held, workers) = (control.totals.held_bytes(), control.settings.workers);
        let coming = workers.saturating_sub(control.workers.load(Relaxed));
        let (group, ranks) = (cgroup::memory(), mpi::ranks_here().max(1));
        let available = cgroup::memory_available_with_swap(group.as_ref());
        let for_growth = of(available / ranks + held, 1, workers);
        let near = match group {
            // The group binds, rather than what others leave of the machine.
            Some(group) if ranks == 1 && group.left() <= available => {
                self.growth.see(group.used.saturating_sub(held));
                if is_alone { self.growth.near(&group, coming) } else { for_growth }
            }
            _ => for_growth,
        };
        store(&control.near_now, near);
        store(&control.near_for_growth, for_growth);
    }
}

/// Stores a limit, unless it differs by next to nothing from the one before.
fn store(limit: &AtomicU64, near: u64) {
    let before = limit.load(Relaxed);
    if near.abs_diff(before) > before / STEADY_PART {
        limit.store(near, Relaxed);
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

    fn group(limit: u64, files_in_use: u64) -> Limit<u64> {
        Limit { limit, file: "memory.max".into(), none: "max", used: 0, files_in_use }
    }

    /// What the launcher and the program needed was in use, and as much was left for it once more: GAP's PageRank took 58 seconds in a
    /// group of 87M, as 18M of it stayed empty, and 3 with a swap file; later, with cheaper writes, 67M took more than 25 in a group of 46M.
    #[test]
    fn what_was_left_in_a_small_group_was_counted_twice() {
        let mut growth = Growth::default();
        growth.see(5 << 20);
        assert_eq!(growth.near(&group(87 << 20, 1 << 20), 0), 78 << 20);
        assert_eq!(growth.near(&group(87 << 20, 1 << 20), 2), 77 << 20);
        assert_eq!(growth.near(&group(640 << 20, 0), 2), (640 - 10 - 5 - 1) << 20);
        assert_eq!(most_of(87 << 20), 84 << 20);
        // Files take no more than the sixteenth.
        assert_eq!(growth.near(&group(640 << 20, 500 << 20), 0), (640 - 40 - 5) << 20);
    }

    #[test]
    fn more_is_left_to_a_program_whose_other_memory_grows() {
        let mut growth = Growth::default();
        let near = |growth: &Growth| growth.near(&group(640 << 20, 0), 0);
        growth.see(5 << 20);
        assert_eq!(near(&growth), 625 << 20);
        growth.see(15 << 20);
        assert_eq!(near(&growth), 595 << 20);
        (0..100).for_each(|_| growth.see(15 << 20));
        assert!(near(&growth) > 614 << 20, "{growth:?}");
        growth.see(500 << 20);
        assert_eq!(near(&growth), 100 << 20);
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
