//! Computes how much near memory the sampled accesses would need: reuse distances, and the share of hits by size that follows
//! from them.
//!
//! This is pure code; the analysis feeds it pages in the order of time. A page's reuse distance is the number of distinct pages
//! seen since it was last seen: an LRU memory of more pages than that would have held it (Mattson's stack). Pages are followed
//! by hash, at most a fixed number of them, as in SHARDS (Waldspurger and others, FAST'15, sections 3.1 and 3.2). Where there
//! are more, those with the largest hashes are no longer followed, and distances are scaled by the share of pages that is left.

use std::collections::{BinaryHeap, HashMap};

use crate::coverage::hash;

/// The most pages that are followed: the paper's 8K, with which errors stay below 1%.
const PAGES: usize = 8192;
/// The number of buckets for each doubling of the distance.
const STEPS: u32 = 8;

/// Follows pages and counts their reuse distances.
#[derive(Debug)]
pub(crate) struct Reuse {
    most: usize,
    /// The bound of the hashes of pages that are followed.
    threshold: u64,
    /// The place in `marks` at which a followed page was last seen.
    last: HashMap<(u32, u64), usize>,
    by_hash: BinaryHeap<(u64, u32, u64)>,
    /// A Fenwick tree with a one for each followed page, at the place where it was last seen.
    marks: Vec<u32>,
    next: usize,
    /// The number of reuses by bucket of distance, in pages.
    buckets: Vec<f64>,
    reuses: u64,
}

/// The share of reuses that near memory serves, by its size.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Curve {
    /// The pages, and the share from 0 to 1, both ascending.
    pub(crate) points: Vec<(f64, f64)>,
    /// The number of reuses of followed pages that the curve is made from.
    pub(crate) reuses: u64,
    /// The share of pages that were followed.
    pub(crate) followed: f64,
}

fn bucket(distance: f64) -> usize {
    ((distance + 1.0).log2() * f64::from(STEPS)) as usize
}

/// Returns the smallest distance beyond the bucket.
fn end_of(bucket: usize) -> f64 {
    ((bucket + 1) as f64 / f64::from(STEPS)).exp2() - 1.0
}

impl Reuse {
    pub(crate) fn new() -> Self {
        Self::following(PAGES)
    }

    fn following(most: usize) -> Self {
        Self {
            most,
            threshold: u64::MAX,
            last: HashMap::new(),
            by_hash: BinaryHeap::new(),
            marks: vec![0; 4 * most + 1],
            next: 1,
            buckets: Vec::new(),
            reuses: 0,
        }
    }

    /// Notes that a page was seen.
    pub(crate) fn see(&mut self, space: u32, page: u64) {
        let hash = hash(space, page);
        if hash > self.threshold {
            return;
        }
        if self.next == self.marks.len() {
            self.compact();
        }
        let place = self.next;
        self.next += 1;
        let before = self.last.insert((space, page), place);
        self.mark(place, true);
        let Some(before) = before else {
            self.by_hash.push((hash, space, page));
            while self.last.len() > self.most {
                self.let_go();
            }
            return;
        };
        self.mark(before, false);
        // The number of pages seen since then, without this one.
        let since = self.up_to(place) - self.up_to(before) - 1;
        let at = bucket(f64::from(since) / self.followed());
        if self.buckets.len() <= at {
            self.buckets.resize(at + 1, 0.0);
        }
        self.buckets[at] += 1.0;
        self.reuses += 1;
    }

    /// Returns the curve; `None` where there was no reuse.
    pub(crate) fn curve(&self) -> Option<Curve> {
        let all: f64 = self.buckets.iter().sum();
        if all <= 0.0 {
            return None;
        }
        let mut sum = 0.0;
        let mut points = vec![(0.0, 0.0)];
        for (at, n) in self.buckets.iter().enumerate().filter(|(_, n)| **n > 0.0) {
            sum += n;
            // The page itself needs room, too.
            points.push((end_of(at).max(1.0), (sum / all).min(1.0)));
        }
        Some(Curve { points, reuses: self.reuses, followed: self.followed() })
    }

    fn followed(&self) -> f64 {
        (self.threshold as f64 + 1.0) / (u64::MAX as f64 + 1.0)
    }

