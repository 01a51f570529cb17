//! Computes what near memory of a size would hold: the hottest pages, the hottest variables, or what LRU keeps.
//!
//! This is pure code over the counts of `pages` and the curve of `reuse`. The page turns shares of accesses into speed, for a
//! slowness of far memory that the reader sets.

use serde::Serialize;

use crate::reuse::Curve;

/// The most points of a curve.
const POINTS: usize = 120;

/// The share of accesses that near memory serves, by its size.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Shares {
    /// The sizes in bytes, ascending.
    pub(crate) bytes: Vec<f64>,
    /// The shares, from 0 to 1, ascending.
    pub(crate) share: Vec<f64>,
}

impl Shares {
    fn push(&mut self, bytes: f64, share: f64) {
        self.bytes.push(bytes);
        self.share.push(share);
    }

    /// Returns the least size that serves `share` of the accesses.
    pub(crate) fn bytes_for(&self, share: f64) -> Option<f64> {
        let at = self.share.iter().position(|s| *s >= share)?;
        self.bytes.get(at).copied()
    }
}

/// Returns the shares if the hottest pages are placed near for good, from the accesses of each block.
pub(crate) fn hottest_pages(mut accesses: Vec<u64>, block_bytes: u64) -> Shares {
    accesses.sort_unstable_by(|a, b| b.cmp(a));
    let all: u64 = accesses.iter().sum();
    let mut shares = Shares::default();
    shares.push(0.0, 0.0);
    let (mut sum, mut next) = (0, 1.0);
    let step = (accesses.len().max(1) as f64).powf(1.0 / POINTS as f64);
    for (i, n) in accesses.iter().enumerate() {
        sum += n;
        let held = (i + 1) as f64;
        if held >= next || i + 1 == accesses.len() {
            shares.push(held * block_bytes as f64, sum as f64 / all.max(1) as f64);
            next = (held * step).max(held + 1.0).floor();
        }
    }
    shares
}

/// Returns the shares of the pages that LRU keeps.
pub(crate) fn lru(curve: &Curve, page_bytes: u64) -> Shares {
    let mut shares = Shares::default();
    let every = curve.points.len().div_ceil(POINTS).max(1);
    for (i, (pages, share)) in curve.points.iter().enumerate() {
        if i % every == 0 || i + 1 == curve.points.len() {
            shares.push(pages * page_bytes as f64, *share);
        }
    }
    shares
}

/// A variable that is placed near, after those before it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Placed {
    pub(crate) variable: u32,
    /// The bytes of this variable and of those before it.
    pub(crate) bytes: u64,
    /// The share of the accesses that go to these variables.
    pub(crate) share: f64,
}

/// Returns the variables by accesses a byte, most first. The input is variable, bytes and accesses of each.
pub(crate) fn variables(mut list: Vec<(u32, u64, u64)>, all: u64) -> Vec<Placed> {
    list.retain(|&(_, bytes, n)| bytes > 0 && n > 0);
    let worth = |&(_, bytes, n): &(u32, u64, u64)| n as f64 / bytes as f64;
    list.sort_by(|a, b| worth(b).total_cmp(&worth(a)).then(a.0.cmp(&b.0)));
    let (mut bytes, mut sum) = (0u64, 0u64);
    list.into_iter()
        .map(|(variable, own, n)| {
            (bytes, sum) = (bytes.saturating_add(own), sum + n);
            Placed { variable, bytes, share: sum as f64 / all.max(1) as f64 }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_hot_page_of_a_hundred_needs_one_page() {
        let mut accesses = vec![1; 99];
        accesses.push(901);
        let shares = hottest_pages(accesses, 4096);
        assert_eq!(shares.bytes_for(0.9), Some(4096.0));
        assert_eq!(shares.bytes_for(1.0), Some(409_600.0));
    }

    #[test]
    fn small_hot_variables_come_first() {
        let placed = variables(vec![(0, 1 << 20, 50), (1, 4096, 40), (2, 0, 10)], 100);
        assert_eq!(placed[0], Placed { variable: 1, bytes: 4096, share: 0.4 });
        assert_eq!(placed[1], Placed { variable: 0, bytes: 4096 + (1 << 20), share: 0.9 });
        assert_eq!(placed.len(), 2);
    }

    proptest! {
        #[test]
        fn curves_are_short_and_end_with_all(accesses in proptest::collection::vec(1u64..100, 1..3000)) {
            let n = accesses.len();
            let shares = hottest_pages(accesses, 4096);
            prop_assert!(shares.bytes.len() <= POINTS + 60);
            prop_assert_eq!(shares.bytes.last().copied(), Some(n as f64 * 4096.0));
            prop_assert!(shares.share.last().is_some_and(|s| (s - 1.0).abs() < 1e-9));
            prop_assert!(shares.bytes.windows(2).all(|w| w[0] < w[1]));
        }
    }
}
