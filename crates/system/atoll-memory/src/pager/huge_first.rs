//! First touches that make a huge page at once: of memory that the program walks through from its beginning.
//!
//! Called by `fault` for pages that were never touched. A stretch that lies within one block of the program's memory, none of which was touched, becomes a
//! huge page (`huge`) when the program comes to it from the stretch before, all of which was touched. That takes 160 µs in place of 700 for its 512
//! pages, and nothing is copied later.
//!
//! The kernel makes a huge page of a stretch that has holes (`MADV_COLLAPSE`) only where no userfaultfd asks for missing pages. So the stretch is taken out
//! of ours for a moment. Nobody misses that: all of its pages are locked, and what other threads touch meanwhile is zero, as it has to be.
//!
//! Rules: no allocation, no locks the program could hold, no arena access, no printing.

use atoll_pages::huge::LEAST;
use atoll_pages::pacing::BLOCK;
use atoll_pages::{Event, Habit};

use super::executor::Executor;
use super::huge::{BYTES, COLLAPSE, PAGES};
use super::page_word::{self, PageWord, State};
use super::{FaultError, Pager, unmap};
use crate::control::Figures;
use crate::sys::{self, Errno};

impl Pager {
    /// The first touch of a locked page. If its stretch becomes a huge page, all of it is near then; `None`: the page is to come alone. The
    /// page's lock is given back, unless this is `None`.
    pub(super) fn begin_huge(
        &self,
        x: &mut Executor,
        page: u32,
        table: usize,
    ) -> Option<Result<(), FaultError>> {
        if !self.huge.stretch(page).may_begin_huge() || !self.comes_walking(page) {
            return None;
        }
        page_word::unlock(self.pages.word(page), PageWord::ABSENT);
        let mut frames = [0; PAGES];
        let frames = &mut frames[..self.huge.pages()];
        match self.take_frames(x, frames) {
            Ok(true) => {}
            Ok(false) => {
                // The access comes again, and a page comes alone.
                self.huge.released(page, page + 1);
                return Some(Ok(()));
            }
            Err(e) => return Some(Err(e)),
        }
        let result = self.make_huge(x, self.huge.first(page), frames, table);
        if result != Ok(true) {
            self.give_frames(frames);
            self.huge.released(page, page + 1);
        }
        Some(result.map(drop))
    }

    /// Whether the program comes to the stretch of `page`, which is locked, by a walk, and has touched nothing else of it.
    fn comes_walking(&self, page: u32) -> bool {
        let (first, pages) = (self.huge.first(page), self.huge.pages() as u32);
        let is_absent = |other: u32| {
            let seen = page_word::load(self.pages.word(other));
            other == page || seen == PageWord::ABSENT
        };
        let is_touched = |page: u32| page_word::load(self.pages.word(page)).state() != State::Absent;
        page - first < BLOCK
            && first >= pages
            && self.near_huge_pages() >= LEAST
            && self.huge.has_room()
            && self.lies_in_one(first)
            && self.may_be_huge(first)
            && (first - pages..first).all(is_touched)
            && (first..first + pages).all(is_absent)
            && self.huge.may_touch_first()
    }

