//! Pages whose memory a node keeps though others have them now: to make it again costs more than all else that a copy does.
//!
//! `memory` keeps what it takes from workers, and frees what this says.

use std::collections::{HashSet, VecDeque};

/// Pages that were taken, oldest first; some are here again.
pub(crate) struct Kept {
    most: usize,
    order: VecDeque<u32>,
    pages: HashSet<u32>,
}

impl Kept {
    /// `most` pages at most; one at least.
    pub(crate) fn new(most: usize) -> Kept {
        Kept { most: most.max(1), order: VecDeque::new(), pages: HashSet::new() }
    }

    /// `page` is kept. Returns another that is not any more: its memory is to be freed if the page is not here again.
    pub(crate) fn keep(&mut self, page: u32) -> Option<u32> {
        if !self.pages.insert(page) {
            return None;
        }
        let oldest = if self.order.len() < self.most { None } else { self.order.pop_front() };
        if let Some(oldest) = oldest {
            self.pages.remove(&oldest);
        }
        self.order.push_back(page);
        oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let mut kept = Kept::new(2);
        assert_eq!([7, 8, 9, 7].map(|page| kept.keep(page)), [None, None, Some(7), Some(8)]);
    }

    /// Its content was read after that, and was zeros.
    #[test]
    fn a_page_that_was_kept_before_was_freed_as_it_was_taken() {
        let mut kept = Kept::new(2);
        for turn in 0..10 {
            assert_eq!(kept.keep(turn % 2), None);
        }
        let freed = (0..1000).map(|turn| (turn * 7 % 5, kept.keep(turn * 7 % 5)));
        assert!(freed.into_iter().all(|(page, freed)| freed != Some(page)));
    }
}
