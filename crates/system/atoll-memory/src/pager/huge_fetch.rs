//! How a huge page comes: all of it by one fault, once its stretch is one, or becomes one.
//!
//! Called by `fault` for far pages. `huge` says what a huge page is; `huge_evict` makes room for one where the policy gives up another.
//!
//! Rules: no allocation, no locks the program could hold, no arena access, no printing.

use std::sync::atomic::Ordering;

use atoll_pages::huge::{LEAST, Stretch, Why};
use atoll_pages::pacing;

use super::evict::{NO_VICTIM, VICTIMS};
use super::executor::Executor;
use super::huge::{BYTES, COLLAPSE, PAGES, allow};
use super::page_word::{self, PageWord, State};
use super::{FaultError, Pager, unmap};
use crate::control::Figures;
use crate::far::FarStore;
use crate::sys;

/// Batches of victims for which a huge page waits at most before single pages are fetched instead.
const BATCHES: u32 = 64;

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
        if !self.huge.are_possible {
            return None;
        }
        let joins = !self.huge.is_huge(page);
        if joins && !self.begins_round(page) {
            return None;
        }
        page_word::unlock(self.pages.word(page), seen);
        if !joins && x.pace.comes(sys::clock_ns(libc::CLOCK_MONOTONIC), self.near_huge_pages()) {
            return Some(self.split(page, Why::LittleUsed));
        }
        if !joins && self.huge.touched(page).is_to_be_looked_at() {
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
        before.begins(pages).1
            && self.near_huge_pages() >= LEAST
            && self.huge.has_room()
            && self.lies_in_one(first)
            && self.may_be_huge(first)
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
            && (!joins || self.may_be_huge(first) && self.far.store.are_in_place(first.into(), pages.into()));
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
        if !stretch.pays_as_one(before) || !self.huge.may_try() {
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
        self.huge.was_tried(first, is_one);
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
                    return Ok(true);
                }
                self.near.full.store(true, Ordering::Relaxed);
                let want = pacing::victims(VICTIMS, 0, x.cached);
                let count = self.choose(&mut room, x, &mut victims[..want], target);
                (count, room.leaving.huge.take())
            };
            let had = x.cached;
            let (result, huge_left) = self.evict_chosen(x, &mut victims[..count], huge);
            // Packing may have used some that the worker had.
            let had = had.min(x.cached);
            let have_left = x.cached > had;
            self.give_frames(&x.cache[had..x.cached]);
            x.cached = had;
            result?;
            idle = if have_left || huge_left { 0 } else { idle + 1 };
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
}
