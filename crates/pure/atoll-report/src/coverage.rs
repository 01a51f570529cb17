//! Estimates how much of the memory that a program touched was seen by samples. Without that, few samples look like a small
//! program.
//!
//! This is pure code. The analysis and the report for the terminal feed it samples in the order of time. A *sighting* is one or
//! more samples of a page by one thread at one time, as the timer takes several behind one interrupt. The numbers of pages seen
//! once and twice give the share of accesses to pages that were never seen (Good and Turing's estimate) and the least number of
//! pages (Chao's). At most a fixed number of pages is followed, chosen by hash.

use std::collections::HashMap;

/// The most pages that are followed.
const PAGES: usize = 1 << 16;

/// The share of accesses to unseen pages above which the report says nothing of sizes by page.
pub const MOST_UNSEEN: f64 = 0.1;
/// The number of sightings below which the report says nothing.
const LEAST_SIGHTINGS: u64 = 100;

/// A page's sightings: their number, and the worker and time of the last.
#[derive(Debug, Clone, Copy)]
struct Seen {
    times: u64,
    last: (u32, u64),
}

/// Follows sightings.
#[derive(Debug)]
pub struct Sightings {
    most: usize,
    /// The number of zeros at the end of the hash of pages that are followed.
    zeros: u32,
    pages: HashMap<(u32, u64), Seen>,
}

impl Default for Sightings {
    fn default() -> Self {
        Self { most: PAGES, zeros: 0, pages: HashMap::new() }
    }
}

/// The estimates of what the samples covered.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Coverage {
    /// The number of sightings of pages.
    pub sightings: u64,
    /// The number of different pages that were seen.
    pub seen: f64,
    /// The estimated least number of different pages.
    pub pages: f64,
    /// The estimated share of accesses to pages that no sample saw.
    pub unseen: f64,
}

impl Coverage {
    /// Whether the samples are enough to say how much memory is used, by pages.
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
    /// Notes that a worker was seen on a page; returns `false` where that is the same sighting as the page's last.
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

    /// Returns the estimates.
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
            // These are eight samples behind one interrupt.
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
