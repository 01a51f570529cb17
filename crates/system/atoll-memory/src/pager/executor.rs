//! What one worker (or handler thread) owns while it works for the pager: free frames, a log, scratch memory.
//!
//! Used by the pager's paths; nothing here is shared but the log, which whoever holds the room lock reads.
//!
//! Rules: no allocation, no locks, no arena access.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use atoll_pages::huge::Pace;
use atoll_pages::{Event, Guesses, Prefetcher, pacing};

use super::page_pipe::PagePipe;
use super::page_word::MAX_FRAMES;
use super::threads::Threads;
use crate::control::Figures;
use crate::far::Lane;

/// Frames an executor keeps for its next faults at most.
pub const CACHE: usize = pacing::STORE;

/// Entries of a log; a power of two.
const LOG: usize = pacing::LOG;

/// Pages that an instruction may need at once, but for one that gathers words, which goes on where it was.
const OPERANDS: u32 = 4;

/// The pages of a worker's last faults. An instruction may need several pages at once, and a loop some more, so none of them leaves for
/// another one: under a policy that evicts what came last neither would get on.
#[derive(Clone, Copy)]
pub(super) struct Lately {
    /// A ring of pages plus one; 0: none.
    pages: [u32; 16],
    /// How many pages were noted.
    noted: u32,
    /// Frames that near memory has, a quarter of which is kept at most.
    frames: u32,
}

impl Lately {
    /// Notes a fault.
    #[inline]
    pub(super) fn note(&mut self, page: u32) {
        if !self.has(page) {
            self.pages[self.noted as usize % self.pages.len()] = page + 1;
            self.noted = self.noted.wrapping_add(1);
        }
    }

    /// Near memory has `frames` now.
    pub(super) fn set_frames(&mut self, frames: u32) {
        self.frames = frames;
    }

    /// Frames that near memory had when a victim was last looked for.
    pub(super) fn frames(&self) -> u32 {
        self.frames
    }

    /// Whether one of the last faults, as many as an instruction may need pages, was on a page of the `1 << order` from `first` on.
    pub(super) fn has_of_late(&self, first: u32, order: u32) -> bool {
        let last = self.noted.saturating_sub(OPERANDS)..self.noted;
        last.map(|number| self.pages[number as usize % self.pages.len()])
            .any(|noted| noted != 0 && (noted - 1) >> order == first >> order)
    }

    /// Whether one of the last faults was on `page`.
    #[inline]
    pub(super) fn has(&self, page: u32) -> bool {
        let ago = |place: usize| (self.noted.wrapping_sub(1 + place as u32)) % self.pages.len() as u32;
        self.pages.iter().enumerate().any(|(place, &noted)| noted == page + 1 && ago(place) < self.frames / 4)
    }
}

/// A worker's own part of the pager.
#[repr(C, align(64))]
pub struct Executor {
    /// Free frames, taken from the room in batches.
    pub(super) cache: [u32; CACHE],
    pub(super) cached: usize,
    /// Streams of faults this worker is walking along.
    pub(super) streams: Prefetcher,
    /// Scratch memory for pages on their way to and from far memory.
    pub(super) scratch: *mut u8,
    pub(super) scratch_bytes: usize,
    pub(super) lane: Lane,
    pub(super) pipe: PagePipe,
    pub(super) figures: &'static Figures,
    /// The page table of the process in which this executor works.
    pub(super) table: usize,
    /// Whether nothing else runs on that page table while this executor works, unless threads of the program share tables.
    pub(super) is_alone: bool,
    /// How many of the announced pages, which are about to leave, this worker has heard of.
    pub(super) heard: u32,
    /// The pages of the worker's last faults.
    pub(super) lately: Lately,
    /// The address of the last fault on a page over which the program has another mapping.
    pub(super) covered_at: usize,
    /// The address of the last access that a mapping did not allow, and how often in a row it came while its page was near.
    pub(super) denied: (usize, u32),
    /// How fast this worker comes to far huge pages.
    pub(super) pace: Pace,
    /// Guesses whether pages that come will be written.
    pub(super) guesses: Guesses,
    head: AtomicU32,
    tail: AtomicU32,
    log: [AtomicU64; LOG],
}

