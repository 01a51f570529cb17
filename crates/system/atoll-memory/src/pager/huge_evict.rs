//! How a huge page leaves: nothing is copied, and its mapping allows no access any more.
//!
//! Called by `evict` and `huge_fetch` for victims that stand for huge pages. `huge` says what these are.
//!
//! Rules: no allocation, no locks the program could hold, no arena access, no printing.

use std::sync::atomic::Ordering;

use atoll_pages::Policy;
use atoll_pages::huge::Why;

use super::evict::Victim;
use super::executor::Executor;
use super::huge::{BYTES, PAGES, allow};
use super::page_word::{self, PageWord, State};
use super::{Pager, unmap};
use crate::control::Figures;
use crate::far::FarStore;

impl Pager {
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
}
