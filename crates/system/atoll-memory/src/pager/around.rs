//! Mapping the neighbours of a page that is near already, and letting them be written, so that their first uses by this worker cost no
//! fault each.
//!
//! Called by `fault` for 4K pages that another worker or the node's agent brought. What is done ahead here is only a mapping: nothing is
//! fetched and no frame is taken.
//!
//! Rules: no allocation, no locks the program could hold, no arena access, no printing.

use atoll_pages::Event;
use atoll_pages::neighbours;
use atoll_pages::pacing::BLOCK;

use super::executor::Executor;
use super::fault::WINDOW;
use super::page_word::{self, PageWord, State};
use super::{FaultError, Pager};

impl Pager {
    /// Maps the other pages of the block of `page`, as far as they are near and unmapped here: dirty ones writable, clean ones read-only.
    /// The caller holds the lock of `page` and maps it itself.
    ///
    /// A page that was about to leave stays, as its neighbour is in use: what is used is told by blocks, or each page of a block would
    /// cost a fault.
    pub(super) fn map_neighbours(&self, x: &mut Executor, page: u32, table: usize) {
        let block = neighbours::block(page.into());
        let limit = self.places.address_of(page).1;
        let mut run = Run::new();
        for neighbour in (*block.start() as u32..=*block.end() as u32).filter(|&neighbour| neighbour != page)
        {
            let Some((seen, protect)) = self.lock_neighbour(neighbour, table, limit) else { continue };
            if !run.goes_on(neighbour, protect) {
                self.map_run(x, &run, table);
                run = Run { first: neighbour, protect, ..Run::new() };
            }
            run.words[run.count] = seen;
            run.count += 1;
        }
        self.map_run(x, &run, table);
    }

    /// Locks a page that ends before `limit` and is to be mapped in `table`. Returns its word, and whether it is to be mapped read-only.
    fn lock_neighbour(&self, neighbour: u32, table: usize, limit: usize) -> Option<(PageWord, bool)> {
        let word = self.pages.word(neighbour);
        let seen = page_word::load(word);
        if seen.state() != State::Resident || self.places.address_of(neighbour).1 != limit {
            return None;
        }
        // A page's own use is asked for where the question is dear: see `leaving`.
        let stays_out = self.tables.are_shared() && self.pages.frames.leaving(seen.frame());
        if stays_out || self.pages.frames.mapped_by(seen.frame(), table) || !page_word::try_lock(word, seen) {
            return None;
        }
        // Looked at again now that the page is locked.
        let protect = !self.mark_if_writable(neighbour, seen.frame());
        // The memory of a copy that is gone may still be there: see `node_copies`.
        if self.pages.frames.mapped_by(seen.frame(), table) || !self.may(neighbour, !protect) {
            page_word::unlock(word, seen);
            return None;
        }
        Some((seen, protect))
    }

    /// Marks the locked page, in `frame`, as dirty if nothing depends on whether it was written: this node may write it and never evicts.
    /// Returns whether the page is dirty, so that it is mapped writable also where it is only read now.
    pub(super) fn mark_if_writable(&self, page: u32, frame: u32) -> bool {
        let frames = &self.pages.frames;
        if !frames.dirty(frame) && self.writes_are_free() && self.may(page, true) {
            frames.set_dirty(frame);
        }
        frames.dirty(frame)
    }

    /// Whether nothing but the node's right to write it decides on how a page is mapped.
    fn writes_are_free(&self) -> bool {
        self.rights().is_some() && !self.limited() && self.map_around
    }

    /// Lets the locked page be written in `table`, which maps it, and with it the pages behind it that this node may write and
    /// that `table` maps read-only: they have come together, as copies to be read, and are written one after the other.
    pub(super) fn allow_writes_from(&self, page: u32, table: usize) -> Result<(), FaultError> {
        let (at, end) = self.places.address_of(page);
        let most = if self.writes_are_free() { WINDOW.min((end - at) >> self.places.shift) } else { 1 };
        let mut words = [PageWord::ABSENT; WINDOW];
        let mut count = 1;
        while count < most
            && let Some(seen) = self.lock_protected(page + count as u32, table)
        {
            words[count] = seen;
            count += 1;
        }
        let len = count << self.places.shift;
        let result = self.tables.uffd(table).write_protect(at, len, false);
        for (next, &seen) in (page..).zip(&words[..count]).skip(1) {
            if result.is_ok() {
                self.pages.frames.set_dirty(seen.frame());
                self.pages.frames.set_used(seen.frame());
            }
            page_word::unlock(self.pages.word(next), seen);
        }
        result.map_err(FaultError::Kernel)
    }

    /// Locks a page if `table` maps it read-only and this node may write it. Returns its word.
    fn lock_protected(&self, page: u32, table: usize) -> Option<PageWord> {
        let word = self.pages.word(page);
        let seen = page_word::load(word);
        let frames = &self.pages.frames;
        let is_protected =
            |seen: PageWord| frames.mapped_by(seen.frame(), table) && !frames.dirty(seen.frame());
        if seen.state() != State::Resident || !is_protected(seen) || !page_word::try_lock(word, seen) {
            return None;
        }
        if is_protected(seen) && self.may(page, true) {
            return Some(seen);
        }
        page_word::unlock(word, seen);
        None
    }

    /// Maps a run of locked pages and unlocks them.
    fn map_run(&self, x: &mut Executor, run: &Run, table: usize) {
        if run.count == 0 {
            return;
        }
        let (at, len) = (self.places.address_of(run.first).0, run.count << self.places.shift);
        let done = match self.tables.uffd(table).continue_(at, len, run.protect) {
            Ok(()) => len,
            // What is left out is mapped by a fault of its own.
            Err((done, _)) => done,
        };
        for (index, &seen) in run.words[..run.count].iter().enumerate() {
            if index < done >> self.places.shift {
                self.pages.frames.set_used(seen.frame());
                self.pages.frames.add_mapper(seen.frame(), table);
                if self.near.wants.mapped {
                    self.note(x, Event::Mapped(seen.frame(), self.pages.frames.count(seen.frame())));
                }
            }
            page_word::unlock(self.pages.word(run.first + index as u32), seen);
        }
    }
}

/// Neighbouring pages, all locked, that are mapped in the same way.
struct Run {
    first: u32,
    count: usize,
    protect: bool,
    words: [PageWord; BLOCK as usize],
}

impl Run {
    fn new() -> Run {
        Run { first: 0, count: 0, protect: false, words: [PageWord::ABSENT; BLOCK as usize] }
    }

    /// Whether `page` is the next page of the run.
    fn goes_on(&self, page: u32, protect: bool) -> bool {
        self.count > 0 && self.first + self.count as u32 == page && self.protect == protect
    }
}
