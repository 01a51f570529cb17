//! How much memory compressed pages may take where that memory is taken off near memory: as much as it saves more time than it costs.
//!
//! `auto` asks it. A page in near memory costs nothing when it is used. In compressed memory several pages take the place of one, but each
//! of them costs a decompression when it is used, and a compression when it leaves again. A page that is in neither is read from the store
//! behind, which costs most. So compressed memory pays where many pages lie behind it and are used, and costs time where its own pages are
//! fetched again and again.
//!
//! Both sides are weighed by one step of the budget, with the fetches since the last decision. A step more of near memory holds the pages
//! that left it last: it saves their fetches, which are those of the youngest pages of compressed memory, or of an average page of either
//! store where that is fetched more often. A step less of compressed memory has its oldest pages lie behind it, which are then fetched from
//! there as often as they are fetched now. A step more of it takes in pages that lie behind, which are fetched as often as an average one.
//! Where compressed memory holds pages that are not used while used ones lie behind, its oldest leave at the same budget.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::ages::Fetches;

/// The budget is divided into so many steps.
const STEPS: u32 = 16;
/// The steps that it has when a run begins.
const START: u32 = 4;
/// The fewest fetches between two decisions; and one part in this number of the compressed pages, where that is more.
const WINDOW: u64 = 1024;
const WINDOW_PART: u64 = 4;
/// After a change that was wrong, decisions to go without one in its direction; and the most of them, as they double each time.
const REST: u32 = 1;
const REST_MOST: u32 = 64;
/// The budget changes only if one side is greater than the other by this factor.
const CLEARLY: f64 = 5.0 / 4.0;
/// Compressed pages leave if they take so much more than they may: one part in this number of a step.
const EXCESS_PART: u64 = 16;
/// The ticks that a page is taken to cost before any was measured: those of compressed memory; those behind it are ten times as many.
const UNKNOWN: f64 = 30_000.0;
/// The ticks that a fault takes besides: some microseconds.
const FAULT: f64 = 20_000.0;

/// The oldest pages make room for others only if so much of the budget is taken.
const FILLED: f64 = 0.75;
/// Decisions over which weights are averaged: programs come back to what they used some phases ago.
const MEMORY: f64 = 8.0;
/// Parts of a whole, and the fewest pages that tell how many of them shrink.
const WHOLE: u32 = 1024;
const TRIED_LEAST: u64 = 128;

/// Where pages come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// Compressed memory.
    Memory,
    /// The store behind it.
    Behind,
}

/// What was fetched from one of the two stores since the last decision, and what was stored there.
#[repr(C)]
struct Counts {
    loaded: AtomicU64,
    load_ticks: AtomicU64,
    /// Pages stored there since then, and what that took.
    stored: AtomicU64,
    store_ticks: AtomicU64,
    /// What a page cost lately, in ticks; 0: not known.
    cost: AtomicU64,
}

/// The split, in memory that all workers share; zero at first.
#[repr(C)]
pub(super) struct Split {
    memory: Counts,
    behind: Counts,
    /// Pages that compressed memory did not take since the last decision, since they do not shrink.
    refused: AtomicU64,
    /// The part of them that shrank lately, of [`WHOLE`], and 1 more; 0: not known.
    shrink: AtomicU32,
    /// Steps of the budget less [`START`], as a number with a sign.
    change: AtomicU32,
    /// Of a change to less and of one to more: decisions to go without it, and how many they are the next time less [`REST`].
    rest: [AtomicU32; 2],
    next_rest: [AtomicU32; 2],
    /// The direction of the last change: 0 none, 1 to less, 2 to more.
    last: AtomicU32,
    /// The [`Weights`] as they were lately, in their order, as bits of numbers.
    lately: [AtomicU64; 3],
    /// Not zero if the oldest pages leave at the same budget.
    turns: AtomicU32,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Less,
    More,
    /// The oldest pages are to leave, and others to come.
    Turn,
    Nothing,
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
    /// The bytes of a step, and the fetches of the oldest pages that take a step of memory and of the youngest.
    pub(super) step_bytes: u64,
    pub(super) fetches: Fetches,
}

