//! Huge pages: stretches of 2 MiB, walked through from end to end, whose 512 pages come and leave as one.
//!
//! Called by `fault` for far pages, by `evict` for victims, and by all who need a part of a stretch alone. `atoll_pages::huge` says which stretches
//! become huge pages. Only where threads share a page table and far pages stay where they lie (`in_place`): to bring 512 pages and to evict
//! them takes 300 µs of the kernel's time and as much of the pager's. As one they take 300 µs, or 30 µs once their memory is one huge page: the
//! kernel makes that in the arena's file (`MADV_COLLAPSE`), by a copy of 2 MiB, which takes up to 5 ms in a virtual machine.
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

use atoll_pages::huge::{LEAST, SHIFT, Stretch, Why};
use atoll_pages::{Event, Habit, Policy, pacing};

use super::evict::{NO_VICTIM, VICTIMS, Victim};
use super::executor::{Executor, Lately};
use super::in_place::InPlace;
use super::page_word::{self, PageWord, State};
use super::{FaultError, Pager, page_pipe, unmap};
use crate::control::Figures;
use crate::far::FarStore;
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
pub(super) const FAILURES: u32 = 8;
/// log2 of the part of near memory that stays, as it came last.
const YOUNG: u32 = 4;
/// Batches of victims for which a huge page waits at most before single pages are fetched instead.
const BATCHES: u32 = 64;

/// Accesses in a row to one address near that were not allowed, after which this is no chance: other threads may have brought its page each time.
const DENIALS: u32 = 1000;

/// Tries to free a part of a large page: some seconds.
const PUNCHES: u32 = 1_000_000;

/// What is known of all stretches.
pub(super) struct HugePages {
    /// A [`Stretch`] for each 2 MiB of page numbers; the lock of a stretch's first page guards whether it is huge.
    words: &'static [AtomicU64],
    /// Whether there may be huge pages.
    are_possible: bool,
    /// Whether the kernel makes large pages by itself.
    are_joined: bool,
    /// log2 of the pages of a stretch.
    order: u32,
    pub(super) failures: AtomicU32,
    /// Nanoseconds that the kernel takes to make one huge page of a stretch's memory, as measured of late.
    cost_ns: AtomicU64,
    /// How many huge pages came.
    comings: AtomicU32,
    /// Stretches that are not made huge at their first touch from now on, as that took long.
    passed_over: AtomicU32,
}

