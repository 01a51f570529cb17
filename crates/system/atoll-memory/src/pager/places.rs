//! Where pages lie: the arena, and the stretches outside it that are paged too, each address's page and each page's address.
//!
//! Used by all of the pager. A page's number is its offset in the arena's files; pages from the arena's end on are numbers for large
//! globals and other memory that is paged where it lies.
//!
//! Rules: no allocation, no locks, no arena access.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use atoll_pages::huge;

use crate::arena_files::ArenaFiles;
use crate::layout;

/// Paged stretches besides the arena: large globals.
const MAX_RANGES: usize = 512;

/// A stretch of addresses whose pages are paged.
struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
    first_page: AtomicU32,
}

impl Range {
    /// Its first address, its end, its first page.
    fn load(&self) -> (usize, usize, u32) {
        let first_page = self.first_page.load(Ordering::Relaxed);
        (self.start.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed), first_page)
    }
}

/// Addresses of all pages.
pub(super) struct Places {
    /// log2 of a page's bytes.
    pub(super) shift: u32,
    pub(super) files: ArenaFiles,
    ranges: [Range; MAX_RANGES],
    range_count: AtomicUsize,
    /// The stretch in which an address was found last. Others ask for addresses of the same: a library's data, or a thread's stack.
    found: AtomicUsize,
    /// The first page number that is not given out.
    next_page: AtomicU32,
}

impl Places {
    /// The arena alone, in pages of `1 << shift` bytes that lie in `files`.
    pub(super) const fn new(shift: u32, files: ArenaFiles) -> Places {
        Places {
            shift,
            files,
            ranges: [const {
                Range { start: AtomicUsize::new(0), end: AtomicUsize::new(0), first_page: AtomicU32::new(0) }
            }; MAX_RANGES],
            range_count: AtomicUsize::new(0),
            found: AtomicUsize::new(0),
            next_page: AtomicU32::new((layout::ARENA_BYTES >> shift) as u32),
        }
    }