/// What a decision is made from.
#[derive(Debug, Clone, Copy)]
struct Seen {
    held: Held,
    /// Pages fetched from compressed memory and from behind.
    fetched: [u64; 2],
    /// What a page of either cost.
    cost: [f64; 2],
    /// The part of the pages tried that shrink, so that compressed memory takes them.
    shrink: f64,
}

/// What the three changes would have brought since the last decision, in ticks for each page fetched.
#[derive(Debug, Clone, Copy)]
struct Weights {
    /// A step more of near memory saves so much.
    saved: f64,
    /// A step less of compressed memory costs so much, and a step more of it saves so much.
    lost: f64,
    gained: f64,
}

fn weigh(seen: &Seen) -> Weights {
    let Held { memory_pages, memory_bytes, behind_pages, page_bytes, step_bytes, fetches } = seen.held;
    let [from_memory, from_behind] = seen.fetched.map(|pages| pages as f64);
    let [memory_cost, behind_cost] = seen.cost;
    let per = |fetched: f64, pages: f64| if pages >= 1.0 { fetched / pages } else { 0.0 };
    let (memory_pages, memory_bytes) = (memory_pages as f64, memory_bytes as f64);
    let young_pages = memory_pages * per(fetches.youngest_bytes as f64, memory_bytes);
    let memory_rate = per(from_memory, memory_pages).max(per(fetches.youngest as f64, young_pages));
    let behind_rate = per(from_behind, behind_pages as f64);
    let near_pages = step_bytes as f64 / page_bytes.max(1) as f64;
    let dearer = (behind_cost - memory_cost).max(0.0);
    // A page that leaves near memory goes to compressed memory if it shrinks.
    let near_cost = memory_cost + (1.0 - seen.shrink) * dearer + FAULT;
    // As long as nothing tells, pages shrink to a half.
    let more = if memory_bytes < 1.0 { 1.0 } else { memory_pages * page_bytes as f64 / memory_bytes - 1.0 };
    let all = (from_memory + from_behind).max(1.0);
    Weights {
        saved: near_pages * memory_rate.max(behind_rate) * near_cost / all,
        lost: fetches.oldest as f64 * dearer / all,
        gained: near_pages * seen.shrink * more.max(0.0) * behind_rate * dearer / all,
    }
}

/// The weights on average: those of now count one part in [`MEMORY`].
fn mixed(lately: [f64; 3], now: Weights) -> [f64; 3] {
    let now = [now.saved, now.lost, now.gained];
    if lately == [0.0; 3] {
        return now;
    }
    std::array::from_fn(|i| lately[i] + (now[i] - lately[i]) / MEMORY)
}

/// Whether the budget should be less or greater than it is. It is `filled` if compressed memory takes most of it.
fn wanted(Weights { saved, lost, gained }: Weights, filled: bool) -> Wanted {
    match (saved > lost * CLEARLY, gained > saved * CLEARLY) {
        (true, true) if filled => Wanted::Turn,
        (_, true) => Wanted::More,
        (true, false) => Wanted::Less,
        (false, false) => Wanted::Nothing,
    }
}