impl HugePages {
    /// Of pages of `1 << shift` bytes; `words` has a word for each stretch, all zero.
    pub(super) fn new(words: &'static [AtomicU64], shift: u32, in_place: InPlace) -> HugePages {
        let are_possible = in_place == InPlace::Guarded && shift < SHIFT;
        HugePages {
            words,
            are_possible,
            are_joined: page_pipe::are_pages_joined(),
            order: SHIFT.saturating_sub(shift),
            failures: AtomicU32::new(0),
            cost_ns: AtomicU64::new(COLLAPSE_NS),
            comings: AtomicU32::new(0),
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
        self.words.get((page >> self.order) as usize).filter(|_| self.are_possible)
    }

    /// What is known of the stretch of `page`.
    #[inline]
    pub(super) fn stretch(&self, page: u32) -> Stretch {
        self.word(page).map_or(Stretch::default(), |word| Stretch(word.load(Ordering::Relaxed)))
    }

    /// Whether `page` is part of a huge page. That stays so while the caller holds a lock of one of its pages.
    #[inline]
    pub(super) fn is_huge(&self, page: u32) -> bool {
        self.are_possible && self.stretch(page).is_huge()
    }

    /// Whether a stretch may be made huge at its first touch now.
    pub(super) fn may_touch_first(&self) -> bool {
        let left = self.passed_over.load(Ordering::Relaxed);
        if left > 0 {
            // Racing workers may pass over one more or less.
            self.passed_over.store(left - 1, Ordering::Relaxed);
        }
        left == 0 && self.failures.load(Ordering::Relaxed) < FAILURES
    }

    /// A first touch that was to make a huge page took so long.
    pub(super) fn first_touch_took(&self, ns: u64, is_one: bool) {
        if ns > FIRST_NS {
            self.passed_over.store(PASSED_OVER, Ordering::Relaxed);
        }
        if is_one {
            self.failures.store(0, Ordering::Relaxed);
        } else {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
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
        self.stretch(page).is_young(self.comings.load(Ordering::Relaxed), kept)
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

    /// A fault on single pages brought `count` of one stretch, from `first` to `last`.
    pub(super) fn fetched(&self, first: u32, last: u32, count: u32) {
        if self.are_possible {
            let (start, pages) = (self.first(first), self.pages() as u32);
            self.change(first, |stretch| stretch.fetched(first - start, last - start, count, pages));
        }
    }
}

impl Pager {
    /// A touch of a far page that belongs to a huge page, or to a stretch that is to become one: brings all of it. `None`: the page is to
    /// come alone. The caller holds the page's lock, which is given back, unless this is `None`.
    pub(super) fn fetch_huge(
        &self,
        x: &mut Executor,
        page: u32,
        seen: PageWord,
        table: usize,
    ) -> Option<Result<(), FaultError>> {
        let stretch = self.huge.word(page).map(|word| Stretch(word.load(Ordering::Relaxed)))?;
        let joins = !stretch.is_huge();
        if joins && !self.begins_round(page) {
            return None;
        }
        page_word::unlock(self.pages.word(page), seen);
        if !joins && x.pace.comes(sys::clock_ns(libc::CLOCK_MONOTONIC), self.near_huge_pages()) {
            return Some(self.split(page, Why::LittleUsed));
        }
        if !joins && stretch.is_to_be_looked_at() {
            return Some(self.split(page, Why::Look));
        }
        let mut frames = [0; PAGES];
        let frames = &mut frames[..self.huge.pages()];
        match self.take_frames(x, frames) {
            Ok(true) => {}
            // The access comes again, and fetches a page alone.
            Ok(false) if joins => return Some(Ok(())),
            Ok(false) => return Some(self.split(page, Why::LittleUsed)),
            Err(e) => return Some(Err(e)),
        }
        let result = self.bring_huge(x, page, frames, joins, table);
        if result != Ok(true) {
            self.give_frames(frames);
        }
        x.pace.has_come(sys::clock_ns(libc::CLOCK_MONOTONIC));
        Some(result.map(drop))
    }

    /// Whether the stretch of `page`, a locked far page, is to become a huge page now: this is the first touch since all of it left.
    fn begins_round(&self, page: u32) -> bool {
        let pages = self.huge.pages() as u32;
        let first = self.huge.first(page);
        if !self.far.store.are_in_place(first.into(), pages.into()) {
            return false;
        }
        let before = self.huge.change(page, |stretch| stretch.begins(pages).0);
        before.begins(pages).1 && self.near_huge_pages() >= LEAST && self.lies_in_one(first)
    }

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

    pub(super) fn lock_in(&self, page: u32, state: State) -> bool {
        let word = self.pages.word(page);
        let mut wait = Backoff::new();
        for _ in 0..1000 {
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

    /// Brings all pages of a stretch into `frames`. `joins`: it is no huge page yet. `Ok(false)`: somebody else works on it.
    fn bring_huge(
        &self,
        x: &mut Executor,
        page: u32,
        frames: &[u32],
        joins: bool,
        table: usize,
    ) -> Result<bool, FaultError> {
        let (first, pages) = (self.huge.first(page), self.huge.pages() as u32);
        if !self.lock_all(first, State::Far) {
            return Ok(false);
        }
        let is_as_seen = self.huge.is_huge(first) != joins
            && (!joins || self.far.store.are_in_place(first.into(), pages.into()));
        let (at, _) = self.places.address_of(first);
        if !is_as_seen {
            self.unlock_all(first, first + pages, State::Far);
            return Ok(false);
        }
        if let Err(e) = self.map_huge(first, at, joins, table) {
            self.unlock_all(first, first + pages, State::Far);
            return Err(e);
        }
        self.far.store.take_from_place(first.into(), pages.into());
        let token = page_word::load(self.pages.word(first)).token();
        self.enter_huge(x, first, frames, Some(token), table);
        let f = x.figures;
        Figures::add(&f.major_faults, 1);
        Figures::add(&f.bytes_in, BYTES as u64);
        Figures::add(&f.prefetched, u64::from(pages) - 1);
        Ok(true)
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
        let coming = self.huge.comings.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.huge.change(first, |stretch| stretch.comes(coming));
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

    /// Maps a stretch, all of which is locked, or lets the kernel do so at the first touch. `joins`: guards stand for its pages.
    fn map_huge(&self, first: u32, at: usize, joins: bool, table: usize) -> Result<(), FaultError> {
        if !joins {
            allow(at, libc::PROT_READ | libc::PROT_WRITE).map_err(FaultError::Kernel)?;
        }
        let stretch = self.huge.stretch(first);
        let is_one = stretch.is_one() || self.make_one(first, at, stretch);
        // The kernel maps a huge page by itself.
        if is_one { Ok(()) } else { self.map_whole(self.tables.uffd(table), at, BYTES, false, true) }
    }

    /// Makes one huge page of the stretch's memory, none of which is mapped, if that pays. Returns whether it is one.
    fn make_one(&self, first: u32, at: usize, stretch: Stretch) -> bool {
        let costs = &self.huge.cost_ns;
        let before = costs.load(Ordering::Relaxed);
        if !stretch.pays_as_one(before) || self.huge.failures.load(Ordering::Relaxed) >= FAILURES {
            return false;
        }
        let begin = sys::clock_ns(libc::CLOCK_MONOTONIC);
        // The table of single entries, of which none is left, goes. Where the kernel fails single pages are mapped, which is seen. It says that it failed
        // as well where only its mapping of the huge page has to wait for the first touch.
        let _ = unmap::unmap_here(at, BYTES);
        let _ = unmap::advise(at, BYTES, COLLAPSE);
        let is_one = self.tables.kernel_maps.as_ref().is_some_and(|mapped| mapped.is_huge(at));
        let took = sys::clock_ns(libc::CLOCK_MONOTONIC).saturating_sub(begin);
        costs.store((before * 7 + took) / 8, Ordering::Relaxed);
        if is_one {
            self.huge.failures.store(0, Ordering::Relaxed);
        } else {
            self.huge.failures.fetch_add(1, Ordering::Relaxed);
        }
        self.huge.change(first, |stretch| stretch.made_one(is_one));
        is_one
    }

    /// Takes as many free frames as there are in `frames`, for which others leave. `Ok(false)`: there is no room for so many.
    pub(super) fn take_frames(&self, x: &mut Executor, frames: &mut [u32]) -> Result<bool, FaultError> {
        let mut idle = 0;
        for _ in 0..BATCHES {
            let target = self.frame_target();
            x.lately.set_frames(target);
            let mut victims = [NO_VICTIM; VICTIMS];
            let (count, huge) = {
                let mut room = self.near.room.lock();
                self.drain_logs(&mut room);
                let taken = self.near.taken.load(Ordering::Relaxed);
                let fits = target.saturating_sub(taken) as usize >= frames.len();
                if fits && room.take_all(frames) {
                    let now = taken + frames.len() as u32;
                    self.near.set_taken(now, self.places.shift, &self.control.totals);
                    let bytes = u64::from(now) << self.places.shift;
                    self.control.totals.resident_peak.fetch_max(bytes, Ordering::Relaxed);
                    return Ok(true);
                }
                self.near.full.store(true, Ordering::Relaxed);
                let want = pacing::victims(VICTIMS, 0, x.cached);
                let count = self.choose(&mut room, x, &mut victims[..want], target);
                (count, room.leaving.huge.take())
            };
            let had = x.cached;
            let victims = &mut victims[..count];
            victims.sort_unstable_by_key(|victim| victim.page);
            let result = self.evict_all(x, victims).and_then(|()| self.pack_some(x));
            let mut freed = x.cached.saturating_sub(had) > 0;
            {
                let mut room = self.near.room.lock();
                let mut taken = self.near.taken.load(Ordering::Relaxed);
                while x.cached > had {
                    x.cached -= 1;
                    room.give(x.cache[x.cached]);
                    taken -= 1;
                }
                self.near.set_taken(taken, self.places.shift, &self.control.totals);
            }
            freed |= huge.is_some_and(|first| self.evict_huge(x, first));
            result?;
            idle = if freed { 0 } else { idle + 1 };
            if idle > 2 {
                break;
            }
        }
        Ok(false)
    }

    /// Frames that nobody uses are free again.
    pub(super) fn give_frames(&self, frames: &[u32]) {
        let mut room = self.near.room.lock();
        frames.iter().for_each(|frame| room.give(*frame));
        let taken = self.near.taken.load(Ordering::Relaxed) - frames.len() as u32;
        self.near.set_taken(taken, self.places.shift, &self.control.totals);
    }

    /// Evicts a huge page whose first page is `victim`, which is locked and which the policy has given up. Its frames are free then. `false`: it stays
    /// near, or is single pages now.
    pub(super) fn evict_huge(&self, x: &Executor, victim: Victim) -> bool {
        let (first, pages) = (victim.page, self.huge.pages() as u32);
        let end = first + pages;
        let mut locked = first + 1;
        let mut is_pinned = false;
        while !is_pinned && locked < end && self.lock_in(locked, State::Resident) {
            is_pinned = self.pages.frames.pinned(page_word::load(self.pages.word(locked)).frame());
            locked += 1;
        }
        let is_whole = locked == end && !is_pinned;
        if !is_whole || !self.unmap_huge(first) {
            self.near.room.lock().policy.restore(victim.frame, victim.count);
            self.unlock_all(first, locked, State::Resident);
            if is_whole || is_pinned {
                // What is pinned may stay so, and what far memory has no place for is moved page by page.
                let _ = self.split(first, Why::PartNeeded);
            }
            return false;
        }
        let mut frames = [0; PAGES];
        let frames = &mut frames[..pages as usize];
        for (page, frame) in (first..end).zip(frames.iter_mut()) {
            let word = self.pages.word(page);
            let locked = page_word::load(word);
            *frame = locked.frame();
            let token = if page == first { victim.token } else { 0 };
            page_word::unlock(word, PageWord::far(locked.habit().leaving(true), token));
        }
        self.give_frames(frames);
        let f = x.figures;
        let workers = self.control.workers.load(Ordering::Relaxed);
        Figures::add(&self.control.totals.by_count[victim.count as usize], u64::from(pages));
        Figures::add(&f.invalidations, u64::from(workers.saturating_sub(1)));
        Figures::add(&f.evictions_dirty, pages.into());
        Figures::add(&f.bytes_out, BYTES as u64);
        true
    }

    /// Unmaps a huge page, all of which is locked, so that an access to it is a fault; `false` if it has to stay.
    fn unmap_huge(&self, first: u32) -> bool {
        let pages = self.huge.pages() as u64;
        if !matches!(self.far.store.leave_all_in_place(first.into(), pages), Ok(true)) {
            return false;
        }
        let (at, _) = self.places.address_of(first);
        // Where a thread touches it in between, the kernel takes the mapping's rights away, and nothing is lost.
        let gone = unmap::unmap_here(at, BYTES).is_ok() && allow(at, libc::PROT_NONE).is_ok();
        if !gone {
            let _ = allow(at, libc::PROT_READ | libc::PROT_WRITE);
            self.far.store.take_from_place(first.into(), pages);
        }
        gone
    }

    /// Makes single pages of the huge page that has `page`, if it has one, near or far as they are. The caller holds no page's lock.
    ///
    /// # Errors
    /// The kernel has no memory for guards: the huge page stays one.
    pub(super) fn split(&self, page: u32, why: Why) -> Result<(), FaultError> {
        let (first, pages) = (self.huge.first(page), self.huge.pages() as u32);
        let mut wait = Backoff::new();
        while self.huge.is_huge(page) {
            if self.lock_all(first, State::Far) {
                let result = if self.huge.is_huge(page) { self.split_far(first, why) } else { Ok(()) };
                self.unlock_all(first, first + pages, State::Far);
                return result.map_err(FaultError::Kernel);
            }
            if self.lock_all(first, State::Resident) {
                if self.huge.is_huge(page) {
                    self.split_near(first, why);
                }
                self.unlock_all(first, first + pages, State::Resident);
                return Ok(());
            }
            wait.pause();
        }
        Ok(())
    }

    /// The policy has all pages of a huge page that is near from now on, and not the first one alone.
    fn split_near(&self, first: u32, why: Why) {
        let mut room = self.near.room.lock();
        self.drain_logs(&mut room);
        room.policy.split_huge(page_word::load(self.pages.word(first)).frame());
        for page in first + 1..first + self.huge.pages() as u32 {
            let frame = page_word::load(self.pages.word(page)).frame();
            let frames = &self.pages.frames;
            if frames.pinned(frame) {
                frames.set_aside(frame);
            } else {
                room.policy.insert(frame, frames.count(frame));
            }
        }
        self.huge.change(first, |stretch| stretch.split(why));
    }

    /// A guard stands for each page of a far huge page from now on.
    fn split_far(&self, first: u32, why: Why) -> Result<(), Errno> {
        let (at, _) = self.places.address_of(first);
        unmap::advise(at, BYTES, unmap::GUARD as usize)?;
        allow(at, libc::PROT_READ | libc::PROT_WRITE)?;
        self.huge.change(first, |stretch| stretch.split(why));
        Ok(())
    }

    /// Makes single pages for ever of all huge pages that `start..end`, addresses of one stretch of memory, has a part of.
    ///
    /// # Errors
    /// As for [`split`](Self::split).
    pub fn keep_single(&self, start: usize, end: usize) -> Result<(), FaultError> {
        let Some(mut page) = self.page_at(start).filter(|_| self.huge.are_possible && start < end) else {
            return Ok(());
        };
        let last = page + ((end - 1 - (start & !(self.page_bytes() - 1))) >> self.places.shift) as u32;
        while page <= last {
            self.huge.change(page, Stretch::refused);
            self.split(page, Why::Impossible)?;
            page = self.huge.first(page) + self.huge.pages() as u32;
        }
        Ok(())
    }

    /// As [`split`](Self::split), where the program cannot go on without.
    pub(super) fn split_or_end(&self, page: u32) {
        if let Err(e) = self.split(page, Why::PartNeeded) {
            crate::ending::end(e);
        }
    }

    /// Notes that `start..end` is one block of the program's memory, no part of which was touched since it was free.
    pub fn is_one_block(&self, start: usize, end: usize) {
        let (Some(first), true) = (self.page_at(start), self.huge.are_possible) else { return };
        let first = first + ((start.next_multiple_of(BYTES) - start) >> self.places.shift) as u32;
        let count = (end & !(BYTES - 1)).saturating_sub(start.next_multiple_of(BYTES)) >> SHIFT;
        for number in 0..count as u32 {
            self.huge.change(first + (number << self.huge.order), |stretch| stretch.lies_inside(true));
        }
    }

    /// Frees the memory of `count` pages from `page` on, all of them locked. Of a part of a large page the kernel only clears its content
    /// while somebody has a reference to the large page, as a fault of another thread's on the rest has for a moment.
    ///
    /// # Errors
    /// [`FaultError::Lost`] if that lasts: the memory is cleared, and still there.
    pub(super) fn punch_pages(&self, page: u32, count: usize) -> Result<(), FaultError> {
        let may_be_part = [page, page + count as u32 - 1].iter().any(|page| self.huge.may_be_part(*page));
        for (file, offset, len) in
            self.places.files.pieces(self.places.offset(page), (count as u64) << self.places.shift)
        {
            sys::punch_hole(file, offset, len).map_err(FaultError::Kernel)?;
            let mut tries = 0;
            let mut wait = Backoff::new();
            while may_be_part && sys::next_data(file, offset, offset + len).is_some() {
                tries += 1;
                if tries > PUNCHES {
                    return Err(FaultError::Lost(Errno(libc::EBUSY)));
                }
                wait.pause();
                sys::punch_hole(file, offset, len).map_err(FaultError::Lost)?;
            }
        }
        Ok(())
    }

    /// Whether SIGSEGV for an access that a mapping does not allow may have been raised by a far huge page, or one that has come meanwhile. Not where the
    /// page was near each of the last times, too: the program does there what no page of it allows, as to execute it.
    pub fn is_of_huge_page(&self, x: &mut Executor, address: usize) -> bool {
        let Some(page) = self.page_at(address).filter(|page| self.huge.stretch(*page).was_huge()) else {
            return false;
        };
        let is_near = page_word::load(self.pages.word(page)).state() == State::Resident;
        let is_again = is_near && x.denied.0 == address;
        x.denied = (address, if is_again { x.denied.1 + 1 } else { 0 });
        x.denied.1 < DENIALS
    }
}

/// Allows these accesses to a stretch.
fn allow(at: usize, rights: i32) -> Result<(), Errno> {
    // SAFETY: the arena's own memory; who touches it in vain has a fault that the pager resolves.
    unsafe { sys::syscall(libc::SYS_mprotect, [at, BYTES, rights as usize, 0, 0, 0]) }.map(drop)
}
