//! The last few values of a measurement, of which the median is used.
//!
//! `placing.rs` and `parts.rs` compare runs of a region by it, so that one disturbed run decides nothing.

/// The number of values that are kept.
const KEPT: usize = 5;

/// The last few values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recent {
    values: [u64; KEPT],
    count: u32,
}

impl Recent {
    /// The value without any measurement.
    pub const NONE: Recent = Recent { values: [0; KEPT], count: 0 };

    /// Adds a value.
    pub fn push(&mut self, value: u64) {
        self.values[self.count as usize % KEPT] = value;
        self.count = self.count.saturating_add(1);
    }

    /// The number of values added, forgotten ones included.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The median of the last few values; `None` without values.
    #[must_use]
    pub fn median(&self) -> Option<u64> {
        let mut values = self.values;
        let values = &mut values[..KEPT.min(self.count as usize)];
        values.sort_unstable();
        values.get(values.len() / 2).copied()
    }

    /// The least of the last few values, for times that something else may have made longer more than once; `None` without values.
    #[must_use]
    pub fn least(&self) -> Option<u64> {
        self.values[..KEPT.min(self.count as usize)].iter().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_far_off_does_not_count() {
        let mut recent = Recent::default();
        assert_eq!((recent.median(), recent.least()), (None, None));
        [5, 6, 1000].into_iter().for_each(|value| recent.push(value));
        assert_eq!((recent.median(), recent.least()), (Some(6), Some(5)));
        [7, 7, 7, 7].into_iter().for_each(|value| recent.push(value));
        assert_eq!((recent.median(), recent.count()), (Some(7), 7));
    }
}
