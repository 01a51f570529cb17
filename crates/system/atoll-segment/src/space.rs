//! Keeps account of which parts of a segment are taken: the break, and anonymous mappings below the stack.
//!
//! Pure bookkeeping of offsets. `calls/memory.rs` drives it and clears what is given up. Together they keep this invariant:
//! what is not taken is zeros.

use std::collections::BTreeMap;

use crate::errno::Errno;

/// The number of bytes of a page in the program's view.
pub(crate) const PAGE: u64 = 4096;

const ENOMEM: Errno = Errno(libc::ENOMEM);
const EINVAL: Errno = Errno(libc::EINVAL);

/// The taken ranges of a segment.
#[derive(Debug, Clone)]
pub struct Space {
    first_break: u64,
    end_break: u64,
    top: u64,
    /// The alignment that large mappings prefer: a huge page's size, or a page's.
    align: u64,
    /// The start and end of each mapping; no two touch.
    taken: BTreeMap<u64, u64>,
}

impl Space {
    /// Makes a space that is free from `first_break` up to `top`, both multiples of pages.
    pub fn new(first_break: u64, top: u64) -> Space {
        Space { first_break, end_break: first_break, top, align: 2 << 20, taken: BTreeMap::new() }
    }

    /// Moves the break to `to` if that is possible; returns the break afterwards and before.
    pub fn set_break(&mut self, to: u64) -> (u64, u64) {
        let before = self.end_break;
        let ceiling = self.taken.first_key_value().map_or(self.top, |(&start, _)| start);
        if to >= self.first_break && to <= ceiling {
            self.end_break = to;
        }
        (self.end_break, before)
    }

    /// Returns the lowest offset that mappings may have.
    fn floor(&self) -> u64 {
        self.end_break.next_multiple_of(PAGE)
    }

    /// Takes `len` bytes as high as they fit.
    ///
    /// # Errors
    /// EINVAL for no bytes; ENOMEM where there is no room.
    pub fn map(&mut self, len: u64) -> Result<u64, Errno> {
        let len = pages(len)?;
        let align = if len >= self.align { self.align } else { PAGE };
        let mut ceiling = self.top;
        for (&start, &end) in self.taken.iter().rev() {
            if let Some(at) = fit(end, ceiling, len, align) {
                return Ok(self.take(at, len));
            }
            ceiling = start;
        }
        let at = fit(self.floor(), ceiling, len, align).or_else(|| fit(self.floor(), ceiling, len, PAGE));
        at.map(|at| self.take(at, len)).ok_or(ENOMEM)
    }

    /// Takes `len` bytes at `at`, whatever is mapped there.
    ///
    /// # Errors
    /// EINVAL where `at` is not a page's offset; ENOMEM outside the range for mappings.
    pub fn map_at(&mut self, at: u64, len: u64) -> Result<(), Errno> {
        let len = pages(len)?;
        if !at.is_multiple_of(PAGE) {
            return Err(EINVAL);
        }
        if at < self.floor() || at.checked_add(len).is_none_or(|end| end > self.top) {
            return Err(ENOMEM);
        }
        self.unmap(at, len)?;
        self.take(at, len);
        Ok(())
    }

    /// Whether the `len` bytes at `at` are free, so that [`Space::map_at`] would replace nothing.
    pub fn is_free(&self, at: u64, len: u64) -> bool {
        let Some(end) = at.checked_add(len) else { return false };
        at >= self.floor() && end <= self.top && self.overlapping(at, end).is_empty()
    }

    /// Gives up every mapping in the `len` bytes at `at`; returns the ranges that were taken.
    ///
    /// # Errors
    /// EINVAL where `at` is not a page's offset, for no bytes, or where the range wraps round.
    pub fn unmap(&mut self, at: u64, len: u64) -> Result<Vec<(u64, u64)>, Errno> {
        let len = pages(len)?;
        let end = at.checked_add(len).filter(|_| at.is_multiple_of(PAGE)).ok_or(EINVAL)?;
        let mut freed = Vec::new();
        for (start, stop) in self.overlapping(at, end) {
            self.taken.remove(&start);
            if start < at {
                self.taken.insert(start, at);
            }
            if stop > end {
                self.taken.insert(end, stop);
            }
            freed.push((start.max(at), stop.min(end)));
        }
        Ok(freed)
    }

    /// Whether all of the `len` bytes at `at` are taken by mappings.
    pub fn is_mapped(&self, at: u64, len: u64) -> bool {
        let Some(end) = at.checked_add(len) else { return false };
        let mut reached = at;
        for (start, stop) in self.overlapping(at, end) {
            if start > reached {
                return false;
            }
            reached = stop;
        }
        reached >= end
    }

