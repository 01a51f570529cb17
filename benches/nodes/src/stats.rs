//! Computes medians and shares.

/// Returns the median; `None` without values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some((low + high) / 2.0)
}

/// Returns `part` of `whole` in percent; `None` if `whole` is 0.
pub(crate) fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 9.0]), Some(3.0));
        assert_eq!(median([4.0, 1.0, 9.0, 2.0]), Some(3.0));
        assert_eq!(median([]), None);
    }

    #[test]
    fn nothing_has_no_share() {
        assert_eq!(percent(1, 4), Some(25.0));
        assert_eq!(percent(0, 0), None);
    }
}
