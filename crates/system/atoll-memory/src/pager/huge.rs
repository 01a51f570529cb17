//! Huge pages: stretches of 2 MiB, walked through from end to end, whose 512 pages come and leave as one.
//!
//! Here is what is known of all stretches, and how the pages of one are locked together. `huge_fetch` has how one comes, `huge_evict` how it leaves,
//! `huge_split` how it becomes single pages, `huge_first` the first touch. `atoll_pages::huge` says which stretches become huge pages.
//!
//! There are huge pages only where threads share a page table and far pages stay where they lie (`in_place`). To bring 512 pages and to evict them
//! takes 300 µs of the kernel's time and as much of the pager's. As one they take 300 µs, or 30 µs once their memory is one huge page: the kernel
//! makes that in the arena's file (`MADV_COLLAPSE`), by a copy of 2 MiB, which takes up to 5 ms in a virtual machine.
//!
//! A huge page is near when the kernel may map it. It is far when nothing of it is mapped and its mapping allows no access, which raises SIGSEGV: a
//! guard would need a table of single entries.
//!
//! The words of its pages say of each that it is near, in a frame of its own, or far, as of all pages. The first page stands for the huge page:
//! the policy knows that page alone, and its lock is taken before the other pages' locks. Whoever changes what all pages are holds all locks. So
//! whoever holds the lock of one page knows that its stretch stays huge, or stays single pages.
//!
//! Rules: no allocation, no locks the program could hold, no arena access, no printing.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use atoll_pages::huge::{SHIFT, Stretch, Why};
use atoll_pages::{Event, Habit};

use super::executor::{Executor, Lately};
use super::in_place::InPlace;
use super::page_word::{self, PageWord, State};
use super::{Pager, page_pipe};
use crate::spin::Backoff;
use crate::sys::{self, Errno};

/// Bytes of a huge page.
pub(super) const BYTES: usize = 1 << SHIFT;
/// Pages of a huge page at most.
pub(super) const PAGES: usize = BYTES >> 12;
/// The kernel makes one huge page of a stretch's memory: `MADV_COLLAPSE`, since Linux 6.1.
pub(super) const COLLAPSE: usize = 25;
/// Nanoseconds that this is taken to cost before it was measured.
const COLLAPSE_NS: u64 = 1_000_000;
/// Nanoseconds that a first touch which makes a huge page may take: single pages take 0.7 ms. It takes four where a host has to find memory first.
const FIRST_NS: u64 = 1_000_000;
/// Stretches that are touched as single pages after that.
const PASSED_OVER: u32 = 31;
/// Failures of the kernel to make a huge page in a row after which it is asked no more: it searches for memory for milliseconds.
const FAILURES: u32 = 8;
/// Stretches that are huge at once at most, 32 GiB. Each far one that lies between near ones has a mapping of its own, and a process has 65,530 of
/// them.
const MOST: u32 = 16 << 10;
/// log2 of the part of near memory that stays, as it came last.
const YOUNG: u32 = 4;

/// Accesses in a row to one address near that were not allowed, after which this is no chance: other threads may have brought its page each time.
const DENIALS: u32 = 1000;

/// Pauses for which a page's lock is waited for at most, where its holder may wait for this worker.
const PAUSES: u32 = 1000;

/// What is known of all stretches.
pub(super) struct HugePages {
    /// A [`Stretch`] for each 2 MiB of page numbers; the lock of a stretch's first page guards whether it is huge.
    words: &'static [AtomicU64],
    /// Whether there may be huge pages.
    pub(super) are_possible: bool,
    /// Whether the kernel makes large pages by itself.
    are_joined: bool,
    /// log2 of the pages of a stretch.
    pub(super) order: u32,
    failures: AtomicU32,
    /// Nanoseconds that the kernel takes to make one huge page of a stretch's memory, as measured of late.
    pub(super) cost_ns: AtomicU64,
    /// Stretches that are huge.
    count: AtomicU32,
    /// Pages that came, single ones too.
    came: AtomicU64,
    /// Stretches that are not made huge at their first touch from now on, as that took long.
    passed_over: AtomicU32,
}

impl HugePages {
    /// Of pages of `1 << shift` bytes; `words` has a word for each stretch, all zero. `evicts`: whether pages ever leave.
    pub(super) fn new(words: &'static [AtomicU64], shift: u32, in_place: InPlace, evicts: bool) -> HugePages {
        let are_possible = in_place == InPlace::Guarded && shift < SHIFT;
        HugePages {
            words,
            are_possible,
            are_joined: evicts && page_pipe::are_pages_joined(),
            order: SHIFT.saturating_sub(shift),
            failures: AtomicU32::new(0),
            cost_ns: AtomicU64::new(COLLAPSE_NS),
            count: AtomicU32::new(0),
            came: AtomicU64::new(0),
            passed_over: AtomicU32::new(0),
        }
    }

    /// Pages of a stretch.
    pub(super) fn pages(&self) -> usize {
        1 << self.order
    }

