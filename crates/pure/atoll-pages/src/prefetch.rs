//! Finds the page streams in one worker's faults and says how much to fetch with a faulting page.
//!
//! `atoll-memory` asks it on every fault that fetches or makes pages; the simulator does the same.
//! The idea is stride prefetching with a growing window, as CPU caches and Linux's read-ahead do it; the region's
//! plan, which knows more, is made elsewhere (`DESIGN.md`, ways of the data).
//!
//! Faults that belong to no stream are remembered in a short history. Three of them in an arithmetic progression,
//! in the order of time, begin a stream. A stream predicts the page that faults next, which is the one behind
//! its last window; each time it is right its window doubles. When a page of the last window faults
//! again, it was evicted before it was used, and the window halves.
//!
//! Where the rows of a matrix are no whole number of pages, the faults of a walk down a column have the same distance in bytes, but not in
//! pages. So where in its page a fault was counts too, in 4096ths of a page. A stride between two whole numbers takes three faults in a
//! progression that is exact.
//!
//! Of a fault that is in no stream `blocks` says whether its block comes with it.

use core::ops::RangeInclusive;

use crate::blocks::{Blocks, Coming};
use crate::neighbours::block;
use crate::pacing::BLOCK;

/// Streams followed at once: a sweep of a stencil or of NPB's BT touches some 15 arrays in turn.
const STREAMS: usize = 32;
/// Remembered faults outside of streams: two a stream and what comes between them.
const HISTORY: usize = 80;
/// The longest stride looked for, in pages.
const MAX_STRIDE: u64 = 64;
/// Parts of a page by which places within it are told.
pub const PARTS: u32 = 4096;
/// A fault so many parts of a page off is still a fault of a stream with a stride between whole pages: rows do not all begin alike.
const SLACK: i64 = 64;
/// Windows from this size on count as proved, and may be found ahead of the predicted page.
const PROVED: u32 = 4;

/// Which way a stream goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Towards higher pages.
    Forward,
    /// Towards lower pages.
    Backward,
}

/// How far it is from one page of a stream to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    /// Whole pages, rounded down; negative when the stream goes backward.
    pages: i64,
    /// What is beyond them, in [`PARTS`] of a page: 0 for whole pages.
    part: u32,
}

impl Step {
    /// Of a stream that is free: from a page to itself.
    const NONE: Step = Step::whole(0);

    const fn whole(pages: i64) -> Step {
        Step { pages, part: 0 }
    }

    /// So many [`PARTS`] of a page.
    fn of_parts(parts: i64) -> Step {
        let part = parts.rem_euclid(PARTS.into());
        Step { pages: parts.div_euclid(PARTS.into()), part: part as u32 }
    }

    /// The most whole pages that a step takes.
    fn most(self) -> u64 {
        if self.pages < 0 { self.pages.unsigned_abs() } else { self.pages as u64 + u64::from(self.part > 0) }
    }

    /// The place `count` steps from one.
    fn from(self, (page, part): Place, count: u32) -> Place {
        let parts = u64::from(part) + u64::from(count) * u64::from(self.part);
        let page = page.wrapping_add_signed(i64::from(count) * self.pages);
        (page.wrapping_add(parts / u64::from(PARTS)), (parts % u64::from(PARTS)) as u32)
    }
}

/// A page, and which of its [`PARTS`].
type Place = (u64, u32);

/// The pages to fetch at a fault: `first`, `first + stride` and so on, and of a block the pages before `first`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The faulting page.
    pub first: u64,
    /// How many pages, the faulting one among them; at least 1.
    pub count: u32,
    /// Pages from one to the next, rounded down; negative when the stream goes backward.
    pub stride: i64,
    /// What the stride is beyond that, and where in its first page the window begins, in [`PARTS`] of a page.
    parts: (u32, u32),
    /// How many of them lie before the faulting one: only in a block, whose pages have stride 1.
    pub before: u32,
}

