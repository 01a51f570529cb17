//! Where pages lie in a file: places are given out so that pages which leave together lie together.
//!
//! `file` asks it. A disk takes one write of 64 pages in the time of a few writes of one page, and a file system finds disk blocks for one
//! stretch sooner than for many pieces. So pages that leave in no order go to the next free places, wherever they lay before. Pages that
//! leave in order will come back in order, and not all of them leave at once: each block of 64 pages has a cluster of 64 places, in which
//! each of its pages has a place of its own.
//!
//! A hand visits the clusters in turn for free places. It takes a cluster of which half is free; where none is near, it opens a new one at
//! the end of the file, as long as the file is not much larger than what it holds; else it takes the best that it found. It does not ask
//! for whom a cluster was opened: a page whose own place is taken goes to another.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic. (`FilePlaces::new` is set-up code.)

use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use super::FarError;
use super::table::Table;

/// Places in a cluster: the bits of a word.
pub(super) const CLUSTER: u64 = 64;
/// A cluster with so many free places is taken as it comes.
const FREE_ENOUGH: u32 = 32;
/// Clusters that the hand looks at before it opens a new one or takes the best of them.
const SEARCH: u64 = 64;
/// Bytes by which the file may be larger than one and a half times what it holds.
const SLACK_BYTES: u64 = 16 << 20;

/// Larger than each place.
const NO_END: u64 = u64::MAX;

/// The words behind those of the clusters: the cluster where the hand is.
const HAND: u64 = 0;
/// The number of clusters opened.
const OPENED: u64 = 1;
/// One more than the place for which the disk had no room last, or 0.
const FULL: u64 = 2;
const WORDS: u64 = 3;

/// Which places are taken, in memory that all workers share.
pub(super) struct FilePlaces {
    /// A word of each cluster, with a bit of each place that is taken; and [`WORDS`] more.
    words: Table,
    /// The cluster of each block of pages, and one more; or 0.
    own: Table,
    clusters: u64,
    slack: u64,
}

impl FilePlaces {
    /// Places for `pages` pages of `page_size` bytes, none of them taken.
    ///
    /// # Errors
    /// Those of making a table.
    pub(super) fn new(pages: u64, page_size: usize) -> Result<Self, FarError> {
        let clusters = pages.div_ceil(CLUSTER);
        let slack = SLACK_BYTES / page_size as u64;
        Ok(Self { words: Table::new(clusters + WORDS)?, own: Table::new(clusters)?, clusters, slack })
    }

    /// The number of places.
    pub(super) fn count(&self) -> u64 {
        self.clusters * CLUSTER
    }

    fn hand(&self) -> u64 {
        self.words.load(self.clusters + HAND)
    }

    fn opened(&self) -> u64 {
        self.words.load(self.clusters + OPENED)
    }

    /// The places from this one on are given only when there are no others: the disk had no room for it.
    fn end(&self) -> u64 {
        self.words.load(self.clusters + FULL).wrapping_sub(1)
    }

    /// The places of a cluster that may be taken, as bits.
    fn free_in(&self, cluster: u64, taken: u64) -> u64 {
        let before = self.end().saturating_sub(cluster * CLUSTER);
        !taken & u64::MAX.unbounded_shr((CLUSTER - before.min(CLUSTER)) as u32)
    }

    /// Whether the file may be larger than `opened` clusters; `held`: how many pages it holds.
    fn may_open(&self, opened: u64, held: u64) -> bool {
        let is_small = opened * CLUSTER < held + held / 2 + self.slack;
        is_small && opened < self.clusters && self.end() == NO_END
    }

    /// Takes the page's own place, or returns it if it is `now` where the page lies. If its block has no cluster, or another page has the
    /// place, the block gets a free cluster if it `may` and there is one.
    pub(super) fn take_own(&self, page: u64, now: u64, may: bool, held: u64) -> Option<u64> {
        let (block, at) = (page / CLUSTER, page % CLUSTER);
        if let Some(cluster) = self.own.load(block).checked_sub(1) {
            let place = cluster * CLUSTER + at;
            if place == now || self.take_one(place) {
                return Some(place);
            }
        }
        if !may {
            return None;
        }
        let cluster = self.free_cluster(held)?;
        self.own.set(block, cluster + 1);
        let place = cluster * CLUSTER + at;
        self.take_one(place).then_some(place)
    }

    /// Takes this place; `false` if it is taken.
    fn take_one(&self, place: u64) -> bool {
        let bit = 1 << (place % CLUSTER);
        // Pairs with `free`: what was read from this place has been read.
        place < self.end() && self.words.word(place / CLUSTER).fetch_or(bit, AcqRel) & bit == 0
    }

    /// A cluster of which nothing is taken: one behind the hand, or else a new one.
    fn free_cluster(&self, held: u64) -> Option<u64> {
        let (opened, hand) = (self.opened(), self.hand());
        let near = (1..=SEARCH.min(opened))
            .map(|i| (hand + i) % opened)
            .find(|&cluster| self.words.load(cluster) == 0);
        near.or_else(|| (self.may_open(opened, held) && self.open(opened)).then_some(opened))
    }