    /// The stretches outside the arena: first address, end, first page.
    fn ranges(&self) -> impl Iterator<Item = (usize, usize, u32)> + '_ {
        // Acquire: pairs with the Release in `publish`, which makes a stretch's fields seen.
        self.ranges[..self.range_count.load(Ordering::Acquire)].iter().map(Range::load)
    }

    /// The stretch outside the arena that holds `address`: first address, end, first page.
    fn range_of(&self, address: usize) -> Option<(usize, usize, u32)> {
        let holds = |&(start, end, _): &(usize, usize, u32)| start <= address && address < end;
        if let Some(range) = self.ranges().nth(self.found.load(Ordering::Relaxed)).filter(holds) {
            return Some(range);
        }
        let (index, range) = self.ranges().enumerate().find(|(_, range)| holds(range))?;
        self.found.store(index, Ordering::Relaxed);
        Some(range)
    }

    /// Bytes of a page.
    #[inline]
    pub(super) fn page_bytes(&self) -> usize {
        1 << self.shift
    }

    /// Bytes of the kernel's pages that a page is made of: one huge page, or 4K pages.
    #[inline]
    pub(super) fn kernel_page(&self) -> usize {
        if self.shift >= 21 { self.page_bytes() } else { 4096 }
    }

    /// Pages of the arena, whose numbers come first.
    fn arena_pages(&self) -> u32 {
        (layout::ARENA_BYTES >> self.shift) as u32
    }

    /// Where in the arena's files `page` lies.
    #[inline]
    pub(super) fn offset(&self, page: u32) -> u64 {
        u64::from(page) << self.shift
    }

    /// The page that holds `address`, if it is paged memory.
    #[inline]
    pub(super) fn page_at(&self, address: usize) -> Option<u32> {
        if layout::in_arena(address) {
            return Some(((address - layout::ARENA) >> self.shift) as u32);
        }
        let (start, _, first_page) = self.range_of(address)?;
        Some(first_page + ((address - start) >> self.shift) as u32)
    }

    /// The part of `start..start + len` that is paged memory and comes first; `None` where no part of it is.
    pub(super) fn first_paged(&self, start: usize, len: usize) -> Option<(usize, usize)> {
        let end = start.checked_add(len)?;
        let arena = (layout::ARENA, layout::ARENA + layout::ARENA_BYTES);
        let holder =
            if layout::in_arena(start) { Some(arena.1) } else { self.range_of(start).map(|range| range.1) };
        if let Some(to) = holder.filter(|_| len > 0) {
            return Some((start, to.min(end)));
        }
        let stretches = std::iter::once(arena).chain(self.ranges().map(|(start, end, _)| (start, end)));
        let parts = stretches.map(|(from, to)| (from.max(start), to.min(end)));
        parts.filter(|(from, to)| from < to).min_by_key(|(from, _)| *from)
    }

    /// Where `page` lies, and the end of the stretch it lies in: one mapping of one file.
    #[inline]
    pub(super) fn address_of(&self, page: u32) -> (usize, usize) {
        let offset = self.offset(page);
        let left = (self.files.stripe_end(offset) - offset) as usize;
        if page < self.arena_pages() {
            let at = layout::ARENA + offset as usize;
            return (at, (at + left).min(layout::ARENA + layout::ARENA_BYTES));
        }
        let in_range = |(start, end, first): (usize, usize, u32)| {
            let pages = ((end - start) >> self.shift) as u32;
            (page.wrapping_sub(first) < pages).then(|| {
                let at = start + (((page - first) as usize) << self.shift);
                (at, end.min(at + left))
            })
        };
        self.ranges().find_map(in_range).unwrap_or((0, 0))
    }

    /// The pages of the stretch of addresses that `page` lies in; none where it is no stretch's.
    pub(super) fn stretch(&self, page: u64) -> Option<RangeInclusive<u64>> {
        let arena_pages = u64::from(self.arena_pages());
        if page < arena_pages {
            return Some(0..=arena_pages - 1);
        }
        self.ranges().find_map(|(start, end, first)| {
            let first = u64::from(first);
            let pages = first..=first + ((end - start) >> self.shift) as u64 - 1;
            pages.contains(&page).then_some(pages)
        })
    }

    /// Calls `each` with the start and the length of every stretch outside the arena, until one fails.
    pub(super) fn try_for_each_range<E>(
        &self,
        mut each: impl FnMut(usize, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        self.ranges().try_for_each(|(start, end, _)| each(start, end - start))
    }

    /// The number that the next `pages` pages, at `start`, would begin with; `None` if there are not so many numbers below `most`, or too
    /// many stretches. It lies in the arena's files as `start` does in memory, so that a huge page of a file can be mapped as one.
    pub(super) fn next(&self, start: usize, pages: u32, most: usize) -> Option<u32> {
        let in_huge_page = |page: usize| (page & ((1 << huge::SHIFT >> self.shift) - 1)) as u32;
        let next = self.next_page.load(Ordering::Relaxed);
        let apart = in_huge_page((start >> self.shift).wrapping_sub(next as usize));
        let first = next.checked_add(apart)?;
        let fits = (first + pages) as usize <= most && self.range_count.load(Ordering::Relaxed) < MAX_RANGES;
        fits.then_some(first)
    }

    /// Numbers below `page` are given out.
    pub(super) fn set_next(&self, page: u32) {
        self.next_page.store(page, Ordering::Relaxed);
    }

    /// Leaves out numbers, so that the last of the next `pages` pages is the last of a stripe. `None` if there are not so many.
    pub(super) fn skip_to_stripe(&self, pages: u32) -> Option<()> {
        let next = self.next_page.load(Ordering::Relaxed);
        let offset = self.offset(next.checked_add(pages)?.checked_sub(1)?);
        let last = (self.files.stripe_end(offset) >> self.shift) as u32;
        self.set_next(last - pages);
        Some(())
    }

    /// Makes `start..end`, whose pages begin with `first_page`, paged. Only one thread calls it.
    pub(super) fn publish(&self, start: usize, end: usize, first_page: u32) {
        let index = self.range_count.load(Ordering::Relaxed);
        let r = &self.ranges[index];
        r.start.store(start, Ordering::Relaxed);
        r.end.store(end, Ordering::Relaxed);
        r.first_page.store(first_page, Ordering::Relaxed);
        // Release: pairs with the Acquire in `ranges`.
        self.range_count.store(index + 1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places {
        Places::new(12, ArenaFiles::one(-1))
    }

    #[test]
    fn stretches_outside_the_arena_have_pages_behind_it() {
        let places = places();
        let first = places.next(0x5000_0000, 16, usize::MAX).unwrap();
        assert_eq!((first as usize) << 12, layout::ARENA_BYTES);
        places.set_next(first + 16);
        assert_eq!(places.page_at(0x5000_0000), None);
        places.publish(0x5000_0000, 0x5001_0000, first);
        assert_eq!(places.page_at(0x5000_3fff), Some(first + 3));
        assert_eq!(places.address_of(first + 3), (0x5000_3000, 0x5001_0000));
        assert_eq!(places.stretch(u64::from(first) + 3), Some(first.into()..=u64::from(first) + 15));
        assert_eq!(places.page_at(0x5001_0000), None);
        assert_eq!(places.address_of(first + 16), (0, 0));
        assert_eq!(places.next(0x6000_0000, 1, first as usize + 16), None);
    }

    #[test]
    fn the_paged_part_that_comes_first_is_found() {
        let places = places();
        places.publish(0x6000_0000, 0x6001_0000, 1 << 31);
        places.publish(0x5000_0000, 0x5001_0000, (1 << 31) + 16);
        assert_eq!(places.first_paged(0x4000_0000, 0x4000_0000), Some((0x5000_0000, 0x5001_0000)));
        assert_eq!(places.first_paged(0x5000_8000, 0x1000), Some((0x5000_8000, 0x5000_9000)));
        assert_eq!(places.first_paged(0x5001_0000, 0x1000), None);
        assert_eq!(places.first_paged(layout::ARENA - 8, 16), Some((layout::ARENA, layout::ARENA + 8)));
        assert_eq!(places.first_paged(usize::MAX - 8, 16), None);
    }

    /// Each look went over all stretches: a program that has read its file number by number, into a stack among 120 stretches, spent a
    /// quarter of its time there.
    #[test]
    fn the_stretch_found_last_is_looked_at_first() {
        let places = places();
        for i in 0..120 {
            places.publish(0x5000_0000 + i * 0x2000, 0x5000_1000 + i * 0x2000, (1 << 31) + i as u32);
        }
        for i in [119, 119, 3, 119, 3, 0] {
            let at = 0x5000_0000 + i * 0x2000;
            assert_eq!(places.page_at(at + 0xfff), Some((1 << 31) + i as u32));
            assert_eq!(places.found.load(Ordering::Relaxed), i);
            assert_eq!(places.page_at(at + 0x1000), None);
            assert_eq!(places.first_paged(at, 0x9000), Some((at, at + 0x1000)));
            assert_eq!(places.first_paged(at, 0), None);
        }
    }
}
