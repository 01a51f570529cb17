//! The recently-seen filter: which accesses say nothing new.
//!
//! [`Stream`](crate::Stream) asks it before it tells the collector. It is asked at every access of the program, so a hint a
//! page answers most; the pages themselves leave in the order they came. That order, not the order of use, makes a page in
//! constant use show up again whenever as many others have come as there are places.

/// A page number that no page has.
const NONE: u64 = u64::MAX;
/// Hints for each place: more of them collide less.
const HINTS: usize = 4;

/// The pages a thread used of late.
#[derive(Debug)]
pub struct Filter {
    /// Twice the page, plus one if it was written, where its number's hash says; or another's, or none.
    hints: Box<[u64]>,
    /// Bits to shift a hash by to get a hint's index.
    shift: u32,
    /// All pages, likewise, in a ring.
    places: Box<[u64]>,
    /// The oldest.
    next: usize,
}

impl Filter {
    /// A filter of `entries` places, at least one.
    pub fn new(entries: u32) -> Self {
        let entries = entries.max(1) as usize;
        let hints = (entries * HINTS).next_power_of_two();
        Self {
            hints: vec![NONE; hints].into_boxed_slice(),
            shift: 64 - hints.trailing_zeros(),
            places: vec![NONE; entries].into_boxed_slice(),
            next: 0,
        }
    }

    /// Is this access new? A read is not while its page has a place, a write while it has one as written.
    #[inline]
    pub fn is_new(&mut self, page: u64, write: bool) -> bool {
        let hint = self.hint(page);
        let (read, written) = (page << 1, page << 1 | 1);
        let found = self.hints[hint];
        if found == written || (found == read && !write) {
            return false;
        }
        self.look(hint, read, write)
    }

    #[inline]
    fn hint(&self, page: u64) -> usize {
        // Multiplicative hashing: strides of powers of two spread too.
        (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    /// The answer where the hint has none.
    #[inline(never)]
    fn look(&mut self, hint: usize, read: u64, write: bool) -> bool {
        let wanted = read | u64::from(write);
        // Without a way out in the middle this is a few vector instructions.
        let mut place = usize::MAX;
        for (at, &held) in self.places.iter().enumerate() {
            if held | 1 == read | 1 {
                place = at;
            }
        }
        if place != usize::MAX {
            let held = self.places[place];
            self.places[place] = held | wanted;
            self.hints[hint] = held | wanted;
            return held | wanted != held;
        }
        let oldest = std::mem::replace(&mut self.places[self.next], wanted);
        self.next = if self.next + 1 == self.places.len() { 0 } else { self.next + 1 };
        if oldest != NONE {
            let stale = self.hint(oldest >> 1);
            if self.hints[stale] | 1 == oldest | 1 {
                self.hints[stale] = NONE;
            }
        }
        self.hints[hint] = wanted;
        true
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.hints.fill(NONE);
        self.places.fill(NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_new_until_seen_and_again_once_written_or_pushed_out() {
        let mut filter = Filter::new(3);
        assert!(filter.is_new(5, false));
        assert!(!filter.is_new(5, false));
        assert!(filter.is_new(5, true));
        assert!(!filter.is_new(5, true) && !filter.is_new(5, false));
        assert!(filter.is_new(6, false) && filter.is_new(9, false));
        assert!(!filter.is_new(5, false) && !filter.is_new(6, false));
        // In use or not, the oldest leaves.
        assert!(filter.is_new(7, false));
        assert!(filter.is_new(5, false) && !filter.is_new(9, false));
        filter.clear();
        assert!(filter.is_new(7, false));
    }

    /// What it answers is what a plain list of the last pages would.
    #[test]
    fn hints_change_no_answer() {
        for entries in [1u32, 2, 7, 64] {
            let mut filter = Filter::new(entries);
            let mut list: Vec<(u64, bool)> = Vec::new();
            let mut random = 1u64;
            for _ in 0..20_000 {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let (page, write) = (((random >> 33) % (3 * u64::from(entries))) << 8, random >> 63 == 1);
                let expected = match list.iter_mut().find(|(held, _)| *held == page) {
                    Some((_, written)) => {
                        let new = write && !*written;
                        *written |= write;
                        new
                    }
                    None => {
                        if list.len() == entries as usize {
                            list.remove(0);
                        }
                        list.push((page, write));
                        true
                    }
                };
                assert_eq!(filter.is_new(page, write), expected);
            }
        }
    }
}
