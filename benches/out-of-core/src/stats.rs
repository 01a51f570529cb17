//! Computes medians.

/// A measured run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) seconds: f64,
    /// Whether it was cut at its time limit: it would have taken longer.
    pub(crate) cut: bool,
    /// The most memory charged at any time, in bytes.
    pub(crate) peak: Option<u64>,
    /// The near limit that it was given.
    pub(crate) near: Option<u64>,
    /// The number of faults that fetched a page.
    pub(crate) fetches: u64,
    pub(crate) waits: u64,
    /// The number of earlier runs that the kernel killed for lack of memory.
    pub(crate) killed: u32,
}

/// A figure over several runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// Whether the median is a run that was cut: the figure is at least this.
    pub(crate) cut: bool,
    pub(crate) runs: usize,
}

/// Returns the figure of the samples' seconds; `None` without samples.
pub(crate) fn figure(samples: &[Sample]) -> Option<Figure> {
    let mut times: Vec<(f64, bool)> = samples.iter().map(|s| (s.seconds, s.cut)).collect();
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (first, last) = (times.first()?, times.last()?);
    let (low, high) = (times[(times.len() - 1) / 2], times[times.len() / 2]);
    Some(Figure {
        median: (low.0 + high.0) / 2.0,
        least: first.0,
        most: last.0,
        cut: low.1 || high.1,
        runs: times.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(seconds: &[f64], cut: f64) -> Vec<Sample> {
        let sample = |&seconds: &f64| Sample {
            seconds,
            cut: seconds >= cut,
            peak: None,
            near: None,
            fetches: 0,
            waits: 0,
            killed: 0,
        };
        seconds.iter().map(sample).collect()
    }

    #[test]
    fn a_median_is_cut_if_its_run_was() {
        let f = figure(&samples(&[3.0, 1.0, 9.0], 9.0)).unwrap();
        assert_eq!((f.median, f.least, f.most, f.cut, f.runs), (3.0, 1.0, 9.0, false, 3));
        assert!(figure(&samples(&[1.0, 9.0], 9.0)).unwrap().cut);
        assert_eq!(figure(&samples(&[1.0, 2.0], 9.0)).unwrap().median, 1.5);
        assert_eq!(figure(&[]), None);
    }
}
