//! Which stretches of 2 MiB come and leave as one huge page: those that the program walks through from end to end.
//!
//! `atoll-memory` keeps a word for each stretch (`pager/huge`), where threads share a page table and far pages stay where they lie. A stretch that
//! comes and leaves as a whole costs half of what its pages cost alone. Once its memory is one huge page, which the kernel makes by a copy, it
//! is mapped and unmapped by one entry of the page table, for as much time as a page of 4K takes. But it takes 2 MiB of near memory at each touch. So
//! a stretch becomes one only after all of its pages have come ahead of a walk, and is single pages again as soon as the program comes to huge
//! pages faster than it can have used them.

/// log2 of a huge page's bytes.
pub const SHIFT: u32 = 21;

/// Huge pages that near memory must have room for, for each worker, before any stretch becomes one: a worker walks through several arrays at
/// once.
pub const LEAST: u32 = 7;

/// The nanoseconds that somebody needs at least who uses a huge page as a whole: half of what reading 2 MiB takes at 10 GB/s.
const USE_NS: u64 = 100_000;

/// Huge pages at most that a worker may touch at once, as walks through arrays of equal sizes do, before it is taken to use little of each.
const MOST_AT_ONCE: u32 = 64;

/// One part in so many of a huge page is where a walk comes to it: its first pages, or its last ones.
const EDGE: u32 = 32;

/// Nanoseconds that one huge page saves each time it comes and leaves: what mapping and unmapping 512 pages of 4K takes.
const SAVED_NS: u64 = 250_000;

const HUGE: u64 = 1;
const WAS_HUGE: u64 = 2;
const REFUSED: u64 = 4;
const ONE: u64 = 8;
const NEVER_ONE: u64 = 16;
const LOOKED_AT: u64 = 32;
const INSIDE: u64 = 64;

/// A number in a word: its first bit, and the most that it says.
#[derive(Clone, Copy)]
struct Field(u32, u64);

const FAULTS: Field = Field(7, 0x3f);
/// In the place of faults, which a huge page has none of.
const STRAYS: Field = FAULTS;
const PAGES: Field = Field(13, 0x7ff);
const PARTS: Field = Field(24, 0xffff);
const COUNT: Field = Field(40, 0xffff);
const PATIENCE: Field = Field(56, 7);
const TRIPS: Field = Field(59, 31);
/// log2 of the walks through a stretch at most before it is huge again.
const MOST_PATIENCE: u64 = PATIENCE.1;

/// What is known of one stretch, in 64 bits. Zero: nothing.
///
/// Bits 0–6: whether it comes and leaves as a whole, whether it ever did, whether it never may, whether its memory is one huge page of the kernel's,
/// whether the kernel could not make it one, whether it is single pages for a round to see how it is used, whether it lies within one block of memory; 7–12:
/// faults of this walk, or of a huge page the trips in a row that did not begin at an edge of it; 13–23 and 24–39: the pages that these faults brought, and
/// the sixteenths of the stretch that these are of; 40–55: walks in a row, or of a huge page the number of its coming; 56–58: log2 of the walks after which
/// it becomes huge; 59–63: how often it came as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stretch(pub u64);

/// Why a huge page becomes single pages again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// A part of the stretch is freed or needed alone. The rest may become huge again as before.
    PartNeeded,
    /// The program uses too little of it.
    LittleUsed,
    /// To see how much of it is used.
    Look,
    /// The program must not have it so.
    Impossible,
}

impl Stretch {
    /// Whether the stretch comes and leaves as a whole now.
    #[inline]
    pub fn is_huge(self) -> bool {
        self.0 & HUGE != 0
    }

    /// Whether the stretch is one or ever was.
    #[inline]
    pub fn was_huge(self) -> bool {
        self.0 & WAS_HUGE != 0
    }

    fn count(self, Field(shift, most): Field) -> u64 {
        self.0 >> shift & most
    }

    fn with(self, Field(shift, most): Field, count: u64) -> Stretch {
        Stretch(self.0 & !(most << shift) | count.min(most) << shift)
    }