    /// The first page of the stretch of `page`.
    pub(super) fn first(&self, page: u32) -> u32 {
        page >> self.order << self.order
    }

    /// The pages that may come with `page`, as its stretch may become huge, for which all of it has to be far at once.
    pub(super) fn bounds(&self, page: u32) -> Option<RangeInclusive<u64>> {
        let first = u64::from(self.first(page));
        self.word(page).map(|_| first..=first + self.pages() as u64 - 1)
    }

    fn word(&self, page: u32) -> Option<&AtomicU64> {
        if !self.are_possible {
            return None;
        }
        self.words.get((page >> self.order) as usize)
    }

    /// What is known of the stretch of `page`.
    #[inline]
    pub(super) fn stretch(&self, page: u32) -> Stretch {
        self.word(page).map_or(Stretch::default(), |word| Stretch(word.load(Ordering::Relaxed)))
    }

    /// Whether `page` is part of a huge page. That stays so while the caller holds a lock of one of its pages.
    #[inline]
    pub(super) fn is_huge(&self, page: u32) -> bool {
        self.stretch(page).is_huge()
    }

    /// Whether one more stretch may become huge.
    pub(super) fn has_room(&self) -> bool {
        self.count.load(Ordering::Relaxed) < MOST
    }

    /// Whether a stretch may be made huge at its first touch now.
    pub(super) fn may_touch_first(&self) -> bool {
        let left = self.passed_over.load(Ordering::Relaxed);
        if left > 0 {
            // Racing workers may pass over one more or less.
            self.passed_over.store(left - 1, Ordering::Relaxed);
        }
        left == 0 && self.may_try()
    }

    /// A first touch that was to make a huge page took so long.
    pub(super) fn first_touch_took(&self, ns: u64) {
        if ns > FIRST_NS {
            self.passed_over.store(PASSED_OVER, Ordering::Relaxed);
        }
    }

    /// Whether the kernel is to be asked for a huge page at all.
    pub(super) fn may_try(&self) -> bool {
        self.failures.load(Ordering::Relaxed) < FAILURES
    }

