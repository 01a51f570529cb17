//! The recently-seen filter: which accesses say nothing new.
//!
//! [`Stream`](crate::Stream) asks it before it tells the collector. It is asked at every access of the program, so hints
//! answer most; the pages themselves leave in the order they came. That order, not the order of use, makes a page in
//! constant use show up again whenever as many others have come as there are places.

/// A page number that no page has.
const NONE: u64 = u64::MAX;
/// Bits of a hint's index. Of a table of one size the compiler knows that no index is outside of it.
const HINT_BITS: u32 = 9;

/// The pages a thread used of late.
#[derive(Debug)]
pub struct Filter {
    /// Twice the page, plus one if it was written, where its number's hash says; or another's, or none.
    hints: [u64; 1 << HINT_BITS],
    /// All pages, likewise, in a ring. Empty: nothing is filtered.
    places: Box<[u64]>,
    /// The oldest.
    next: usize,
}

impl Filter {
    /// A filter of `entries` places; 0: it finds everything new.
    pub fn new(entries: u32) -> Self {
        let places = vec![NONE; entries as usize].into_boxed_slice();
        Self { hints: [NONE; 1 << HINT_BITS], places, next: 0 }
    }

    /// Is the hint enough to say that this access is not new?
    #[inline(always)]
    pub fn is_known(&self, page: u64, write: bool) -> bool {
        // Equal but for the lowest bit: read before, which is enough for a read.
        (self.hints[hint(page)] ^ (page << 1 | 1)) <= u64::from(!write)
    }

    /// Is this access new? A read is not while its page has a place, a write while it has one as written. It then has.
    pub fn is_new(&mut self, page: u64, write: bool) -> bool {
        if self.places.is_empty() {
            return true;
        }
        let wanted = page << 1 | u64::from(write);
        // Without a way out in the middle this is a few vector instructions.
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
    // Multiplicative hashing: strides of powers of two spread too.
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
        // In use or not, the oldest leaves.
        assert!(is_new(&mut filter, 7, false));
        assert!(is_new(&mut filter, 5, false) && !is_new(&mut filter, 9, false));
        filter.clear();
        assert!(is_new(&mut filter, 7, false));
    }

    /// What it answers is what a plain list of the last pages would.
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
