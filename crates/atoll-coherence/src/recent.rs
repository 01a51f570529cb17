//! The last few values of something that is measured, of which the one in the middle counts.
//!
//! `home.rs` and `parts.rs` compare ways of running a region by it: one run that was disturbed decides nothing.

/// How many are kept.
const KEPT: usize = 5;

/// The last few values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recent {
    values: [u64; KEPT],
    count: u32,
}

impl Recent {
    /// Nothing was measured.
    pub const NONE: Recent = Recent { values: [0; KEPT], count: 0 };

    /// One more value.
    pub fn push(&mut self, value: u64) {
        self.values[self.count as usize % KEPT] = value;
        self.count = self.count.saturating_add(1);
    }

    /// How many there were, those that are forgotten included.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The one in the middle of the last few; none if there was none.
    #[must_use]
    pub fn median(&self) -> Option<u64> {
        let mut values = self.values;
        let values = &mut values[..KEPT.min(self.count as usize)];
        values.sort_unstable();
        values.get(values.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_far_off_does_not_count() {
        let mut recent = Recent::default();
        assert_eq!(recent.median(), None);
        [5, 6, 1000].into_iter().for_each(|value| recent.push(value));
        assert_eq!(recent.median(), Some(6));
        [7, 7, 7, 7].into_iter().for_each(|value| recent.push(value));
        assert_eq!((recent.median(), recent.count()), (Some(7), 7));
    }
}