impl Executor {
    /// Notes an event for the policy; `false` if the log is full (drain it, then note again).
    #[inline]
    pub(super) fn note(&self, event: Event) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        // Acquire: pairs with the Release of `tail` in `drain`: the slot was read before it is overwritten.
        if head.wrapping_sub(self.tail.load(Ordering::Acquire)) as usize >= LOG {
            return false;
        }
        // Bits 62–63: kind; 61: mapped, or evicted before; 32–60: count or token; 28–31: order; 0–27: frame.
        let value = match event {
            Event::Inserted(frame, count) => u64::from(count) << 32 | u64::from(frame),
            Event::Mapped(frame, count) => 1 << 62 | u64::from(count) << 32 | u64::from(frame),
            Event::Returned(frame, mapped, token) => {
                2 << 62 | u64::from(mapped) << 61 | u64::from(token) << 32 | u64::from(frame)
            }
            Event::Huge(frame, order, token) => {
                let known = u64::from(token.is_some()) << 61 | u64::from(token.unwrap_or_default()) << 32;
                3 << 62 | known | u64::from(order) << 28 | u64::from(frame)
            }
        };
        self.log[head as usize % LOG].store(value, Ordering::Relaxed);
        // Release: pairs with the Acquire of `head` in `drain`.
        self.head.store(head.wrapping_add(1), Ordering::Release);
        true
    }

    /// Whether little room is left in the log.
    #[inline]
    pub(super) fn log_nearly_full(&self) -> bool {
        let used = self.head.load(Ordering::Relaxed).wrapping_sub(self.tail.load(Ordering::Relaxed));
        pacing::is_nearly_full(used as usize)
    }

    /// Hands every noted event to `each`, oldest first. Only under the room lock.
    pub(super) fn drain(&self, mut each: impl FnMut(Event)) {
        let mut tail = self.tail.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `note`.
        let head = self.head.load(Ordering::Acquire);
        while tail != head {
            let value = self.log[tail as usize % LOG].load(Ordering::Relaxed);
            let (frame, count) = (value as u32 & (MAX_FRAMES - 1), (value >> 32) as u32 & 0x1fff_ffff);
            each(match value >> 62 {
                0 => Event::Inserted(frame, count),
                1 => Event::Mapped(frame, count),
                2 => Event::Returned(frame, value >> 61 & 1 != 0, count),
                _ => Event::Huge(frame, value as u32 >> 28, (value >> 61 & 1 != 0).then_some(count)),
            });
            tail = tail.wrapping_add(1);
        }
        // Release: pairs with the Acquire in `note`.
        self.tail.store(head, Ordering::Release);
    }

    /// This executor's counters.
    pub fn figures(&self) -> &'static Figures {
        self.figures
    }

    /// This executor's part of the far store.
    pub fn lane(&mut self) -> &mut Lane {
        &mut self.lane
    }
}

/// Memory for all executors and their scratch; only those in use are ever touched.
pub(crate) struct Executors {
    /// Zeroed memory for executors of `MAX_WORKERS` workers and `MAX_THREADS` other threads.
    pub(crate) at: *mut Executor,
    /// As many scratch areas of `scratch_bytes`.
    pub(crate) scratch: *mut u8,
    pub(crate) scratch_bytes: usize,
    /// Pages fetched ahead at most.
    pub(crate) max_window: u32,
    /// Pages that near memory holds at most.
    pub(crate) frames: u64,
    /// Which of those behind the workers' are made.
    pub(crate) threads: Threads,
}

impl Executors {
    /// Makes executor `index`.
    ///
    /// # Safety
    /// Once for each index, before anybody else uses it.
    pub(super) unsafe fn make(
        &self,
        index: usize,
        lane: Lane,
        figures: &'static Figures,
        table: usize,
        is_alone: bool,
    ) {
        // SAFETY: field by field into zeroed memory; what is left out (cache, log, counters) is valid when zero.
        unsafe {
            let x = self.at.add(index);
            (*x).streams.begin(self.max_window, self.frames);
            (&raw mut (*x).scratch).write(self.scratch.add(index * self.scratch_bytes));
            (&raw mut (*x).scratch_bytes).write(self.scratch_bytes);
            (&raw mut (*x).lane).write(lane);
            (&raw mut (*x).figures).write(figures);
            (&raw mut (*x).table).write(table);
            (&raw mut (*x).is_alone).write(is_alone);
        }
    }
}