    /// A fault brought `count` of its `pages` single pages, from `first` to `last`.
    #[must_use]
    pub fn fetched(self, first: u32, last: u32, count: u32, pages: u32) -> Stretch {
        let part = |page: u32| page.min(pages - 1) * 16 / pages;
        let parts = (part(first)..=part(last)).fold(0, |parts, part| parts | 1 << part);
        // A walk along a column leaves most of what lies between its pages alone.
        let faults = if count * 2 > last - first { 1 } else { FAULTS.1 };
        self.with(FAULTS, self.count(FAULTS) + faults)
            .with(PAGES, self.count(PAGES) + u64::from(count))
            .with(PARTS, self.count(PARTS) | parts)
    }

    /// All of its pages, `pages` of them, are far, and one is touched. Says whether the stretch is to come as one huge page.
    ///
    /// That may be in the midst of a walk: a policy that knows when pages are used next gives up first what was just used, and its neighbours with it.
    #[must_use]
    pub fn begins(self, pages: u32) -> (Stretch, bool) {
        // A window of pages ahead of a walk grows to 64; where a fault brings sixteen on average, hardly one came for itself.
        let brought = self.count(PAGES);
        let are_visits = self.count(FAULTS) > u64::from(pages / 16).max(2);
        if are_visits || brought > u64::from(2 * pages) {
            let fresh = self.fresh(0);
            return (if fresh.is_looked_at() { fresh.split(Why::LittleUsed) } else { fresh }, false);
        }
        if self.count(PARTS) != PARTS.1 || brought * 16 < u64::from(pages) * 15 {
            return (self, false);
        }
        let walks = self.count(COUNT) + 1;
        let is_enough = self.is_looked_at() || walks >= 1 << self.count(PATIENCE);
        (self.fresh(walks), self.0 & REFUSED == 0 && is_enough)
    }

    /// Whether all of it lies within one block of the program's memory, or not any more.
    #[must_use]
    pub fn lies_inside(self, is_inside: bool) -> Stretch {
        Stretch(if is_inside { self.0 | INSIDE } else { self.0 & !INSIDE })
    }

    /// Whether a huge page may be made of it at its first touch, if a walk comes to it: all of it is likely to be touched then.
    #[inline]
    pub fn may_begin_huge(self) -> bool {
        self.0 & (HUGE | INSIDE | REFUSED | NEVER_ONE) == INSIDE
    }

    /// Whether it is single pages for this round alone.
    fn is_looked_at(self) -> bool {
        self.0 & LOOKED_AT != 0
    }

    /// The huge page is far, and its page number `page` of `pages` is touched. A walk comes to it at an edge.
    #[must_use]
    pub fn entered(self, page: u32, pages: u32) -> Stretch {
        let edge = (pages / EDGE).max(1);
        let is_at_edge = page < edge || page >= pages - edge;
        self.with(STRAYS, if is_at_edge { 0 } else { self.count(STRAYS) + 1 })
    }

    /// Whether it is time to see how much of it is used: after three trips as a whole, seven, fifteen. The kernel's huge pages cost little; of them that is
    /// asked when the last half of all trips began in the midst of them.
    pub fn is_to_be_looked_at(self) -> bool {
        let trips = self.count(TRIPS);
        if self.is_one() {
            return self.count(STRAYS) * 2 > trips;
        }
        (3..TRIPS.1).contains(&trips) && (trips + 1).is_power_of_two()
    }

    fn fresh(self, count: u64) -> Stretch {
        self.with(FAULTS, 0).with(PAGES, 0).with(PARTS, 0).with(COUNT, count)
    }

    /// The stretch comes as a whole, as number `coming` of all that did.
    #[must_use]
    pub fn comes(self, coming: u32) -> Stretch {
        let strays = if self.is_huge() { self.count(STRAYS) } else { 0 };
        let came =
            self.fresh(u64::from(coming) & COUNT.1).with(TRIPS, self.count(TRIPS) + 1).with(STRAYS, strays);
        Stretch((came.0 | HUGE | WAS_HUGE) & !LOOKED_AT)
    }

