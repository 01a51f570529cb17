//! Which parts of paged memory hold anything: what a copy of all of it has to hold.
//!
//! Called by whoever makes such a copy, for a process that the program forks; `page_word` says where a page is.

use super::Pager;
use super::page_word::{self, State};

impl Pager {
    /// The first part of `from..to`, which lies in one stretch of paged memory, that does not read as zeros only because nobody
    /// has used it; `None` if there is none. Other threads may change it meanwhile.
    pub fn next_held(&self, from: usize, to: usize) -> Option<(usize, usize)> {
        let first = self.page_at(from)? as usize;
        let end = self.page_at(to - 1)? as usize + 1;
        let start = from & !(self.page_bytes() - 1);
        let address = |page: usize| (start + ((page - first) << self.places.shift)).clamp(from, to);
        let is_held = |page: usize| page_word::load(self.pages.word(page as u32)).state() != State::Absent;
        let mut page = first;
        while page < end {
            page = self.pages.next_touched(page, end)?;
            let chunk_end = (((page >> 9) + 1) << 9).min(end);
            if let Some(held) = (page..chunk_end).find(|page| is_held(*page)) {
                let last = (held..chunk_end).find(|page| !is_held(*page));
                return Some((address(held), address(last.unwrap_or(chunk_end))));
            }
            page = chunk_end;
        }
        None
    }
}