    /// Returns the mappings that have bytes in `at..end`, in order.
    fn overlapping(&self, at: u64, end: u64) -> Vec<(u64, u64)> {
        let before = self.taken.range(..=at).next_back().map(|(&s, _)| s).unwrap_or(at);
        self.taken
            .range(before..end.max(before))
            .map(|(&s, &e)| (s, e))
            .filter(|&(s, e)| e > at && s < end)
            .collect()
    }

    /// Notes a free range as taken, and joins it to its neighbours.
    fn take(&mut self, at: u64, len: u64) -> u64 {
        let (mut start, mut end) = (at, at + len);
        if let Some((&before, &stop)) = self.taken.range(..at).next_back()
            && stop == at
        {
            start = before;
        }
        if let Some(stop) = self.taken.remove(&end) {
            end = stop;
        }
        self.taken.insert(start, end);
        at
    }
}

/// Rounds up to pages.
fn pages(len: u64) -> Result<u64, Errno> {
    match len.checked_next_multiple_of(PAGE) {
        Some(0) => Err(EINVAL),
        Some(len) => Ok(len),
        None => Err(ENOMEM),
    }
}

/// Returns the highest place for `len` bytes between `low` and `high`.
fn fit(low: u64, high: u64, len: u64, align: u64) -> Option<u64> {
    let at = high.checked_sub(len)? / align * align;
    (at >= low).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_break_moves_up_to_the_lowest_mapping() {
        let mut space = Space::new(0x10000, 0x100000);
        assert_eq!(space.set_break(0), (0x10000, 0x10000));
        assert_eq!(space.set_break(0x12345), (0x12345, 0x10000));
        assert_eq!(space.map(0x1000).unwrap(), 0xff000);
        assert_eq!(space.set_break(0xff001), (0x12345, 0x12345));
        assert_eq!(space.set_break(0xff000), (0xff000, 0x12345));
        assert_eq!(space.map(1).unwrap_err(), ENOMEM);
        assert_eq!(space.set_break(0xfffff), (0xff000, 0xff000));
    }

    #[test]
    fn a_hole_is_given_up_and_taken_again() {
        let mut space = Space::new(0x10000, 0x100000);
        let at = space.map(0x4000).unwrap();
        assert_eq!(space.unmap(at + 0x1000, 0x1000).unwrap(), [(at + 0x1000, at + 0x2000)]);
        assert!(!space.is_mapped(at, 0x4000) && space.is_mapped(at + 0x2000, 0x2000));
        assert_eq!(space.map(0x1000).unwrap(), at + 0x1000);
        assert!(space.is_mapped(at, 0x4000));
        assert_eq!(space.unmap(at, u64::MAX), Err(ENOMEM));
        assert_eq!(space.unmap(at + 1, 1), Err(EINVAL));
        assert_eq!(space.map_at(0x1000, 0x1000), Err(ENOMEM));
    }

    #[test]
    fn large_mappings_begin_where_huge_pages_do() {
        let mut space = Space::new(0x10000, 0x4000_0000 - 0x5000);
        assert_eq!(space.map(8 << 20).unwrap() % (2 << 20), 0);
    }

    proptest! {
        #[test]
        fn no_page_is_given_twice(steps in prop::collection::vec((0_u8..4, 0_u64..80, 1_u64..40), 1..80)) {
            let (low, top) = (16 * PAGE, 80 * PAGE);
            let mut space = Space::new(low, top);
            let mut pages = [false; 128];
            let mut end = low;
            for (what, at, len) in steps {
                let (at, len) = (at * PAGE, len * PAGE);
                let range = |at: u64| (at / PAGE) as usize..((at + len) / PAGE) as usize;
                match what {
                    0 => if let Ok(at) = space.map(len) {
                        prop_assert!(at >= end && at + len <= top);
                        for page in &mut pages[range(at)] { prop_assert!(!*page); *page = true; }
                    } else {
                        let run = pages[(end / PAGE) as usize..80].split(|&p| p).map(<[bool]>::len).max();
                        prop_assert!(run.unwrap_or(0) < (len / PAGE) as usize);
                    },
                    1 => {
                        let freed: u64 = space.unmap(at, len).unwrap().iter().map(|(s, e)| e - s).sum();
                        let before = pages[range(at)].iter().filter(|&&p| p).count() as u64;
                        prop_assert_eq!(freed, before * PAGE);
                        pages[range(at)].fill(false);
                    }
                    2 => {
                        let free = at >= end && at + len <= top;
                        prop_assert_eq!(space.is_free(at, len), free && !pages[range(at)].contains(&true));
                        prop_assert_eq!(space.map_at(at, len).is_ok(), free);
                        if free { pages[range(at)].fill(true); }
                    }
                    _ => {
                        end = space.set_break(at).0;
                        prop_assert!(end >= low && !pages[..(end / PAGE) as usize].contains(&true));
                    }
                }
            }
        }
    }
}
