//! Parts of the arena over which the program has another mapping: a file, or memory that it has protected. The pager leaves these alone.
//!
//! Called by whoever maps over the arena. Most of the pager goes by locked pages and touches nothing else. Two things reach farther: a
//! fault makes untouched neighbours along with its page, and `kernel_maps` drops the mappings of whole stretches, which would empty
//! private memory that lies in one. Both look at the page's word, which says that the page is covered before the other mapping is made.
//!
//! A page of which only a part is covered holds other memory of the program's besides. It is pinned until it is freed, as nothing can be
//! done to the whole of it any more. Words of pages of more than 4K say nothing, as the program may uncover a part of such a page: of them
//! no stretch is dropped that has untouched pages in it.
//!
//! Rules: no allocation, no arena access, no printing.

use super::executor::Executor;
use super::fault::Fault;
use super::page_word::{self, PageWord, State};
use super::{FaultError, Pager};
use crate::control::Figures;
use crate::spin::Backoff;
use crate::sys::Errno;

impl Pager {
    /// Pins the pages of which `start..end` is only a part, mapped writable in `table`, whose executor `x` is. This is done before the
    /// range is protected or covered.
    ///
    /// # Errors
    /// As for [`pin`](Self::pin).
    pub fn pin_edges(
        &self,
        x: &mut Executor,
        table: usize,
        start: usize,
        end: usize,
    ) -> Result<(), FaultError> {
        let bytes = self.page_bytes();
        let (first, last) = (start & !(bytes - 1), (end - 1) & !(bytes - 1));
        if first < start || first + bytes > end {
            self.pin(x, table, first, bytes, true)?;
        }
        if last > first && last + bytes > end {
            self.pin(x, table, last, bytes, true)?;
        }
        Ok(())
    }

    /// Calls `map`, which maps something else over `start..end` of the arena, whose pages hold nothing from here on. Whoever touches one
    /// before that is done tries again. The edges are pinned: see [`pin_edges`](Self::pin_edges).
    ///
    /// # Errors
    /// Those of `map`. The pages are the arena's own then, and empty.
    pub fn cover<E>(
        &self,
        start: usize,
        end: usize,
        figures: &Figures,
        map: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        self.release(start, end, figures);
        if self.places.shift == 12 {
            self.each_whole_page(start, end, |page| self.mark_covered(page, figures));
        }
        // Who drops mappings by stretches has this lock, and has looked at the words under it.
        let room = self.near.room.lock();
        let mapped = map();
        drop(room);
        if mapped.is_err() {
            self.uncover(start, end);
        }
        mapped
    }

    /// Makes the word of an empty page say that it is covered. What a fault brought meanwhile goes again.
    fn mark_covered(&self, page: u32, figures: &Figures) {
        let word = self.pages.word(page);
        let mut wait = Backoff::new();
        loop {
            let seen = page_word::load(word);
            match seen.state() {
                State::Absent if seen.is_covered() => return,
                State::Absent => page_word::replace(word, PageWord::ABSENT, PageWord::COVERED),
                State::Busy => wait.pause(),
                State::Resident | State::Far => self.release_batch(page, page + 1, figures),
            }
        }
    }

    /// A fault on a page that is covered. `None`: this page table does not have the other mapping yet, and the page is still the arena's there.
    pub(super) fn touch_covered(
        &self,
        x: &mut Executor,
        page: u32,
        fault: Fault,
    ) -> Option<Result<(), FaultError>> {
        let (at, _) = self.places.address_of(page);
        let uffd = self.tables.uffd(fault.table);
        // There is no page to be mapped. The kernel says so where the arena is, and that nothing is the arena's where it is not.
        let is_there = matches!(uffd.continue_(at, self.page_bytes(), false), Err((_, Errno(libc::ENOENT))));
        if !is_there {
            // The other mapping is made now. In a page table of another process that may take until the next region.
            return self.tables.are_shared().then_some(Ok(()));
        }
        // The fault may have come before the other mapping. Where it comes again it is that one's, as beyond the end of a file.
        if x.covered_at == fault.address {
            return Some(Err(FaultError::NotOurs));
        }
        x.covered_at = fault.address;
        Some(Ok(()))
    }

    /// The arena's own pages are at `start..end` again, and empty.
    pub fn uncover(&self, start: usize, end: usize) {
        self.each_whole_page(start, end, |page| {
            page_word::replace(self.pages.word(page), PageWord::COVERED, PageWord::ABSENT);
        });
    }

    fn each_whole_page(&self, start: usize, end: usize, each: impl Fn(u32)) {
        let bytes = self.page_bytes();
        let (start, end) = (start.next_multiple_of(bytes), end & !(bytes - 1));
        let Some(first) = self.page_at(start).filter(|_| start < end) else { return };
        (first..first + ((end - start) >> self.places.shift) as u32).for_each(each);
    }

    /// The state of a page that is the arena's own as a whole, so that nothing of the program's is lost where its mapping is dropped with
    /// those around it; `None` of others, and of one that somebody works on. The caller holds the room lock, so that no page is covered
    /// meanwhile.
    pub(super) fn state_of_own(&self, page: u32) -> Option<State> {
        let seen = page_word::load(self.pages.word(page));
        let state = seen.state();
        let is_own = match state {
            State::Resident => !self.pages.frames.pinned(seen.frame()),
            State::Far => true,
            State::Absent => self.places.shift == 12 && !seen.is_covered(),
            State::Busy => false,
        };
        is_own.then_some(state)
    }
}