    /// Whether the stretch's memory is one huge page of the kernel's.
    #[inline]
    pub fn is_one(self) -> bool {
        self.0 & ONE != 0
    }

    /// Whether to make one huge page of the stretch's memory, which takes `cost_ns`: the stretch came so often as a whole that this would have been paid
    /// back. How often it will come is not known; so it costs twice as much as needed at most.
    #[must_use]
    pub fn pays_as_one(self, cost_ns: u64) -> bool {
        self.0 & (ONE | NEVER_ONE) == 0 && self.count(TRIPS) * SAVED_NS >= cost_ns
    }

    /// The kernel made one huge page of the stretch's memory, or it could not.
    #[must_use]
    pub fn made_one(self, is_one: bool) -> Stretch {
        Stretch(self.0 | if is_one { ONE } else { NEVER_ONE })
    }

    /// Whether the huge page is one of the last `kept` that came, of `coming` so far. Single pages count as parts of huge ones.
    #[inline]
    pub fn is_young(self, coming: u32, kept: u32) -> bool {
        (u64::from(coming).wrapping_sub(self.count(COUNT)) & COUNT.1) <= u64::from(kept)
    }

    /// Whether the stretch must not become a huge page.
    #[inline]
    pub fn is_refused(self) -> bool {
        self.0 & REFUSED != 0
    }

    /// The stretch becomes no huge page any more.
    #[must_use]
    pub fn refused(self) -> Stretch {
        Stretch(self.0 | REFUSED)
    }

    /// The stretch is single pages from now on.
    #[must_use]
    pub fn split(self, why: Why) -> Stretch {
        let split = Stretch(self.fresh(0).0 & !(HUGE | ONE | LOOKED_AT));
        match why {
            Why::PartNeeded => split,
            Why::LittleUsed => {
                split.with(PATIENCE, (split.count(PATIENCE) + 1).min(MOST_PATIENCE)).with(TRIPS, 0)
            }
            Why::Look => Stretch(split.0 | LOOKED_AT),
            Why::Impossible => split.refused(),
        }
    }
}

/// How fast one worker comes to far huge pages: whether it can have used them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pace {
    /// When the last one had come.
    last_ns: u64,
    /// The time that using them takes, less the time there was for it.
    debt_ns: u64,
}

impl Pace {
    /// The worker touches a far huge page at `now_ns`. `near`: how many huge pages near memory has room for, as this worker's part. Says whether
    /// more than half of so many came since there was time to use them: they leave unused.
    pub fn comes(&mut self, now_ns: u64, near: u32) -> bool {
        let most_ns = USE_NS * u64::from((near / 2).clamp(2, MOST_AT_ONCE));
        let rest = self.debt_ns.saturating_sub(now_ns.saturating_sub(self.last_ns));
        self.debt_ns = (rest + USE_NS).min(2 * most_ns);
        self.debt_ns > most_ns
    }