impl Counts {
    /// The pages fetched and those stored since the last decision, and what one cost; the counts begin anew.
    fn take(&self, unknown: f64) -> (u64, u64, f64) {
        let (loaded, load_ticks) = (self.loaded.swap(0, Relaxed), self.load_ticks.swap(0, Relaxed));
        let (stored, store_ticks) = (self.stored.swap(0, Relaxed), self.store_ticks.swap(0, Relaxed));
        if let Some(load) = load_ticks.checked_div(loaded) {
            // A page that is fetched leaves again.
            self.cost.store(load + store_ticks.checked_div(stored).unwrap_or(0), Relaxed);
        }
        match self.cost.load(Relaxed) {
            0 => (loaded, stored, unknown),
            cost => (loaded, stored, cost as f64),
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

    /// So many pages were stored, in so many ticks.
    pub(super) fn stored(&self, to: From, pages: u64, ticks: u64) {
        let counts = self.counts(to);
        counts.stored.fetch_add(pages, Relaxed);
        counts.store_ticks.fetch_add(ticks, Relaxed);
    }

    /// A page was not stored in compressed memory, as it does not shrink or those before it did not.
    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// The part of the pages tried lately that shrank; all where none were.
    fn shrink(&self) -> f64 {
        let shrink = self.shrink.load(Relaxed).checked_sub(1).unwrap_or(WHOLE);
        f64::from(shrink) / f64::from(WHOLE)
    }

    /// Whether most pages tried lately shrank.
    pub(super) fn most_shrinks(&self) -> bool {
        self.shrink() > 0.5
    }

    /// Steps of the budget: at most [`STEPS`].
    fn steps(&self) -> u32 {
        START.wrapping_add(self.change.load(Relaxed)).min(STEPS)
    }

    /// The bytes of a step of `all`.
    pub(super) fn step(all: u64) -> u64 {
        all / u64::from(STEPS)
    }

    /// The bytes of `all` that compressed pages may take.
    pub(super) fn budget(&self, all: u64) -> u64 {
        Self::step(all) * u64::from(self.steps())
    }

    /// Where they take more than that pages leave.
    pub(super) fn most(&self, all: u64) -> u64 {
        let budget = self.budget(all);
        if self.turns.load(Relaxed) == 0 {
            budget + Self::step(all) / EXCESS_PART
        } else {
            budget.saturating_sub(Self::step(all))
        }
    }

    /// Decides anew if enough was fetched. `held` is asked only then.
    pub(super) fn decide(&self, memory_pages: u64, held: impl FnOnce() -> Held) {
        let fetched = self.memory.loaded.load(Relaxed) + self.behind.loaded.load(Relaxed);
        if fetched < WINDOW.max(memory_pages / WINDOW_PART) {
            return;
        }
        // A worker that decides at the same time finds that nothing was fetched, or a little: at worst it is a step more.
        let (from_memory, stored, memory_cost) = self.memory.take(UNKNOWN);
        let (from_behind, _, behind_cost) = self.behind.take(UNKNOWN * 10.0);
        if from_memory + from_behind < WINDOW / 2 {
            return;
        }
        let tried = stored + self.refused.swap(0, Relaxed);
        if tried >= TRIED_LEAST {
            self.shrink.store((stored * u64::from(WHOLE) / tried) as u32 + 1, Relaxed);
        }
        let held = held();
        let now = weigh(&Seen {
            held,
            fetched: [from_memory, from_behind],
            cost: [memory_cost, behind_cost],
            shrink: self.shrink(),
        });
        let lately = self.lately.each_ref().map(|word| f64::from_bits(word.load(Relaxed)));
        let lately = mixed(lately, now);
        for (word, value) in self.lately.iter().zip(lately) {
            word.store(value.to_bits(), Relaxed);
        }
        let [saved, lost, gained] = lately;
        let filled = held.memory_bytes as f64 > held.step_bytes as f64 * f64::from(self.steps()) * FILLED;
        let wanted = wanted(Weights { saved, lost, gained }, filled);
        self.turns.store((wanted == Wanted::Turn).into(), Relaxed);
        self.follow(wanted);
    }

    /// Changes the budget as it is wanted. What takes the last change back makes the next one of its kind wait.
    fn follow(&self, wanted: Wanted) {
        let steps = self.steps();
        let (direction, to) = match wanted {
            Wanted::Nothing | Wanted::Turn => return,
            Wanted::Less => (0, steps.saturating_sub(1)),
            Wanted::More => (1, (steps + (steps / 4).max(1)).min(STEPS)),
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

    /// Steps of 64 pages' bytes; compressed pages take a half. The oldest and the youngest of them take a step each.
    fn seen(memory_pages: u64, behind_pages: u64, fetched: [u64; 2], [oldest, youngest]: [u64; 2]) -> Seen {
        let step_bytes = 64 * 4096;
        let held = Held {
            memory_pages,
            memory_bytes: memory_pages * 2048,
            behind_pages,
            page_bytes: 4096,
            step_bytes,
            fetches: Fetches { oldest, youngest, youngest_bytes: step_bytes.min(memory_pages * 2048) },
        };
        Seen { held, fetched, cost: [20_000.0, 200_000.0], shrink: 1.0 }
    }

    /// A program that used somewhat less than near memory again and again had the pages of its last phase in the file, and lost near
    /// memory to what it used: PageRank in a memory group took more than 90 seconds, where it takes 37 with a file alone.
    #[test]
    fn compressed_memory_took_the_place_of_what_was_used_all_the_time() {
        // What left last comes back at once, and the oldest never.
        let recent = seen(1000, 10_000, [900, 100], [0, 800]);
        assert_eq!(wanted(weigh(&recent), true), Wanted::Less);
        // What is used does not shrink.
        let graph = Seen { shrink: 0.0, ..seen(1000, 10_000, [0, 1000], [0, 0]) };
        assert_eq!(wanted(weigh(&graph), true), Wanted::Less);
        // What is used lies behind, and shrinks: it should take the place of what is not used.
        let used = seen(1000, 1000, [0, 500], [0, 0]);
        assert_eq!(wanted(weigh(&used), true), Wanted::Turn);
        assert_eq!(wanted(weigh(&used), false), Wanted::More);
        // Used alike everywhere: what lies behind costs ten times as much.
        assert_eq!(wanted(weigh(&seen(1000, 1000, [500, 500], [64, 64])), true), Wanted::More);
    }

    /// Strings that were sorted lay in the file for the most part, and were read from there a page at a time, while half of what compressed
    /// memory might take was free: at no steps nothing told that it would take them.
    #[test]
    fn compressed_memory_that_is_empty_is_tried_again() {
        assert_eq!(wanted(weigh(&seen(0, 1000, [0, 500], [0, 0])), false), Wanted::More);
        let dear = Seen { cost: [20_000.0, 30_000.0], ..seen(0, 1000, [0, 500], [0, 0]) };
        assert_eq!(wanted(weigh(&dear), false), Wanted::Less, "a file that is as fast");
    }

    /// A sort uses one part of its data after the other: what is the oldest now is fetched in the next phase.
    #[test]
    fn a_quiet_phase_does_not_empty_compressed_memory() {
        let phase = weigh(&seen(1000, 1000, [1000, 0], [0, 500]));
        let next = weigh(&seen(1000, 1000, [1000, 0], [500, 0]));
        let mut lately = mixed([0.0; 3], next);
        for _ in 0..4 {
            lately = mixed(lately, phase);
        }
        let [saved, lost, gained] = lately;
        assert_eq!(wanted(phase, true), Wanted::Less);
        assert_ne!(wanted(Weights { saved, lost, gained }, true), Wanted::Less);
    }

    #[test]
    fn a_change_that_was_wrong_is_tried_more_and_more_seldom() {
        for (tried, back) in [(Wanted::Less, Wanted::More), (Wanted::More, Wanted::Less)] {
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
        (0..STEPS).for_each(|_| split.follow(Wanted::Less));
        assert_eq!(split.budget(1600), 0);
        (0..20).for_each(|_| split.follow(Wanted::More));
        assert_eq!(split.budget(1600), 1600);
    }

    #[test]
    fn a_decision_waits_for_fetches() {
        let split = split();
        let held = || seen(1000, 10_000, [0; 2], [0; 2]).held;
        split.loaded(From::Memory, WINDOW - 1, 1_000_000);
        split.decide(1000, || panic!("too early"));
        split.loaded(From::Memory, 1, 1000);
        split.decide(1000, held);
        assert_eq!(split.steps(), START - 1);
        split.decide(1000, || panic!("the counts begin anew"));
    }
}
