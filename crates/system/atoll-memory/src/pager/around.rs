//! Mapping the neighbours of a page that is near already, so that their first uses by this worker cost no fault each.
//!
//! Called by `fault` for 4K pages that another worker brought. What is done ahead here is only a mapping: nothing is
//! fetched and no frame is taken.
//!
//! Rules: no allocation, no locks the program could hold, no arena access, no printing.

use atoll_pages::Event;
use atoll_pages::neighbours::{self, Around};
use atoll_pages::pacing::BLOCK;

use super::Pager;
use super::executor::Executor;
use super::page_word::{self, PageWord, State};

impl Pager {
    /// Maps the pages on both sides of `page` in its block, as far as they are near, unmapped here, and in the same
    /// way clean or dirty. The caller holds the lock of `page` and maps it itself.
    pub(super) fn map_neighbours(&self, x: &mut Executor, page: u32, table: usize, protect: bool) {
        let first = *neighbours::block(page.into()).start() as u32;
        let limit = self.places.address_of(page).1;
        let mut words = [PageWord::ABSENT; BLOCK as usize];
        let mut lock = |neighbour: u32| -> bool {
            let word = self.pages.word(neighbour);
            let seen = page_word::load(word);
            if seen.state() != State::Resident || self.places.address_of(neighbour).1 != limit {
                return false;
            }
            if !page_word::try_lock(word, seen) {
                return false;
            }
            let frame = seen.frame();
            // The memory of a copy that is gone may still be there: see `node_copies`.
            let others = self.pages.frames.dirty(frame) == protect || !self.may(neighbour, !protect);
            // To map what is about to leave would pass for a use of it.
            if self.pages.frames.mapped_by(frame, table) || self.pages.frames.leaving(frame) || others {
                page_word::unlock(word, seen);
                return false;
            }
            words[(neighbour - first) as usize] = seen;
            true
        };
        let Around { below, above } = neighbours::walk(page.into(), |neighbour| lock(neighbour as u32));
        let (below, above) = (below as u32, above as u32);
        for (from, count) in [(page + 1, above), (page - below, below)] {
            if count == 0 {
                continue;
            }
            let (at, len) = (self.places.address_of(from).0, (count as usize) << self.places.shift);
            let done = match self.tables.uffd(table).continue_(at, len, protect) {
                Ok(()) => len,
                // What is left out is mapped by a fault of its own.
                Err((done, _)) => done,
            };
            for p in from..from + count {
                let seen = words[(p - first) as usize];
                if ((p - from) as usize) < done >> self.places.shift {
                    self.pages.frames.add_mapper(seen.frame(), table);
                    if self.near.wants.mapped {
                        self.note(x, Event::Mapped(seen.frame(), self.pages.frames.count(seen.frame())));
                    }
                }
                page_word::unlock(self.pages.word(p), seen);
            }
        }
    }
}
