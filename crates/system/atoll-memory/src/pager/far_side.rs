//! Far memory as the pager sees it: the store, and in which way pages come and go there.
//!
//! `fault` loads from it, `copy_out` stores to it, `release` discards; `far` has the stores.

use super::Pager;
use super::executor::Executor;
use super::in_place::InPlace;
use super::page_word::{self, PageWord, State};
use super::probe::Probe;
use crate::control::{MAX_THREADS, MAX_WORKERS};
use crate::far::{Access, AnyFar, FarError, FarStore, Lane, Transfer};

/// The time between two looks whether a lender wants memory back, in nanoseconds.
const LOOK_NS: i64 = 50_000_000;

/// Pages at most that are moved within far memory at a time.
const MOVED: usize = 16;

/// Far memory of a run.
pub(super) struct FarSide {
    pub(super) store: AnyFar,
    /// Tries now and then how well pages that leave would compress.
    pub(super) probe: Probe,
    /// Whether pages may stay where they lie.
    pub(super) in_place: InPlace,
}

impl FarSide {
    pub(super) fn new(store: AnyFar, probe: Probe, in_place: InPlace) -> FarSide {
        FarSide { store, probe, in_place }
    }

    /// Whether the far page stayed where it lies.
    #[inline]
    pub(super) fn is_in_place(&self, page: u32) -> bool {
        self.in_place != InPlace::Never && self.store.is_in_place(page.into())
    }

    /// Where the content of neighbouring pages is to be copied: their places in far memory, if all of them are to lie there plainly,
    /// which count as held from now on; else `scratch`.
    pub(super) fn destination(
        &self,
        lane: &Lane,
        pages: std::ops::RangeInclusive<u32>,
        scratch: *mut u8,
    ) -> Result<*mut u8, FarError> {
        let mut to = scratch;
        // What is to lie plainly stays where it lies, or goes back there.
        if self.in_place != InPlace::Never {
            return Ok(scratch);
        }
        // Places of neighbours lie one after the other; the first page's place is asked for last.
        for page in pages.rev() {
            match self.store.direct(lane, page.into(), Access::Store)? {
                Some(at) => to = at,
                None => return Ok(scratch),
            }
        }
        Ok(to)
    }
}

impl Pager {
    /// Moves some far pages: closer together in compressed memory, or from there to the store behind it, where they take too much of near
    /// memory.
    pub(super) fn move_some(&self, x: &mut Executor) {
        let mut pages = [Transfer::NONE; MOVED];
        let mut words = [PageWord::ABSENT; MOVED];
        let mut count = 0;
        for _ in 0..MOVED.min(self.scratch_pages(x)) {
            let Some(page) = self.far.store.next_to_move() else { break };
            let word = self.pages.word(page as u32);
            let seen = page_word::load(word);
            if seen.state() == State::Far && page_word::try_lock(word, seen) {
                // SAFETY: the scratch memory holds so many pages, and is in use for nothing else meanwhile.
                let memory = unsafe { x.scratch.add(count << self.places.shift) };
                (pages[count], words[count]) = (Transfer { page, memory }, seen);
                count += 1;
            }
        }
        if count > 0 {
            self.far.store.move_pages(&mut x.lane, &pages[..count]);
        }
        for (transfer, seen) in pages.iter().zip(words).take(count) {
            page_word::unlock(self.pages.word(transfer.page as u32), seen);
        }
    }

    /// Whether pages may lie in memory that lenders want back.
    pub fn borrows(&self) -> bool {
        self.far.store.borrows()
    }

    /// Gives lenders back what they want to have, for ever. One thread of the run does this, which touches no arena memory.
    ///
    /// # Errors
    /// [`FarError`] if another thread does it already.
    pub fn give_back_to_lenders(&self) -> Result<std::convert::Infallible, FarError> {
        // The lane behind those of all executors.
        let mut lane = self.far.store.lane((MAX_WORKERS + MAX_THREADS) as u32)?;
        lane.attach()?;
        loop {
            if !self.far.store.give_back(&mut lane) {
                crate::sys::sleep_ns(LOOK_NS);
            }
        }
    }
}
