//! Which parts of the arena hold anything: what a copy of the whole of it has to hold.
//!
//! Called by whoever makes such a copy, for a process that the program forks; `page_word` says where a page is.

use super::Pager;
use super::page_word::{self, State};
use crate::layout;

impl Pager {
    /// The first stretch of whole pages at or behind `from`, in the arena, that does not read as zeros only because nobody has
    /// used it; `None` if there is none. Other threads may change it meanwhile.
    pub fn next_held(&self, from: usize) -> Option<(usize, usize)> {
        let end = self.page_at(layout::ARENA + layout::ARENA_BYTES - 1)? as usize + 1;
        let mut page = self.page_at(from)? as usize;
        loop {
            page = self.pages.next_touched(page, end)?;
            let chunk_end = ((page >> 9) + 1) << 9;
            let is_held =
                |page: usize| page_word::load(self.pages.word(page as u32)).state() != State::Absent;
            if let Some(first) = (page..chunk_end.min(end)).find(|page| is_held(*page)) {
                let last = (first..chunk_end.min(end)).find(|page| !is_held(*page));
                let address = |page: usize| layout::ARENA + (page << self.places.shift);
                return Some((address(first), address(last.unwrap_or(chunk_end.min(end)))));
            }
            page = chunk_end;
        }
    }
}
