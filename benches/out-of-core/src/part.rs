//! The samples of subjects that run the same program with the same number of iterations; `sheet` takes them.

use crate::stats::{Figure, Sample, figure};
use crate::subject::{Subject, Waiting};

/// A page size that takes this many times as long as the best is not measured further, so that rounds fit the budget.
const BEHIND: f64 = 1.25;

/// The samples of one subject.
pub(crate) struct Cell {
    pub(crate) subject: Subject,
    pub(crate) samples: Vec<Sample>,
    /// The reason why there are no samples, or no more.
    pub(crate) out: Option<String>,
    /// The way of waiting, chosen at the first run.
    pub(crate) waiting: Option<Waiting>,
}

impl Cell {
    pub(crate) fn new(subject: Subject) -> Cell {
        Cell { subject, samples: Vec::new(), out: None, waiting: None }
    }

    pub(crate) fn figure(&self) -> Option<Figure> {
        figure(&self.samples)
    }
}

/// A program with a number of iterations, and the subjects that ran it.
pub(crate) struct Part {
    pub(crate) words: Vec<String>,
    /// The checksum of the native run.
    pub(crate) checksum: String,
    pub(crate) cells: Vec<Cell>,
}

impl Part {
    pub(crate) fn cell(&self, subject: &Subject) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.subject == *subject)
    }

    /// Whether atoll with other pages and the same far store is so much faster that cell `index` cannot be the best.
    pub(crate) fn is_behind(&self, index: usize) -> bool {
        let cell = &self.cells[index];
        let Some(atoll) = cell.subject.atoll().filter(|atoll| atoll.policy.is_none()) else { return false };
        let rival = |other: &&Cell| {
            other.subject.atoll().is_some_and(|o| {
                (o.limited, o.percent, o.far) == (atoll.limited, atoll.percent, atoll.far)
                    && o.policy.is_none()
            })
        };
        let medians = self.cells.iter().filter(rival).filter_map(|cell| Some(cell.figure()?.median));
        let best = medians.min_by(f64::total_cmp);
        matches!((cell.figure(), best), (Some(own), Some(best)) if own.median > BEHIND * best)
    }

    /// Returns the median of a subject that was measured.
    pub(crate) fn median(&self, subject: &Subject) -> Option<Figure> {
        self.cell(subject).filter(|cell| cell.out.is_none() || !cell.samples.is_empty())?.figure()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Atoll;

    #[test]
    fn pages_far_behind_the_best_are_measured_no_further() {
        let cell = |far, page, policy, seconds: Option<f64>| {
            let mut cell = Cell::new(Subject::Atoll(Atoll {
                limited: true,
                far: Some(far),
                page: Some(page),
                policy,
                ..Atoll::default()
            }));
            cell.samples.extend(seconds.map(|seconds| Sample {
                seconds,
                cut: false,
                peak: None,
                near: None,
                fetches: 0,
                waits: 0,
                killed: 0,
            }));
            cell
        };
        let cells = vec![
            cell("lz4", "4K", None, Some(2.4)),
            cell("lz4", "64K", None, Some(2.0)),
            cell("lz4", "2M", None, Some(9.0)),
            cell("file", "2M", None, Some(9.0)),
            cell("lz4", "4K", Some("lru"), Some(9.0)),
            cell("lz4", "4K", None, None),
        ];
        let part = Part { words: Vec::new(), checksum: String::new(), cells };
        let behind: Vec<usize> = (0..6).filter(|&index| part.is_behind(index)).collect();
        assert_eq!(behind, [2]);
    }
}
