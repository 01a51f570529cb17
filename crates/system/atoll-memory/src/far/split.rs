//! How much memory compressed pages may take where that memory is taken off near memory: as much as it saves more time than it costs.
//!
//! `auto` asks it. A page in near memory costs nothing when it is used. In compressed memory several pages take the place of one, but each
//! of them costs a decompression when it is used, and a compression when it leaves again. A page that is in neither is read from the store
//! behind, which costs most. So compressed memory pays where many pages lie behind it and are used, and costs time where its own pages are
//! fetched again and again.
//!
//! Two rates tell: the fetches from either store by the pages that it holds. One page more near saves fetches at the rate of compressed
//! pages. It takes the memory of several compressed pages, and all of them but one lie behind from then on, which are then fetched at
//! the rate of those that lie there. Where nothing lies behind that rate is unknown, and a step is tried now and then if fetches take
//! much of the time.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::sys;

/// The budget is divided into so many steps.
const STEPS: u32 = 16;
/// The steps that it has when a run begins.
const START: u32 = 4;
/// The fewest fetches between two decisions; and one part in this number of the compressed pages, where that is more.
const WINDOW: u64 = 1024;
const WINDOW_PART: u64 = 16;
/// After a change that was wrong, decisions to go without one in its direction; and the most of them, as they double each time.
const REST: u32 = 1;
const REST_MOST: u32 = 64;
/// The budget changes only if one side is greater than the other by this factor.
const CLEARLY: f64 = 5.0 / 4.0;
/// The ticks that a page is taken to cost before any was measured: those of compressed memory; those behind it are ten times as many.
const UNKNOWN: f64 = 30_000.0;

/// Where pages come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// Compressed memory.
    Memory,
    /// The store behind it.
    Behind,
}

/// What was fetched from one of the two stores since the last decision.
#[repr(C)]
struct Counts {
    loaded: AtomicU64,
    load_ticks: AtomicU64,
    /// What a page cost lately, in ticks; 0: not known.
    cost: AtomicU64,
}

/// The split, in memory that all workers share; zero at first.
#[repr(C)]
pub(super) struct Split {
    memory: Counts,
    behind: Counts,
    /// Pages stored in compressed memory since the last decision, and what that took.
    stored: AtomicU64,
    store_ticks: AtomicU64,
    /// The tick of the last decision.
    decided: AtomicU64,
    /// Steps of the budget less [`START`], as a number with a sign.
    change: AtomicU32,
    /// Of a change to less and of one to more: decisions to go without it, and how many they are the next time less [`REST`].
    rest: [AtomicU32; 2],
    next_rest: [AtomicU32; 2],
    /// The direction of the last change: 0 none, 1 to less, 2 to more.
    last: AtomicU32,
}

/// What the stores hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    /// Pages in compressed memory, and the bytes that they take there.
    pub(super) memory_pages: u64,
    pub(super) memory_bytes: u64,
    /// Pages in the store behind.
    pub(super) behind_pages: u64,
    pub(super) page_bytes: u64,
}

/// What a decision is made from.
#[derive(Debug, Clone, Copy)]
struct Seen {
    held: Held,
    /// Pages fetched from compressed memory and from behind.
    fetched: [u64; 2],
    /// What a page of either cost.
    cost: [f64; 2],
    /// The part of the time since the last decision that fetches from compressed memory took, of one worker.
    busy: f64,
}

/// Whether the budget should be less or greater than it is.
fn wanted(seen: &Seen) -> Ordering {
    let Held { memory_pages, memory_bytes, behind_pages, page_bytes } = seen.held;
    let [from_memory, from_behind] = seen.fetched.map(|pages| pages as f64);
    let [memory_cost, behind_cost] = seen.cost;
    let saved = memory_cost * from_memory / memory_pages.max(1) as f64;
    if behind_pages == 0 {
        return if seen.busy > 0.25 { Ordering::Less } else { Ordering::Equal };
    }
    let pages_by_bytes = (memory_pages * page_bytes) as f64 / memory_bytes.max(1) as f64;
    let more = if memory_pages == 0 { 1.0 } else { (pages_by_bytes - 1.0).max(0.0) };
    let lost = (behind_cost - memory_cost).max(0.0) * more * from_behind / behind_pages as f64;
    if saved > lost * CLEARLY {
        Ordering::Less
    } else if lost > saved * CLEARLY {
        Ordering::Greater
    } else {
        Ordering::Equal
    }
}

impl Counts {
    /// The pages fetched since the last decision, and what one cost with `store`; the counts begin anew.
    fn take(&self, store: u64, unknown: f64) -> (u64, f64) {
        let (loaded, ticks) = (self.loaded.swap(0, Relaxed), self.load_ticks.swap(0, Relaxed));
        if let Some(load) = ticks.checked_div(loaded) {
            self.cost.store(load + store, Relaxed);
        }
        match self.cost.load(Relaxed) {
            0 => (loaded, unknown),
            cost => (loaded, cost as f64),
        }
    }
}

impl Split {
    fn counts(&self, from: From) -> &Counts {
        match from {
            From::Memory => &self.memory,
            From::Behind => &self.behind,
        }
    }

    /// So many pages were fetched, in so many ticks.
    pub(super) fn loaded(&self, from: From, pages: u64, ticks: u64) {
        let counts = self.counts(from);
        counts.loaded.fetch_add(pages, Relaxed);
        counts.load_ticks.fetch_add(ticks, Relaxed);
    }

    /// A page was stored in compressed memory, in so many ticks.
    pub(super) fn stored(&self, ticks: u64) {
        self.stored.fetch_add(1, Relaxed);
        self.store_ticks.fetch_add(ticks, Relaxed);
    }