    /// Stops following the pages with the largest hashes, and gives what was counted with more pages accordingly less weight.
    fn let_go(&mut self) {
        let Some((largest, ..)) = self.by_hash.peek().copied() else { return };
        while let Some((hash, space, page)) = self.by_hash.peek().copied()
            && hash == largest
        {
            self.by_hash.pop();
            if let Some(place) = self.last.remove(&(space, page)) {
                self.mark(place, false);
            }
        }
        let before = self.followed();
        self.threshold = largest.saturating_sub(1);
        let scale = self.followed() / before;
        for n in &mut self.buckets {
            *n *= scale;
        }
    }

    fn mark(&mut self, place: usize, set: bool) {
        let mut i = place;
        while i < self.marks.len() {
            self.marks[i] = if set { self.marks[i] + 1 } else { self.marks[i] - 1 };
            i += i & i.wrapping_neg();
        }
    }

    fn up_to(&self, place: usize) -> u32 {
        let (mut i, mut sum) = (place, 0);
        while i > 0 {
            sum += self.marks[i];
            i &= i - 1;
        }
        sum
    }

    /// Numbers the places anew, in their order.
    fn compact(&mut self) {
        let mut places: Vec<(usize, (u32, u64))> =
            self.last.iter().map(|(page, place)| (*place, *page)).collect();
        places.sort_unstable();
        self.marks.fill(0);
        self.next = 1;
        for (_, page) in places {
            self.last.insert(page, self.next);
            self.mark(self.next, true);
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Curve {
        /// Returns the fewest pages that give `share` of the hits.
        fn pages_for(&self, share: f64) -> Option<f64> {
            self.points.iter().find(|(_, hits)| *hits >= share).map(|(pages, _)| *pages)
        }
    }

    /// Computes the distances by their definition.
    fn distances(pages: &[u64]) -> Vec<usize> {
        let mut found = Vec::new();
        for (i, page) in pages.iter().enumerate() {
            if let Some(before) = pages[..i].iter().rposition(|p| p == page) {
                found.push(pages[before + 1..i].iter().collect::<std::collections::HashSet<_>>().len());
            }
        }
        found
    }

    #[test]
    fn a_cyclic_sweep_hits_only_where_all_of_it_fits() {
        let mut reuse = Reuse::new();
        (0..10_000u64).for_each(|i| reuse.see(0, i % 100));
        let curve = reuse.curve().expect("reuses");
        let pages = curve.pages_for(0.01).expect("hits");
        assert!((99.0..=110.0).contains(&pages), "{curve:?}");
        assert_eq!(curve.pages_for(1.0), Some(pages));
        assert_eq!(curve.reuses, 9900);
    }

    #[test]
    fn a_large_sweep_is_found_from_a_share_of_its_pages() {
        let mut reuse = Reuse::following(512);
        (0..400_000u64).for_each(|i| reuse.see(0, i % 100_000));
        let curve = reuse.curve().expect("reuses");
        let half = curve.pages_for(0.5).expect("hits");
        assert!((90_000.0..115_000.0).contains(&half), "{half} {}", curve.followed);
        assert!(curve.followed < 0.01);
    }

    #[test]
    fn nothing_seen_twice_gives_no_curve() {
        let mut reuse = Reuse::new();
        (0..50).for_each(|i| reuse.see(0, i));
        assert_eq!(reuse.curve(), None);
    }

    proptest! {
        #[test]
        fn distances_are_those_of_the_definition(pages in proptest::collection::vec(0u64..12, 0..200)) {
            let mut reuse = Reuse::following(16);
            pages.iter().for_each(|page| reuse.see(0, *page));
            let mut expected: Vec<f64> = Vec::new();
            for distance in distances(&pages) {
                let at = bucket(distance as f64);
                if expected.len() <= at {
                    expected.resize(at + 1, 0.0);
                }
                expected[at] += 1.0;
            }
            prop_assert_eq!(reuse.buckets, expected);
        }

        #[test]
        fn curves_rise_to_one(pages in proptest::collection::vec(0u64..2000, 0..3000)) {
            let mut reuse = Reuse::following(64);
            pages.iter().for_each(|page| reuse.see(1, *page));
            if let Some(curve) = reuse.curve() {
                prop_assert!(curve.points.windows(2).all(|w| w[0].0 <= w[1].0 && w[0].1 <= w[1].1));
                prop_assert!(curve.points.last().is_some_and(|p| p.1 > 0.999));
            }
        }
    }
}
