//! How much of what a program touched its samples saw: without that, few samples look like a small program.
//!
//! Pure code; the analysis and the report for the terminal feed it samples in the order of time. What a page is seen by is a
//! sighting: samples of one thread at one time, as the timer takes several behind one interrupt, are one. From the pages that were seen once and
//! twice follow the share of accesses to pages that nobody saw (Good and Turing's estimate) and how many pages there are at least (Chao's).
//! At most a fixed number of pages is followed, chosen by hash.

use std::collections::HashMap;

/// Pages followed at most.
const PAGES: usize = 1 << 16;

/// Above this share of accesses to pages that no sample saw, sizes by page are not told.
pub const MOST_UNSEEN: f64 = 0.1;
/// With fewer sightings nothing is told.
const LEAST_SIGHTINGS: u64 = 100;

/// A page's sightings: how many, and whose the last was, when.
#[derive(Debug, Clone, Copy)]
struct Seen {
    times: u64,
    last: (u32, u64),
}

/// Follows sightings.
#[derive(Debug)]
pub struct Sightings {
    most: usize,
    /// Only pages whose hash has so many zeros at its end are followed.
    zeros: u32,
    pages: HashMap<(u32, u64), Seen>,
}

impl Default for Sightings {
    fn default() -> Self {
        Self { most: PAGES, zeros: 0, pages: HashMap::new() }
    }
}

/// What the samples covered.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Coverage {
    /// Sightings of pages.
    pub sightings: u64,
    /// Different pages that were seen.
    pub seen: f64,
    /// Different pages that there are at least, by estimate.
    pub pages: f64,
    /// The share of accesses to pages that no sample saw, by estimate.
    pub unseen: f64,
}

impl Coverage {
    /// Do the samples tell how much memory is used by pages?
    pub fn tells(&self) -> bool {
        self.sightings >= LEAST_SIGHTINGS && self.unseen <= MOST_UNSEEN
    }
}

/// A hash that spreads neighbouring pages (the end of MurmurHash3).
pub(crate) fn hash(space: u32, page: u64) -> u64 {
    let mut h = page ^ (u64::from(space) << 52);
    h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

impl Sightings {
    /// A worker was seen on a page; `false` where that is the same sighting as the page's last.
    pub fn see(&mut self, space: u32, page: u64, worker: u32, time_ns: u64) -> bool {
        if hash(space, page).trailing_zeros() < self.zeros {
            return true;
        }
        let by = (worker, time_ns);
        if let Some(seen) = self.pages.get_mut(&(space, page)) {
            let new = seen.last != by;
            seen.times += u64::from(new);
            seen.last = by;
            return new;
        }
        self.pages.insert((space, page), Seen { times: 1, last: by });
        while self.pages.len() > self.most {
            self.zeros += 1;
            let zeros = self.zeros;
            self.pages.retain(|&(space, page), _| hash(space, page).trailing_zeros() >= zeros);
        }
        true
    }

    /// What was covered.
    pub fn coverage(&self) -> Coverage {
        let (mut all, mut once, mut twice) = (0, 0u64, 0u64);
        for seen in self.pages.values() {
            all += seen.times;
            once += u64::from(seen.times == 1);
            twice += u64::from(seen.times == 2);
        }
        let scale = (f64::from(self.zeros)).exp2();
        let (seen, once, twice) = (self.pages.len() as f64, once as f64, twice as f64);
        let pages = seen + once * (once - 1.0).max(0.0) / (2.0 * (twice + 1.0));
        let unseen = if all == 0 { 0.0 } else { once / all as f64 };
        Coverage { sightings: (all as f64 * scale) as u64, seen: seen * scale, pages: pages * scale, unseen }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(pages: u64, sightings: u64, most: usize) -> Coverage {
        let mut all = Sightings { most, ..Sightings::default() };
        for i in 0..sightings {
            let page = hash(1, i) % pages;
            // Eight samples behind one interrupt.
            let new = (0..8).filter(|_| all.see(0, page, 0, i)).count();
            assert!(new <= 1 || all.zeros > 0);
        }
        all.coverage()
    }

    /// 678 samples of a program that streams through 64M, eight behind each interrupt, looked like a program of 444K.
    #[test]
    fn few_samples_looked_like_a_small_program() {
        let few = sampled(16_384, 85, PAGES);
        assert!(!few.tells() && few.unseen > 0.9, "{few:?}");
        assert!(few.pages > 1_000.0, "{few:?}");
        let many = sampled(16_384, 60_000, PAGES);
        assert!(many.tells() && (16_000.0..16_800.0).contains(&many.pages), "{many:?}");
    }

    #[test]
    fn pages_that_are_chosen_stand_for_all() {
        let all = sampled(100_000, 400_000, 1 << 12);
        assert!((90_000.0..110_000.0).contains(&all.pages) && all.tells(), "{all:?}");
        assert!((360_000..440_000).contains(&all.sightings), "{all:?}");
        assert_eq!(Sightings::default().coverage(), Coverage::default());
    }
}
