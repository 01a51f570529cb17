//! The filter of recently seen pages, which finds accesses that say nothing new.
//!
//! [`Stream`](crate::Stream) asks it before sending an access to the collector. It is asked at every access of the program, so
//! hints answer most questions. The pages themselves leave in the order in which they came. That order, not the order of use,
//! makes a page in constant use show up again whenever as many other pages have come as there are places.

/// A page number that no page has, for an empty place.
const NONE: u64 = u64::MAX;
/// The number of bits of a hint's index. The table has one size, so the compiler knows that no index is outside of it.
const HINT_BITS: u32 = 9;

/// The pages that a thread used recently.
#[derive(Debug)]
pub struct Filter {
    /// At the hash of a page's number: twice the page, plus one if it was written. It may be another page's, or empty.
    hints: [u64; 1 << HINT_BITS],
    /// All pages, in the same form, in a ring. If it is empty, nothing is filtered.
    places: Box<[u64]>,
    /// The index of the oldest place.
    next: usize,
}

impl Filter {
    /// Makes a filter of `entries` places; with 0 it finds everything new.
    pub fn new(entries: u32) -> Self {
        let places = vec![NONE; entries as usize].into_boxed_slice();
        Self { hints: [NONE; 1 << HINT_BITS], places, next: 0 }
    }

    /// Whether the hint is enough to say that this access is not new.
    #[inline(always)]
    pub fn is_known(&self, page: u64, write: bool) -> bool {
        // The two are equal except for the lowest bit: the page was read before, which is enough for a read.
        (self.hints[hint(page)] ^ (page << 1 | 1)) <= u64::from(!write)
    }

    /// Whether this access is new. A read is not new while its page has a place, and a write while its page has one as written.
    /// Afterwards the page has a place.
    pub fn is_new(&mut self, page: u64, write: bool) -> bool {
        if self.places.is_empty() {
            return true;
        }
        let wanted = page << 1 | u64::from(write);
        // Without an early exit this loop is a few vector instructions.
        let mut place = usize::MAX;
        for (at, &held) in self.places.iter().enumerate() {
            if held | 1 == wanted | 1 {
                place = at;
            }
        }
        if place != usize::MAX {
            let held = self.places[place];
            self.places[place] = held | wanted;
            self.hints[hint(page)] = held | wanted;
            return held | wanted != held;
        }
        let oldest = std::mem::replace(&mut self.places[self.next], wanted);
        self.next = if self.next + 1 == self.places.len() { 0 } else { self.next + 1 };
        if oldest != NONE {
            let stale = &mut self.hints[hint(oldest >> 1)];
            if *stale | 1 == oldest | 1 {
                *stale = NONE;
            }
        }
        self.hints[hint(page)] = wanted;
        true
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.hints.fill(NONE);
        self.places.fill(NONE);
    }
}

#[inline(always)]
fn hint(page: u64) -> usize {
    // Multiplicative hashing spreads strides of powers of two, too.
    (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - HINT_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_new(filter: &mut Filter, page: u64, write: bool) -> bool {
        !filter.is_known(page, write) && filter.is_new(page, write)
    }

    #[test]
    fn a_page_is_new_until_seen_and_again_once_written_or_pushed_out() {
        let mut filter = Filter::new(3);
        assert!(is_new(&mut filter, 5, false));
        assert!(!is_new(&mut filter, 5, false));
        assert!(is_new(&mut filter, 5, true));
        assert!(!is_new(&mut filter, 5, true) && !is_new(&mut filter, 5, false));
        assert!(is_new(&mut filter, 6, false) && is_new(&mut filter, 9, false));
        assert!(!is_new(&mut filter, 5, false) && !is_new(&mut filter, 6, false));
        // The oldest leaves, whether it is in use or not.
        assert!(is_new(&mut filter, 7, false));
        assert!(is_new(&mut filter, 5, false) && !is_new(&mut filter, 9, false));
        filter.clear();
        assert!(is_new(&mut filter, 7, false));
    }

    /// The filter's answers are those of a plain list of the last pages.
    #[test]
    fn hints_change_no_answer() {
        for entries in [1u32, 2, 7, 64, 700] {
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
                assert_eq!(is_new(&mut filter, page, write), expected);
            }
        }
    }
}