impl Window {
    /// Which way the stream goes; a single page counts as forward.
    pub fn direction(&self) -> Direction {
        if self.stride < 0 { Direction::Backward } else { Direction::Forward }
    }

    /// The pages, the faulting one first.
    pub fn pages(self) -> impl Iterator<Item = u64> {
        let ahead = (0..self.count - self.before).map(move |index| self.place(index).0);
        ahead.chain((1..=u64::from(self.before)).map(move |index| self.first - index))
    }

    /// The lowest page, where a caller that moves runs of pages begins.
    pub fn lowest(&self) -> u64 {
        let last = if self.stride < 0 { self.place(self.count - 1).0 } else { self.first };
        last - u64::from(self.before)
    }

    /// Where the `index`-th page is touched, and behind the last one where the stream goes on.
    fn place(&self, index: u32) -> Place {
        let step = Step { pages: self.stride, part: self.parts.0 };
        step.from((self.first, self.parts.1), index)
    }

    /// The page alone.
    fn single(page: u64) -> Self {
        Self { first: page, count: 1, stride: 1, parts: (0, 0), before: 0 }
    }

    /// The block of `page`, less what is beyond the bounds, of which the page is within.
    fn block(page: u64, within: &RangeInclusive<u64>) -> Self {
        let block = block(page);
        let (start, end) = (*block.start().max(within.start()), *block.end().min(within.end()));
        let (count, before) = ((end - start + 1) as u32, (page - start) as u32);
        Self { count, before, ..Self::single(page) }
    }

    /// This many pages, less those beyond the bounds, of which `first` is within.
    fn cut((first, part): Place, count: u32, step: Step, within: RangeInclusive<u64>) -> Self {
        let room = if step.pages < 0 { first - within.start() } else { within.end() - first };
        let room = room / step.most();
        let count = u64::from(count).min(room.saturating_add(1)) as u32;
        let part = if step.part == 0 { 0 } else { part };
        Self { count, stride: step.pages, parts: (step.part, part), ..Self::single(first) }
    }
}

/// A stream; free when it takes no step.
#[derive(Debug)]
struct Stream {
    /// The first page behind the last fetch, which is to fault next, and where in it.
    expected: Place,
    step: Step,
    /// How many pages the last fetch was, which bounds may have made less than the window.
    fetched: u32,
    /// How many pages the stream has proved worth fetching.
    window: u32,
    /// The number of the fault that used it last.
    used: u64,
}

impl Stream {
    const FREE: Self = Self { expected: (0, 0), step: Step::NONE, fetched: 0, window: 0, used: 0 };

    /// What a fault on `page` is to this stream; the flag tells the predicted page from those that are near it.
    fn matches(&self, (page, part): Place) -> Option<(Match, bool)> {
        let distance = page.wrapping_sub(self.expected.0) as i64;
        if distance == 0 {
            return (self.step != Step::NONE).then_some((Match::Next, true));
        }
        // The division is dear, so only pages within reach pay it; a free stream reaches nothing.
        let reach = self.step.most() * u64::from(self.window.max(self.fetched));
        if self.window < PROVED || distance.unsigned_abs() > reach {
            return None;
        }
        let steps = if self.step.part == 0 {
            (distance % self.step.pages == 0).then(|| distance / self.step.pages)?
        } else {
            let of_page = i64::from(PARTS);
            let parts = distance * of_page + i64::from(part) - i64::from(self.expected.1);
            let step = self.step.pages * of_page + i64::from(self.step.part);
            let steps = (2 * parts + step).div_euclid(2 * step);
            ((parts - steps * step).abs() <= SLACK).then_some(steps)?
        };
        match steps {
            1.. => Some((Match::Next, false)),
            // The first page of a fetch was in use: faulting again, it tells nothing about those behind it.
            behind if -behind < i64::from(self.fetched) => Some((Match::Again, false)),
            _ => None,
        }
    }

    /// `window` is fetched at a fault of this number.
    fn follow(&mut self, window: &Window, fault: u64) {
        self.expected = window.place(window.count);
        self.fetched = window.count;
        self.used = fault;
    }
}

