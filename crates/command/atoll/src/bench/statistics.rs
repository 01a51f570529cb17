//! Computes medians and percentiles.

/// The number of times that everything is measured.
pub(super) const ROUNDS: usize = 7;

/// Returns the median of an odd number of measurements.
pub(super) fn median<E>(mut once: impl FnMut() -> Result<f64, E>) -> Result<f64, E> {
    Ok(middle((0..ROUNDS).map(|_| once()).collect::<Result<_, E>>()?))
}

/// Returns the median; of an even number of values the upper of the two in the middle. There must be a value.
pub(super) fn middle(all: Vec<f64>) -> f64 {
    percentile(all, 50)
}

/// Returns the smallest value that at least `percent` (0 to 100) percent of all do not exceed. There must be a value.
pub(super) fn percentile(mut all: Vec<f64>, percent: usize) -> f64 {
    all.sort_unstable_by(f64::total_cmp);
    all[(all.len() * percent / 100).min(all.len() - 1)]
}