    /// Steps of the budget: at most [`STEPS`].
    fn steps(&self) -> u32 {
        START.wrapping_add(self.change.load(Relaxed)).min(STEPS)
    }

    /// The bytes of `all` that compressed pages may take.
    pub(super) fn budget(&self, all: u64) -> u64 {
        all / u64::from(STEPS) * u64::from(self.steps())
    }

    /// Decides anew if enough was fetched. `held` is asked only then.
    pub(super) fn decide(&self, memory_pages: u64, held: impl FnOnce() -> Held) {
        let fetched = self.memory.loaded.load(Relaxed) + self.behind.loaded.load(Relaxed);
        if fetched < WINDOW.max(memory_pages / WINDOW_PART) {
            return;
        }
        // A worker that decides at the same time finds that nothing was fetched, or a little: at worst it is a step more.
        let now = sys::ticks();
        let past = now.wrapping_sub(self.decided.swap(now, Relaxed));
        let (stored, ticks) = (self.stored.swap(0, Relaxed), self.store_ticks.swap(0, Relaxed));
        let (from_memory, memory_cost) = self.memory.take(ticks.checked_div(stored).unwrap_or(0), UNKNOWN);
        let (from_behind, behind_cost) = self.behind.take(0, UNKNOWN * 10.0);
        if from_memory + from_behind < WINDOW / 2 {
            return;
        }
        let busy = memory_cost * from_memory as f64 / past.max(1) as f64;
        let seen = Seen {
            held: held(),
            fetched: [from_memory, from_behind],
            cost: [memory_cost, behind_cost],
            busy,
        };
        self.follow(wanted(&seen));
    }

    /// Changes the budget as it is wanted. What takes the last change back makes the next one of its kind wait.
    fn follow(&self, wanted: Ordering) {
        let steps = self.steps();
        let (direction, to) = match wanted {
            Ordering::Equal => return,
            Ordering::Less => (0, steps.saturating_sub(1)),
            Ordering::Greater => (1, (steps + (steps / 2).max(1)).min(STEPS)),
        };
        if to == steps {
            return;
        }
        let rest = self.rest[direction].load(Relaxed);
        if rest > 0 {
            return self.rest[direction].store(rest - 1, Relaxed);
        }
        let other = 1 - direction;
        match self.last.swap(direction as u32 + 1, Relaxed) {
            0 => {}
            last if last == direction as u32 + 1 => self.next_rest[direction].store(0, Relaxed),
            _ => {
                let rest = REST + self.next_rest[other].load(Relaxed);
                self.rest[other].store(rest, Relaxed);
                self.next_rest[other].store((2 * rest).min(REST_MOST) - REST, Relaxed);
            }
        }
        self.change.store(to.wrapping_sub(START), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split() -> Split {
        // SAFETY: integer atomics, for which zeros are a value.
        unsafe { std::mem::zeroed() }
    }

    fn seen(memory_pages: u64, behind_pages: u64, fetched: [u64; 2]) -> Seen {
        let held = Held { memory_pages, memory_bytes: memory_pages * 2048, behind_pages, page_bytes: 4096 };
        Seen { held, fetched, cost: [20.0, 100.0], busy: 0.5 }
    }

    /// A program that used somewhat less than near memory again and again had the pages of its last phase in the file, and lost near
    /// memory to what it used: PageRank in a memory group took more than 90 seconds, where it takes 37 with a file alone.
    #[test]
    fn compressed_memory_took_the_place_of_what_was_used_all_the_time() {
        assert_eq!(wanted(&seen(1000, 10_000, [900, 100])), Ordering::Less);
        assert_eq!(wanted(&seen(1000, 10_000, [0, 500])), Ordering::Greater);
        // Used alike everywhere: what lies behind costs five times as much.
        assert_eq!(wanted(&seen(1000, 1000, [500, 500])), Ordering::Greater);
        assert_eq!(wanted(&seen(0, 1000, [0, 500])), Ordering::Greater);
    }

    #[test]
    fn where_nothing_lies_behind_a_step_is_tried_only_if_fetches_take_long() {
        assert_eq!(wanted(&seen(1000, 0, [500, 0])), Ordering::Less);
        assert_eq!(wanted(&Seen { busy: 0.1, ..seen(1000, 0, [500, 0]) }), Ordering::Equal);
    }

    #[test]
    fn a_change_that_was_wrong_is_tried_more_and_more_seldom() {
        for (tried, back) in [(Ordering::Less, Ordering::Greater), (Ordering::Greater, Ordering::Less)] {
            let split = split();
            let tries = |decisions: u32| {
                let changes = |_: &u32| {
                    let before = split.steps();
                    split.follow(tried);
                    let changed = split.steps() != before;
                    while split.steps() != before {
                        split.follow(back);
                    }
                    changed
                };
                (0..decisions).filter(changes).count()
            };
            assert_eq!((split.budget(1600), tries(10)), (400, 3));
            assert!(tries(1000) < 20);
        }
    }

    #[test]
    fn what_is_right_twice_in_a_row_is_followed_to_the_end() {
        let split = split();
        (0..STEPS).for_each(|_| split.follow(Ordering::Less));
        assert_eq!(split.budget(1600), 0);
        (0..20).for_each(|_| split.follow(Ordering::Greater));
        assert_eq!(split.budget(1600), 1600);
    }

    #[test]
    fn a_decision_waits_for_fetches() {
        let split = split();
        let held = || seen(1000, 10_000, [0; 2]).held;
        split.loaded(From::Memory, WINDOW - 1, 1_000_000);
        split.decide(1000, || panic!("too early"));
        split.loaded(From::Memory, 1, 1000);
        split.decide(1000, held);
        assert_eq!(split.steps(), START - 1);
        split.decide(1000, || panic!("the counts begin anew"));
    }
}