/// What a fault is to a stream.
enum Match {
    /// The predicted page, or one not far behind it, what lies between being resident already.
    Next,
    /// A page of the last window: it was fetched and evicted unused.
    Again,
}

/// The last faults outside of streams, the newest first.
#[derive(Debug)]
struct History {
    /// Page numbers plus one, so that 0 is an empty place.
    entries: [u64; HISTORY],
    /// Where in these pages.
    parts: [u32; HISTORY],
}

impl History {
    const EMPTY: History = History { entries: [0; HISTORY], parts: [0; HISTORY] };

    fn push(&mut self, (page, part): Place) {
        // A fault on the newest page again, which was lost to another worker's need, is no progress.
        let entry = page.wrapping_add(1);
        if self.entries[0] != entry {
            self.entries.copy_within(..HISTORY - 1, 1);
            self.parts.copy_within(..HISTORY - 1, 1);
            (self.entries[0], self.parts[0]) = (entry, part);
        }
    }

    /// The fault of this age, 0 the newest.
    fn at(&self, age: usize) -> Option<Place> {
        Some((self.entries[age].checked_sub(1)?, self.parts[age]))
    }

    /// The ages of faults on pages that may be [`MAX_STRIDE`] off at most: all of those, and some that share the lower half of their number.
    fn within_reach(&self, page: u64) -> impl Iterator<Item = usize> + use<> {
        let least = page.wrapping_add(1).wrapping_sub(MAX_STRIDE) as u32;
        // Compilers make this loop a few instructions, and most faults have few others within their reach.
        let mut is_near = [false; HISTORY];
        for (is_near, &entry) in is_near.iter_mut().zip(&self.entries) {
            *is_near = (entry as u32).wrapping_sub(least) <= 2 * MAX_STRIDE as u32;
        }
        (0..HISTORY).filter(move |&age| is_near[age])
    }

    /// Whether a fault that is at least so old was on `page`, at a place in it for which `is_meant` holds.
    fn has(&self, page: u64, from_age: usize, is_meant: impl Fn(u32) -> bool) -> bool {
        let entry = page.wrapping_add(1);
        let mut older = self.entries[from_age..].iter().zip(&self.parts[from_age..]);
        entry != 0 && older.any(|(&other, &part)| other == entry && is_meant(part))
    }
}

/// The stream detector of one worker. Its size is fixed, it holds no address and every state of it is valid, so it
/// may lie in shared memory. Not to be copied, as only one can follow a worker's faults.
#[derive(Debug)]
pub struct Prefetcher {
    streams: [Stream; STREAMS],
    history: History,
    faults: u64,
    max: u32,
    blocks: Blocks,
}

impl Prefetcher {
    /// A detector that has seen nothing. `max` is the largest window in pages; below 2 nothing is ever fetched ahead, and below a block no
    /// blocks are. `frames`: pages of near memory.
    pub const fn new(max: u32, frames: u64) -> Self {
        let mut new = Self {
            streams: [const { Stream::FREE }; STREAMS],
            history: History::EMPTY,
            faults: 0,
            max: 0,
            blocks: Blocks::ZERO,
        };
        new.begin(max, frames);
        new
    }

    /// Makes a detector in zeroed memory one that [`new`](Self::new) makes, without a touch of what stays zero.
    pub const fn begin(&mut self, max: u32, frames: u64) {
        self.max = if max == 0 { 1 } else { max };
        self.blocks.set_frames(frames);
    }

    /// The worker faulted on `page`. Returns the pages to fetch, that one first, none of them beyond `within`, the bounds
    /// of what is worth fetching with it. A page out of them is fetched alone.
    pub fn fault(&mut self, page: u64, within: RangeInclusive<u64>) -> Window {
        self.fault_at(page, 0, within)
    }