    /// The kernel was asked to make one huge page of the memory of the stretch of `page`, and did so or did not.
    pub(super) fn was_tried(&self, page: u32, is_one: bool) {
        if is_one {
            self.failures.store(0, Ordering::Relaxed);
        } else {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        self.change(page, |stretch| stretch.made_one(is_one));
    }

    /// The memory of stretches that `from..to` has a part of is free from now on.
    pub(super) fn released(&self, from: u32, to: u32) {
        let mut page = self.first(from);
        while self.are_possible && page < to {
            if self.stretch(page).may_begin_huge() {
                self.change(page, |stretch| stretch.lies_inside(false));
            }
            page += self.pages() as u32;
        }
    }

    /// Whether the memory of `page`, which is locked, may be a part of a large page of the kernel's.
    pub(super) fn may_be_part(&self, page: u32) -> bool {
        self.are_joined || self.stretch(page).was_huge()
    }

    /// Whether `page`, or the huge page that it stands for, is in use by the worker whose last faults were `lately`.
    pub(super) fn is_kept(&self, page: u32, lately: &Lately) -> bool {
        if !self.is_huge(page) {
            return lately.has(page);
        }
        // What another worker brought may not be used yet.
        let kept = lately.frames() >> self.order >> YOUNG;
        self.stretch(page).is_young((self.came.load(Ordering::Relaxed) >> self.order) as u32, kept)
            || lately.has_of_late(page, self.order)
    }

    /// Changes what is known; returns what was known before.
    pub(super) fn change(&self, page: u32, to: impl Fn(Stretch) -> Stretch) -> Stretch {
        let Some(word) = self.word(page) else { return Stretch::default() };
        let mut seen = word.load(Ordering::Relaxed);
        // The locks of pages order everything else.
        while let Err(now) =
            word.compare_exchange_weak(seen, to(Stretch(seen)).0, Ordering::Relaxed, Ordering::Relaxed)
        {
            seen = now;
        }
        Stretch(seen)
    }

    /// The stretch of `page`, which is huge, is single pages from now on.
    pub(super) fn became_single(&self, page: u32, why: Why) {
        self.change(page, |stretch| stretch.split(why));
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// A worker touches `page` of a far huge page. Returns what is known of its stretch.
    pub(super) fn touched(&self, page: u32) -> Stretch {
        let (number, pages) = (page - self.first(page), self.pages() as u32);
        self.change(page, |stretch| stretch.entered(number, pages)).entered(number, pages)
    }

    /// Counts so many `pages` that came. Returns how many came so far, in huge pages.
    fn come(&self, pages: usize) -> u32 {
        let before = self.came.fetch_add(pages as u64, Ordering::Relaxed);
        ((before + pages as u64) >> self.order) as u32
    }

    /// A first touch brought `count` single pages.
    pub(super) fn began(&self, count: usize) {
        if self.are_possible {
            self.come(count);
        }
    }

    /// A fault on single pages brought `count` of one stretch, from `first` to `last`.
    pub(super) fn fetched(&self, first: u32, last: u32, count: u32) {
        self.began(count as usize);
        if self.are_possible {
            let (start, pages) = (self.first(first), self.pages() as u32);
            self.change(first, |stretch| stretch.fetched(first - start, last - start, count, pages));
        }
    }
}

impl Pager {
    /// Whether the stretch that begins with page `first` lies in one mapping, and there as in its file.
    pub(super) fn lies_in_one(&self, first: u32) -> bool {
        let (at, end) = self.places.address_of(first);
        at != 0 && at.is_multiple_of(BYTES) && end - at >= BYTES
    }

    /// How many huge pages near memory has room for, as the part of each worker and each thread of the program.
    pub(super) fn near_huge_pages(&self) -> u32 {
        let all = u64::from(self.frame_target()) / self.huge.pages() as u64;
        (all / self.executors_at_work().max(1)) as u32
    }

    /// Locks all pages of the stretch of `page` if all are in `state`. Waits for whoever holds one of them for a moment.
    pub(super) fn lock_all(&self, page: u32, state: State) -> bool {
        let first = self.huge.first(page);
        for page in first..first + self.huge.pages() as u32 {
            if !self.lock_in(page, state) {
                self.unlock_all(first, page, state);
                return false;
            }
        }
        true
    }

    /// Locks a page if it is in `state` and nothing else of the program's lies over it. Waits for whoever holds it for a moment.
    pub(super) fn lock_in(&self, page: u32, state: State) -> bool {
        let word = self.pages.word(page);
        let mut wait = Backoff::new();
        for _ in 0..PAUSES {
            let seen = page_word::load(word);
            if seen.is_covered() {
                break;
            }
            if seen.state() == state && page_word::try_lock(word, seen) {
                return true;
            }
            if seen.state() != State::Busy && seen.state() != state {
                break;
            }
            wait.pause();
        }
        false
    }

    /// Unlocks pages from `first` up to `end` that were locked in `state`. A locked word keeps all else that it says.
    pub(super) fn unlock_all(&self, first: u32, end: u32, state: State) {
        for page in first..end {
            let word = self.pages.word(page);
            let locked = page_word::load(word);
            let now = match state {
                State::Resident => PageWord::resident(locked.frame(), locked.habit()),
                State::Far => PageWord::far(locked.habit(), locked.token()),
                State::Absent | State::Busy => PageWord::ABSENT,
            };
            page_word::unlock(word, now);
        }
    }

    /// Enters a huge page, all of which is locked and may be mapped, into the tables, and unlocks it.
    pub(super) fn enter_huge(
        &self,
        x: &mut Executor,
        first: u32,
        frames: &[u32],
        token: Option<u32>,
        table: usize,
    ) {
        let coming = self.huge.come(frames.len());
        let before = self.huge.change(first, |stretch| stretch.comes(coming));
        self.huge.count.fetch_add(u32::from(!before.is_huge()), Ordering::Relaxed);
        for (page, &frame) in (first..).zip(frames) {
            self.pages.frames.fill(frame, page, true, true);
            self.pages.frames.add_mapper(frame, table);
        }
        self.note(x, Event::Huge(frames[0], self.huge.order, token));
        for (page, &frame) in (first..).zip(frames) {
            page_word::unlock(self.pages.word(page), PageWord::resident(frame, Habit::Written));
        }
        x.lately.note(first);
        self.control.totals.huge_pages.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether SIGSEGV for an access that a mapping does not allow may have been raised by a far huge page, or one that has come meanwhile. Not where
    /// something else of the program's lies over the page, nor where nothing of it was far each of the last times: the program does there what no
    /// page allows, as to execute it.
    pub fn is_of_huge_page(&self, x: &mut Executor, address: usize) -> bool {
        let Some(page) = self.page_at(address).filter(|page| self.huge.stretch(*page).was_huge()) else {
            return false;
        };
        let seen = page_word::load(self.pages.word(page));
        let is_allowed = !matches!(seen.state(), State::Far | State::Busy);
        if !is_allowed {
            x.denied = (address, 0);
        }
        !seen.is_covered() && self.is_denied_by_chance(x, address)
    }

    /// Whether an access at `address` that is denied may be allowed when it is made again: not when it was denied each of the last times.
    pub fn is_denied_by_chance(&self, x: &mut Executor, address: usize) -> bool {
        let is_again = x.denied.0 == address;
        x.denied = (address, if is_again { x.denied.1 + 1 } else { 0 });
        x.denied.1 < DENIALS
    }
}

/// Allows these accesses to a stretch.
pub(super) fn allow(at: usize, rights: i32) -> Result<(), Errno> {
    // SAFETY: the arena's own memory; who touches it in vain has a fault that the pager resolves.
    unsafe { sys::syscall(libc::SYS_mprotect, [at, BYTES, rights as usize, 0, 0, 0]) }.map(drop)
}
