//! Huge pages that become single pages again, and memory of theirs that is freed in part.
//!
//! Called by whoever needs a part of a huge page alone: `release`, `in_place` where pages are packed, the program's own changes of rights. `huge` says what
//! huge pages are.
//!
//! Rules: no allocation, no locks the program could hold, no arena access, no printing.

use std::sync::atomic::Ordering;

use atoll_pages::Policy;
use atoll_pages::huge::{SHIFT, Stretch, Why};

use super::huge::{BYTES, PAGES, allow};
use super::page_word::{self, State};
use super::{FaultError, Pager, unmap};
use crate::far::FarStore;
use crate::spin::Backoff;
use crate::sys::{self, Errno};

/// Tries to free a part of a large page: some seconds.
const PUNCHES: u32 = 1_000_000;

impl Pager {
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
        self.huge.became_single(first, why);
    }

    /// A guard stands for each page of a far huge page from now on.
    fn split_far(&self, first: u32, why: Why) -> Result<(), Errno> {
        let (at, _) = self.places.address_of(first);
        unmap::advise(at, BYTES, unmap::GUARD as usize)?;
        allow(at, libc::PROT_READ | libc::PROT_WRITE)?;
        self.huge.became_single(first, why);
        Ok(())
    }

    /// Makes single pages for ever of all huge pages that `start..end`, addresses of one stretch of memory, has a part of.
    ///
    /// # Errors
    /// The kernel has no memory for guards: one of them stays huge.
    pub fn keep_single(&self, start: usize, end: usize) -> Result<(), FaultError> {
        let Some(mut page) = self.page_at(start).filter(|_| self.huge.are_possible && start < end) else {
            return Ok(());
        };
        let last = self.last_of(page, start, end);
        while page <= last {
            self.huge.change(page, Stretch::refused);
            self.pass_lock(self.huge.first(page));
            self.split(page, Why::Impossible)?;
            page = self.huge.first(page) + self.huge.pages() as u32;
        }
        Ok(())
    }

    /// Makes single pages of all huge pages that `start..end`, addresses of one stretch of memory, has a part of, and that may be none from now on, as the
    /// program has changed the rights of a part (`protections`). They may be huge again once all of it is usual.
    ///
    /// # Errors
    /// As for [`keep_single`](Self::keep_single).
    pub fn make_single(&self, start: usize, end: usize) -> Result<(), FaultError> {
        let Some(mut page) = self.page_at(start).filter(|_| self.huge.are_possible && start < end) else {
            return Ok(());
        };
        let (last, pages) = (self.last_of(page, start, end), self.huge.pages() as u32);
        while page <= last {
            let first = self.huge.first(page);
            // A first touch makes a huge page only where the program comes from the stretch before. Of memory that was never touched there is nothing to be
            // looked at, which would take memory itself.
            let is_near_touched = [first, first.saturating_sub(pages)]
                .iter()
                .any(|page| self.pages.is_touched_around(*page as usize));
            if is_near_touched {
                self.pass_lock(first);
                self.split(page, Why::PartNeeded)?;
            }
            page = first + pages;
        }
        Ok(())
    }

    /// Whether the stretch that begins with page `first` may be a huge page: the program has changed the rights of no part of it.
    pub(super) fn may_be_huge(&self, first: u32) -> bool {
        let (at, _) = self.places.address_of(first);
        !self.huge.stretch(first).is_refused() && self.first_unusual(at, at + BYTES).is_none()
    }

    /// Takes the lock of `page` for a moment: who has it now is done then, and who takes it later knows what the caller has changed.
    fn pass_lock(&self, page: u32) {
        let word = self.pages.word(page);
        let mut wait = Backoff::new();
        loop {
            let seen = page_word::load(word);
            if seen.state() != State::Busy && page_word::try_lock(word, seen) {
                return page_word::unlock(word, seen);
            }
            wait.pause();
        }
    }

    /// Frees a huge page as a whole, near or far. `false` if `first` is not the first page of one, or a part of it is in use.
    pub(super) fn release_huge(&self, first: u32) -> bool {
        let pages = self.huge.pages() as u32;
        if !self.huge.is_huge(first) || self.huge.first(first) != first {
            return false;
        }
        let Some(state) =
            [State::Resident, State::Far].into_iter().find(|&state| self.lock_all(first, state))
        else {
            return false;
        };
        let mut frames = [0; PAGES];
        let frames = &mut frames[..pages as usize];
        if state == State::Resident {
            for (page, frame) in (first..).zip(frames.iter_mut()) {
                *frame = page_word::load(self.pages.word(page)).frame();
            }
        }
        let is_in_use =
            state == State::Resident && frames.iter().any(|frame| self.pages.frames.pinned(*frame));
        let (at, _) = self.places.address_of(first);
        let usual = libc::PROT_READ | libc::PROT_WRITE;
        // What is touched from here on waits for the page's lock, once the hole is punched.
        if !self.huge.is_huge(first) || is_in_use || state == State::Far && allow(at, usual).is_err() {
            self.unlock_all(first, first + pages, state);
            return false;
        }
        self.punch_or_end(first, pages as usize);
        self.far.store.discard(first.into(), pages.into());
        if state == State::Resident {
            let mut room = self.near.room.lock();
            self.drain_logs(&mut room);
            room.policy.remove(frames[0]);
            drop(room);
            self.give_frames(frames);
        }
        self.huge.became_single(first, Why::PartNeeded);
        self.huge.change(first, |stretch| stretch.lies_inside(false));
        self.control.totals.touched_bytes.fetch_sub(BYTES as u64, Ordering::Relaxed);
        self.unlock_all(first, first + pages, State::Absent);
        true
    }

    /// As [`split`](Self::split), where the program cannot go on without.
    pub(super) fn split_or_end(&self, page: u32) {
        if let Err(e) = self.split(page, Why::PartNeeded) {
            crate::ending::end(e);
        }
    }

    /// Notes that `start..end` is one block of the program's memory, no part of which was touched since it was free. A stretch with which it begins stays
    /// out: what lies before is another block, and a program may touch little of a new one.
    pub fn is_one_block(&self, start: usize, end: usize) {
        let (Some(first), true) = (self.page_at(start), self.huge.are_possible) else { return };
        let from = (start + 1).next_multiple_of(BYTES);
        let first = first + ((from - start) >> self.places.shift) as u32;
        let count = (end & !(BYTES - 1)).saturating_sub(from) >> SHIFT;
        for number in 0..count as u32 {
            self.huge.change(first + (number << self.huge.order), |stretch| stretch.lies_inside(true));
        }
    }

    /// Frees what was put into `start..end`, whole pages of one stretch, before faults on them are served. The pager knows of no memory there,
    /// and the kernel would refuse to map any beside it.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn empty(&self, start: usize, end: usize) -> Result<(), Errno> {
        let Some(page) = self.page_at(start) else { return Ok(()) };
        for (file, offset, len) in self.places.files.pieces(self.places.offset(page), (end - start) as u64) {
            sys::punch_hole(file, offset, len)?;
        }
        Ok(())
    }

    /// As [`punch_pages`](Self::punch_pages), of memory that the program has freed.
    pub(super) fn punch_or_end(&self, page: u32, count: usize) {
        // The kernel refuses no hole.
        if let Err(e @ FaultError::Lost(_)) = self.punch_pages(page, count) {
            crate::ending::end(e);
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
}