    /// Makes a huge page of untouched memory, in `frames`. `Ok(false)`: somebody else works on it, or on what lies behind it.
    fn make_huge(
        &self,
        x: &mut Executor,
        first: u32,
        frames: &[u32],
        table: usize,
    ) -> Result<bool, FaultError> {
        let pages = self.huge.pages() as u32;
        let (at, end) = self.places.address_of(first);
        // The kernel looks at the userfaultfd of what lies behind the stretch, too, in the same file.
        let behind = (end > at + BYTES).then_some(first + pages);
        let seen = match behind.map(|page| self.lock_behind(page)) {
            Some(None) => return Ok(false),
            locked => locked.flatten(),
        };
        let unlock_behind = || {
            if let (Some(page), Some(seen)) = (behind, seen) {
                page_word::unlock(self.pages.word(page), seen);
            }
        };
        if !self.lock_all(first, State::Absent) {
            unlock_behind();
            return Ok(false);
        }
        let len = BYTES + if behind.is_some() { self.page_bytes() } else { 0 };
        let uffd = self.tables.uffd(table);
        // The program may have changed the rights of a part of it since that was looked at.
        if !self.may_be_huge(first) || uffd.unregister(at, len).is_err() {
            self.unlock_all(first, first + pages, State::Absent);
            unlock_behind();
            return Ok(false);
        }
        let made = self.populate_as_one(at);
        self.tables.register(uffd, at, len).map_err(FaultError::Kernel)?;
        let is_one = made.map_err(FaultError::Kernel)?;
        // What another thread touched behind the stretch meanwhile is not known to anybody.
        match (behind, seen) {
            (Some(page), Some(PageWord::ABSENT)) if is_in_file(at + BYTES) => {
                self.enter_touched(x, page, table)?;
            }
            _ => unlock_behind(),
        }
        self.huge.was_tried(first, is_one);
        self.pages.touch_all(first, pages, self.places.shift, &self.control.totals);
        self.enter_huge(x, first, frames, None, table);
        let f = x.figures;
        Figures::add(&f.first_faults, 1);
        Figures::add(&f.prefetched, u64::from(pages) - 1);
        Ok(true)
    }

    /// Locks a page that is taken out of the userfaultfd for a moment; `None` if it may not be.
    fn lock_behind(&self, page: u32) -> Option<PageWord> {
        let word = self.pages.word(page);
        let seen = page_word::load(word);
        if seen.state() == State::Busy || seen.is_covered() || !page_word::try_lock(word, seen) {
            return None;
        }
        // The kernel forgets that the page is write-protected, and writes to it would be missed.
        if seen.state() == State::Resident && !self.pages.frames.dirty(seen.frame()) {
            page_word::unlock(word, seen);
            return None;
        }
        Some(seen)
    }

    /// Fills the stretch at `at`, none of which is in its file, with zeros. Returns whether that is one huge page.
    fn populate_as_one(&self, at: usize) -> Result<bool, Errno> {
        let begin = sys::clock_ns(libc::CLOCK_MONOTONIC);
        // Guards of memory that was far before it was freed are still there. Of a stretch of which nothing is in the file the kernel makes no huge page.
        let is_begun = unmap::advise(at, BYTES, unmap::UNGUARD).is_ok() && populate(at, 4096).is_ok();
        let is_one = is_begun && unmap::advise(at, BYTES, COLLAPSE).is_ok();
        self.huge.first_touch_took(sys::clock_ns(libc::CLOCK_MONOTONIC).saturating_sub(begin));
        if !is_one {
            populate(at, BYTES)?;
        }
        Ok(is_one)
    }

    /// Enters a locked page that was never touched and is in its file all the same, and unlocks it.
    fn enter_touched(&self, x: &mut Executor, page: u32, table: usize) -> Result<(), FaultError> {
        self.make_room(x, 1)?;
        x.cached -= 1;
        let frame = x.cache[x.cached];
        self.pages.frames.fill(frame, page, true, false);
        self.pages.frames.add_mapper(frame, table);
        self.note(x, Event::arrived(frame, true, None));
        self.pages.touch_all(page, 1, self.places.shift, &self.control.totals);
        page_word::unlock(self.pages.word(page), PageWord::resident(frame, Habit::Written));
        Ok(())
    }
}

/// Has the kernel fill what `at..at + len` lacks with zeros.
fn populate(at: usize, len: usize) -> Result<(), Errno> {
    unmap::advise(at, len, libc::MADV_POPULATE_WRITE as usize)
}

/// Whether the 4K at `at` are in the file that is mapped there.
fn is_in_file(at: usize) -> bool {
    let mut is_there = 0_u8;
    let words = [at, 4096, (&raw mut is_there).addr(), 0, 0, 0];
    // SAFETY: the kernel writes one byte, for one page.
    unsafe { sys::syscall(libc::SYS_mincore, words) }.is_ok() && is_there & 1 != 0
}