    /// Opens the cluster behind `opened` others; `false` if another worker has opened it meanwhile.
    fn open(&self, opened: u64) -> bool {
        self.words.change(self.clusters + OPENED, opened, opened + 1)
    }

    /// Takes free places that follow one another, `count` at most and one at least. `held`: how many pages the file holds.
    ///
    /// `None`: all places are taken, which happens only if more pages are held than there are.
    pub(super) fn take(&self, count: u64, held: u64) -> Option<Range<u64>> {
        loop {
            let cluster = self.hand();
            if cluster < self.opened()
                && let Some(places) = self.take_in(cluster, count)
            {
                return Some(places);
            }
            if self.move_on(cluster, held).is_none() {
                // The disk may have room by now, and says so where it has none.
                let end = self.words.load(self.clusters + FULL);
                if end == 0 {
                    return None;
                }
                let _ = self.words.change(self.clusters + FULL, end, 0);
            }
        }
    }

    /// Takes free places of a cluster: the first stretch that has `count`, or else the longest.
    fn take_in(&self, cluster: u64, count: u64) -> Option<Range<u64>> {
        let word = self.words.word(cluster);
        let mut taken = word.load(Relaxed);
        loop {
            let stretch = stretches(self.free_in(cluster, taken)).fold(0..0, |best: Range<u32>, stretch| {
                if (best.len() as u64) < count && stretch.len() > best.len() { stretch } else { best }
            });
            if stretch.is_empty() {
                return None;
            }
            let length = (stretch.len() as u64).min(count);
            let mask = u64::MAX >> (CLUSTER - length) << stretch.start;
            // Pairs with `free`: what was read from these places has been read.
            match word.compare_exchange_weak(taken, taken | mask, AcqRel, Relaxed) {
                Ok(_) => {
                    let first = cluster * CLUSTER + u64::from(stretch.start);
                    return Some(first..first + length);
                }
                Err(now) => taken = now,
            }
        }
    }

    /// Moves the hand on from a full cluster; `None` if there is no other.
    fn move_on(&self, from: u64, held: u64) -> Option<()> {
        let opened = self.opened();
        let can_open = opened < self.clusters && self.end() == NO_END;
        let may_open = self.may_open(opened, held);
        let (mut to, mut best, mut most) = (from, from, 0);
        for looked in 0..opened {
            if most >= FREE_ENOUGH || looked >= SEARCH && (may_open || most > 0) {
                break;
            }
            to = if to + 1 >= opened { 0 } else { to + 1 };
            let free = self.free_in(to, self.words.load(to)).count_ones();
            if free > most {
                (best, most) = (to, free);
            }
        }
        if most < FREE_ENOUGH && (may_open || can_open && most == 0) {
            // Another worker that opened it meanwhile opened it for both.
            let _ = self.open(opened);
            best = opened;
        } else if most == 0 {
            return None;
        }
        // Another worker that moved it meanwhile knew as much.
        let _ = self.words.change(self.clusters + HAND, from, best);
        Some(())
    }

    /// Whether nobody has this place.
    #[cfg(test)]
    fn is_free(&self, place: u64) -> bool {
        self.words.load(place / CLUSTER) >> (place % CLUSTER) & 1 == 0
    }

    /// The place is free again. Whether its whole cluster is.
    pub(super) fn free(&self, place: u64) -> bool {
        let bit = 1 << (place % CLUSTER);
        // Pairs with `take_in`.
        self.words.word(place / CLUSTER).fetch_and(!bit, Release) & !bit == 0
    }

    /// Takes a cluster whole if it is free.
    pub(super) fn take_cluster(&self, cluster: u64) -> bool {
        self.words.change(cluster, 0, u64::MAX)
    }

    /// Gives back a cluster that was taken whole.
    pub(super) fn give_cluster(&self, cluster: u64) {
        self.words.set(cluster, 0);
    }

    /// The disk had no room for this place.
    pub(super) fn end_before(&self, place: u64) {
        self.words.set(self.clusters + FULL, place + 1);
    }
}

