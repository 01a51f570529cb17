//! Medians and percentiles.

/// How often everything is measured.
pub(super) const ROUNDS: usize = 7;

/// The middle of an odd number of measurements.
pub(super) fn median<E>(mut once: impl FnMut() -> Result<f64, E>) -> Result<f64, E> {
    Ok(middle((0..ROUNDS).map(|_| once()).collect::<Result<_, E>>()?))
}

/// The middle one; of an even number the upper of both. Not for no number.
pub(super) fn middle(all: Vec<f64>) -> f64 {
    percentile(all, 50)
}

/// The smallest number that `percent` (0 to 100) of all are not above. Not for no number.
pub(super) fn percentile(mut all: Vec<f64>, percent: usize) -> f64 {
    all.sort_unstable_by(f64::total_cmp);
    all[(all.len() * percent / 100).min(all.len() - 1)]
}