    /// The huge page has come.
    pub fn has_come(&mut self, now_ns: u64) {
        self.last_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(mut stretch: Stretch, faults: u32, each: u32) -> (Stretch, bool) {
        for fault in 0..faults {
            stretch = stretch.fetched(fault * each, fault * each + each - 1, each, 512);
        }
        stretch.begins(512)
    }

    #[test]
    fn a_stretch_is_huge_after_a_walk_and_not_after_visits() {
        let (known, huge) = Stretch::default().begins(512);
        assert!(!huge);
        assert!(!walk(known, 512, 1).1, "each page came for itself");
        let (half, huge) = walk(known, 4, 64);
        assert!(!huge, "half of the pages came");
        assert!(!walk(half, 4, 64).1, "the same half came again");
        assert!(walk(half, 8, 64).1, "the rest came, too");
        let strided = (0..6).fold(known, |stretch, _| stretch.fetched(0, 511, 64, 512));
        assert!(!strided.begins(512).1, "one page in eight came, six times");
        let joined = walk(known, 8, 64).0.comes(3);
        assert!(joined.is_huge() && joined.was_huge());
        let split = joined.split(Why::PartNeeded);
        assert!(!split.is_huge() && split.was_huge() && walk(split, 8, 64).1);
        assert!(!walk(joined.split(Why::Impossible), 8, 64).1 && !walk(joined.refused(), 8, 64).1);
    }

    #[test]
    fn what_was_little_used_has_to_be_walked_more_often_each_time() {
        let mut stretch = Stretch::default();
        for walks in [2, 4, 8, 16, 32, 64, 128, 128] {
            stretch = stretch.comes(7).split(Why::LittleUsed);
            for number in 1..=walks {
                let (next, huge) = walk(stretch, 9, 57);
                assert_eq!(huge, number == walks, "{number} of {walks}");
                stretch = next;
            }
        }
    }

    #[test]
    fn a_copy_is_made_once_it_would_have_paid() {
        let mut stretch = Stretch::default();
        for coming in 0..4 {
            assert!(!stretch.pays_as_one(900_000));
            assert_eq!(stretch.is_to_be_looked_at(), coming == 3);
            stretch = stretch.comes(coming);
        }
        assert!(stretch.pays_as_one(900_000) && !stretch.made_one(false).pays_as_one(1));
        let one = stretch.made_one(true);
        assert!(one.is_one() && one.comes(5).is_one() && !one.comes(5).pays_as_one(1));
        assert!(!one.split(Why::PartNeeded).is_one());
    }

    #[test]
    fn a_look_tells_whether_a_stretch_is_used_as_a_whole() {
        let looked_at = Stretch::default().comes(1).comes(2).comes(3).split(Why::Look);
        assert!(!looked_at.is_huge() && walk(looked_at, 8, 64).1);
        let column = looked_at.fetched(5, 500, 83, 512).begins(512);
        assert!(!column.1 && !walk(column.0, 8, 64).1 && walk(walk(column.0, 8, 64).0, 8, 64).1);
    }

    #[test]
    fn visits_in_the_midst_of_the_kernels_huge_pages_are_looked_at() {
        let first = Stretch::default().made_one(true).comes(1);
        assert!(!first.entered(3, 512).is_to_be_looked_at() && !first.entered(510, 512).is_to_be_looked_at());
        assert!(first.entered(200, 512).is_to_be_looked_at());
        let walked = (0..8).fold(first, |stretch, _| stretch.entered(0, 512).comes(2));
        assert!(!walked.entered(200, 512).is_to_be_looked_at());
        let mut visited = walked;
        let visits = (1..).find(|_| {
            visited = visited.entered(200, 512).comes(3);
            visited.is_to_be_looked_at()
        });
        assert!(visits.is_some_and(|visits| visits > 8));
    }

    #[test]
    fn the_last_that_came_are_young_and_a_count_ends_at_its_most() {
        let came = Stretch::default().comes(65_530);
        assert!(came.is_young(65_530, 0) && came.is_young(65_540, 10) && !came.is_young(65_540, 9));
        let mut stretch = Stretch::default();
        for _ in 0..70_000 {
            stretch = stretch.fetched(0, 1, 2, 512);
        }
        let counts = [FAULTS, PAGES, PARTS, COUNT].map(|field| stretch.count(field));
        assert_eq!(counts, [FAULTS.1, PAGES.1, 1, 0]);
    }

    #[test]
    fn a_worker_that_comes_too_fast_is_told_from_one_that_walks() {
        let (mut pace, mut now) = (Pace::default(), 1_000_000);
        let mut comes = |after| {
            now += after;
            let hurries = pace.comes(now, 32);
            now += 30_000;
            pace.has_come(now);
            hurries
        };
        assert!((0..100).all(|_| !comes(200_000)));
        // Twelve arrays of equal sizes.
        assert!((0..100).all(|_| !comes(12 * 200_000) && (1..12).all(|_| !comes(1_000))));
        assert_eq!((0..40).map(|_| comes(1_000)).position(|hurries| hurries), Some(4));
        assert_eq!((0..40).map(|_| comes(400_000)).position(|hurries| !hurries), Some(0));
    }
}
