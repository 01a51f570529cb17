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
const MAX_STRIDE: i64 = 64;
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

/// The pages to fetch at a fault: `first`, `first + stride` and so on, and of a block the pages before `first`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The faulting page.
    pub first: u64,
    /// How many pages, the faulting one among them; at least 1.
    pub count: u32,
    /// Pages from one to the next; negative when the stream goes backward, never 0.
    pub stride: i64,
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
        let ahead = (0..i64::from(self.count - self.before))
            .map(move |index| self.first.wrapping_add_signed(index * self.stride));
        ahead.chain((1..=u64::from(self.before)).map(move |index| self.first - index))
    }

    /// The lowest page, where a caller that moves runs of pages begins.
    pub fn lowest(&self) -> u64 {
        self.first.wrapping_add_signed((i64::from(self.count) - 1) * self.stride.min(0))
            - u64::from(self.before)
    }

    /// The page alone.
    fn single(page: u64) -> Self {
        Self { first: page, count: 1, stride: 1, before: 0 }
    }

    /// The block of `page`, less what is beyond the bounds, of which the page is within.
    fn block(page: u64, within: &RangeInclusive<u64>) -> Self {
        let block = block(page);
        let (start, end) = (*block.start().max(within.start()), *block.end().min(within.end()));
        Self { first: page, count: (end - start + 1) as u32, stride: 1, before: (page - start) as u32 }
    }

    /// This many pages, less those beyond the bounds, of which `first` is within.
    fn cut(first: u64, count: u32, stride: i64, within: RangeInclusive<u64>) -> Self {
        let room = if stride < 0 { first - within.start() } else { within.end() - first };
        let room = room / stride.unsigned_abs();
        Self { first, count: u64::from(count).min(room.saturating_add(1)) as u32, stride, before: 0 }
    }
}

/// A stream; free when its stride is 0.
#[derive(Debug)]
struct Stream {
    /// The first page behind the last fetch, which is to fault next.
    expected: u64,
    stride: i64,
    /// How many pages the last fetch was, which bounds may have made less than the window.
    fetched: u32,
    /// How many pages the stream has proved worth fetching.
    window: u32,
    /// The number of the fault that used it last.
    used: u64,
}

impl Stream {
    const FREE: Self = Self { expected: 0, stride: 0, fetched: 0, window: 0, used: 0 };

    /// What a fault on `page` is to this stream; the flag tells the predicted page from those that are near it.
    fn matches(&self, page: u64) -> Option<(Match, bool)> {
        let distance = page.wrapping_sub(self.expected) as i64;
        if distance == 0 {
            return (self.stride != 0).then_some((Match::Next, true));
        }
        // The division is dear, so only pages within reach pay it; a free stream reaches nothing.
        let reach = self.stride.unsigned_abs() * u64::from(self.window.max(self.fetched));
        if self.window < PROVED || distance.unsigned_abs() > reach || distance % self.stride != 0 {
            return None;
        }
        match distance / self.stride {
            1.. => Some((Match::Next, false)),
            // The first page of a fetch was in use: faulting again, it tells nothing about those behind it.
            behind if -behind < i64::from(self.fetched) => Some((Match::Again, false)),
            _ => None,
        }
    }

    /// `window` is fetched at a fault of this number.
    fn follow(&mut self, window: &Window, fault: u64) {
        self.expected = window.first.wrapping_add_signed(i64::from(window.count) * self.stride);
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

/// The stream detector of one worker. Its size is fixed, it holds no address and every state of it is valid, so it
/// may lie in shared memory. Not to be copied, as only one can follow a worker's faults.
#[derive(Debug)]
pub struct Prefetcher {
    streams: [Stream; STREAMS],
    /// A ring of page numbers plus one, so that 0 is an empty place.
    history: [u64; HISTORY],
    /// The oldest place in the ring, which is written next; the newest lies before it.
    next: usize,
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
            history: [0; HISTORY],
            next: 0,
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
        self.faults += 1;
        let within = if within.contains(&page) { within } else { page..=page };
        if let Some((index, what)) = self.find(page) {
            let stream = &mut self.streams[index];
            stream.window = match what {
                Match::Next => stream.window.saturating_mul(2).min(self.max),
                Match::Again => (stream.window / 2).max(1),
            };
            let window = Window::cut(page, stream.window, stream.stride, within);
            stream.follow(&window, self.faults);
            return window;
        }
        let Some(stride) = self.progression(page) else {
            if self.max < BLOCK {
                self.remember(page);
                return Window::single(page);
            }
            return match self.blocks.fault(page) {
                Coming::Alone => {
                    self.remember(page);
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
                    self.remember(before);
                    self.remember(last);
                    window
                }
            };
        };
        // Neighbours in order are hardly chance. Longer strides are, among many faults in little memory: they
        // begin with the faulting page alone.
        let count = match stride.abs() {
            1 if self.blocks.come_whole(page) => self.max.min(BLOCK),
            1 => self.max.min(2),
            _ => 1,
        };
        let window = Window::cut(page, count, stride, within);
        if let Some(oldest) = self.streams.iter_mut().min_by_key(|stream| stream.used) {
            *oldest = Stream { stride, window: count, ..Stream::FREE };
            oldest.follow(&window, self.faults);
        }
        window
    }

    /// The stream `page` belongs to: one that predicts just this page, before all others.
    fn find(&self, page: u64) -> Option<(usize, Match)> {
        let mut near = None;
        for (index, stream) in self.streams.iter().enumerate() {
            match stream.matches(page) {
                Some((what, true)) => return Some((index, what)),
                Some((what, false)) => near = Some((index, what)),
                None => {}
            }
        }
        near
    }

    /// The shortest stride at which `page` continues two remembered faults that came in that order.
    fn progression(&self, page: u64) -> Option<i64> {
        let mut shortest: Option<i64> = None;
        let by_age = || {
            let (newer, older) = self.history.split_at(self.next);
            newer.iter().rev().chain(older.iter().rev()).map(|entry| entry.checked_sub(1))
        };
        for (age, earlier) in by_age().enumerate() {
            let Some(stride) = earlier.map(|earlier| page.wrapping_sub(earlier) as i64) else { continue };
            let shorter = shortest.map_or(MAX_STRIDE, |shortest| shortest.abs() - 1);
            if stride != 0
                && stride.unsigned_abs() <= shorter.unsigned_abs()
                && let Some(first) = page.checked_add_signed(-2 * stride)
                && by_age().skip(age + 1).any(|entry| entry == Some(first))
            {
                shortest = Some(stride);
            }
        }
        shortest
    }

    fn remember(&mut self, page: u64) {
        // A fault on the newest page again, which was lost to another worker's need, is no progress.
        let entry = page.wrapping_add(1);
        if self.history[(self.next + HISTORY - 1) % HISTORY] != entry {
            self.history[self.next] = entry;
            self.next = (self.next + 1) % HISTORY;
        }
    }
}