/// The stretches of bits that are set in a word, lowest first.
fn stretches(mut word: u64) -> impl Iterator<Item = Range<u32>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let start = at + word.trailing_zeros();
        word >>= word.trailing_zeros();
        let length = word.trailing_ones();
        word = word.checked_shr(length).unwrap_or(0);
        at = start + length;
        Some(start..start + length)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;

    use super::*;

    const PAGE: usize = 4096;

    fn take_all(places: &FilePlaces, mut count: u64, held: u64) -> Vec<u64> {
        let mut all = Vec::new();
        while count > 0 {
            let found = places.take(count, held).unwrap();
            count -= found.end - found.start;
            all.extend(found);
        }
        all
    }

    #[test]
    fn stretches_of_a_word() {
        let of = |word| stretches(word).map(|stretch| (stretch.start, stretch.end)).collect::<Vec<_>>();
        assert_eq!(of(0), []);
        assert_eq!(of(u64::MAX), [(0, 64)]);
        assert_eq!(of(0b1100_1110), [(1, 4), (6, 8)]);
        assert_eq!(of(1 << 63 | 1), [(0, 1), (63, 64)]);
    }

    /// FIFO evicts fifteen of sixteen neighbours at once and one of them later; where that page went elsewhere, reading the neighbours took
    /// an operation more.
    #[test]
    fn a_page_that_leaves_later_than_its_neighbours_goes_to_them() {
        let places = FilePlaces::new(1 << 20, PAGE).unwrap();
        let own = |page, now| places.take_own(page, now, true, 100);
        assert_eq!(own(64 * 9 + 3, u64::MAX), Some(3));
        assert_eq!(own(64 * 9 + 5, u64::MAX), Some(5));
        assert_eq!(own(64 * 7, u64::MAX), Some(64));
        assert_eq!(own(64 * 9 + 4, u64::MAX), Some(4));
        assert_eq!(own(64 * 9 + 5, 5), Some(5));
        assert_eq!((places.take_own(0, u64::MAX, false, 100), places.opened()), (None, 2));
        // Pages that leave in no order took the rest.
        assert_eq!(places.take(60, 100), Some(6..64));
        assert_eq!(places.take_own(64 * 9 + 63, u64::MAX, false, 100), None);
        assert_eq!(own(64 * 9 + 63, u64::MAX), Some(128 + 63));
        assert_eq!(own(64 * 9 + 62, u64::MAX), Some(128 + 62));
    }

    /// Pages lay at places of their own, and what left in no order was written page by page: 150 µs each, where 64 at once take 400.
    #[test]
    fn pages_that_left_together_lay_apart() {
        let places = FilePlaces::new(1 << 20, PAGE).unwrap();
        assert_eq!(places.take(48, 0), Some(0..48));
        assert_eq!(places.take(48, 48), Some(48..64));
        assert_eq!(places.take(64, 64), Some(64..128));
        // Of a cluster in which little is free the longest stretch is taken.
        [65, 70, 71, 72].iter().for_each(|&place| _ = places.free(place));
        assert_eq!(places.take(20, 128), Some(70..73));
        assert_eq!(places.take(20, 128), Some(65..66));
        // The hand comes back to a cluster of which half is free.
        (0..32).for_each(|place| _ = places.free(place));
        assert_eq!(places.take(20, 128), Some(0..20));
    }

    /// As many pages are held as there may be, and places are exchanged in no order.
    #[test]
    fn there_is_a_place_for_each_page_to_the_last() {
        for pages in [1, 63, 64, 1000, 10_000] {
            let places = FilePlaces::new(pages, PAGE).unwrap();
            let mut held = take_all(&places, pages, pages);
            let mut seed = 7_u64;
            for _ in 0..100 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let count = (seed >> 33) % 128 % pages + 1;
                for _ in 0..count {
                    let at = (seed >> 20) as usize % held.len();
                    places.free(held.swap_remove(at));
                }
                held.extend(take_all(&places, count, pages));
                let distinct: HashSet<_> = held.iter().collect();
                assert_eq!(distinct.len() as u64, pages);
                assert!(held.iter().all(|&place| place < places.count() && !places.is_free(place)));
            }
        }
    }

    /// The file is at most half as large again as what it holds, and the slack.
    #[test]
    fn the_file_does_not_grow_without_end() {
        let places = FilePlaces::new(1 << 30, PAGE).unwrap();
        let mut held = take_all(&places, 100_000, 100_000);
        for _ in 0..5000 {
            for place in held.drain(..1000) {
                places.free(place);
            }
            held.extend(take_all(&places, 1000, 100_000));
        }
        assert!(places.opened() * CLUSTER <= 150_000 + places.slack + CLUSTER, "{}", places.opened());
    }

    #[test]
    fn a_full_disk_is_asked_again_when_no_other_place_is_left() {
        let places = FilePlaces::new(1 << 20, PAGE).unwrap();
        let held = take_all(&places, 640, 640);
        held.iter().take(10).for_each(|&place| _ = places.free(place));
        places.free(345);
        places.free(350);
        places.end_before(350);
        assert_eq!(places.take(64, 640), Some(0..10));
        assert_eq!(places.take(1, 640), Some(345..346));
        assert_eq!(places.take(1, 640), Some(350..351));
        assert_eq!(places.take(1, 640), Some(640..641));
    }

    #[test]
    fn workers_never_get_the_same_place() {
        let places = FilePlaces::new(4096, PAGE).unwrap();
        let taken = Mutex::new(HashSet::new());
        std::thread::scope(|scope| {
            for worker in 0..4_u64 {
                let (places, taken) = (&places, &taken);
                scope.spawn(move || {
                    let mut held: Vec<u64> = Vec::new();
                    for round in 0..2000_u64 {
                        let count = (round * 7 + worker) % 100 + 1;
                        let found = take_all(places, count, 4096);
                        let mut all = taken.lock().unwrap();
                        assert!(found.iter().all(|&place| all.insert(place)));
                        held.extend(found);
                        let keep = held.len().min(500);
                        for place in held.drain(keep..) {
                            all.remove(&place);
                            places.free(place);
                        }
                    }
                });
            }
        });
    }
}