    /// The same where it is known which of the [`PARTS`] of its page the worker touched.
    pub fn fault_at(&mut self, page: u64, part: u32, within: RangeInclusive<u64>) -> Window {
        self.faults += 1;
        let place = (page, part % PARTS);
        let within = if within.contains(&page) { within } else { page..=page };
        if let Some((index, what)) = self.find(place) {
            let stream = &mut self.streams[index];
            stream.window = match what {
                Match::Next => stream.window.saturating_mul(2).min(self.max),
                Match::Again => (stream.window / 2).max(1),
            };
            let window = Window::cut(place, stream.window, stream.step, within);
            stream.follow(&window, self.faults);
            return window;
        }
        let Some(step) = self.progression(place) else {
            if self.max < BLOCK {
                self.history.push(place);
                return Window::single(page);
            }
            return match self.blocks.fault(page) {
                Coming::Alone => {
                    self.history.push(place);
                    Window::single(page)
                }
                Coming::Whole(direction) => {
                    let window = Window::block(page, &within);
                    // A sweep's next fault is beyond the block, where a stream is to begin.
                    let (start, end) = (window.lowest(), window.lowest() + u64::from(window.count - 1));
                    let (before, last) = match direction {
                        Direction::Forward => (end.saturating_sub(1), end),
                        Direction::Backward => (start + 1, start),
                    };
                    self.history.push((before, 0));
                    self.history.push((last, 0));
                    window
                }
            };
        };
        // Neighbours in order are hardly chance. Longer strides are, among many faults in little memory: they
        // begin with the faulting page alone.
        let count = match step.most() {
            1 if self.blocks.come_whole(page) => self.max.min(BLOCK),
            1 => self.max.min(2),
            _ => 1,
        };
        let window = Window::cut(place, count, step, within);
        if let Some(oldest) = self.streams.iter_mut().min_by_key(|stream| stream.used) {
            *oldest = Stream { step, window: count, ..Stream::FREE };
            oldest.follow(&window, self.faults);
        }
        window
    }

    /// The stream a fault belongs to: one that predicts just this page, before all others.
    fn find(&self, place: Place) -> Option<(usize, Match)> {
        let mut near = None;
        for (index, stream) in self.streams.iter().enumerate() {
            match stream.matches(place) {
                Some((what, true)) => return Some((index, what)),
                Some((what, false)) => near = Some((index, what)),
                None => {}
            }
        }
        near
    }

    /// The step by which a fault continues two remembered ones that came in that order: to the next page, else the shortest one between whole
    /// pages, which is hardly chance, else the shortest one of whole pages.
    fn progression(&self, (page, part): Place) -> Option<Step> {
        let (mut whole, mut between) = (None::<Step>, None::<Step>);
        for age in self.history.within_reach(page) {
            let Some((earlier, its_part)) = self.history.at(age) else { continue };
            let stride = page.wrapping_sub(earlier) as i64;
            if stride == 0 || stride.unsigned_abs() > MAX_STRIDE {
                continue;
            }
            let is_shorter = |than: Option<Step>| {
                than.is_none_or(|than| stride.unsigned_abs() < than.pages.unsigned_abs())
            };
            let (may_be_whole, may_be_between) =
                (is_shorter(whole), part != its_part && stride.abs() > 1 && is_shorter(between));
            if !may_be_whole && !may_be_between {
                continue;
            }
            let Some(first) = page.checked_add_signed(-2 * stride) else { continue };
            if may_be_whole && self.history.has(first, age + 1, |_| true) {
                whole = Some(Step::whole(stride));
            }
            if may_be_between {
                // Where the one before both was, to the part of a page.
                let exact = Step::of_parts(2 * i64::from(its_part) - i64::from(part)).from((first, 0), 1);
                if self.history.has(exact.0, age + 1, |part| part == exact.1) {
                    let parts = i64::from(part) - i64::from(its_part);
                    between = Some(Step::of_parts(stride * i64::from(PARTS) + parts));
                }
            }
        }
        match whole {
            Some(step) if step.most() == 1 => whole,
            _ => between.or(whole),
        }
    }
}
