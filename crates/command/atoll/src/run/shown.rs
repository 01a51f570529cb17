//! Chooses the workers that a table shows: all of a small team, and of a large one the first few and those that spent most time
//! in faults.
//!
//! `summary` and `atoll top` use it; the JSON and the record have all workers.

use std::ops::RangeInclusive;

use atoll_record::figures::Worker;

use super::summary::count;

/// The most workers of a team that is shown whole.
const WHOLE: usize = 16;
/// The number of a larger team's first workers that are shown.
const FIRST: usize = 4;
/// The number of a larger team's busiest workers that are shown.
const BUSIEST: usize = 4;

/// The workers of a team that a table shows.
#[derive(Debug, PartialEq)]
pub(crate) struct Shown<'a> {
    /// Workers that have a row, by index.
    pub(crate) workers: Vec<&'a Worker>,
    /// The number of workers without a row.
    pub(crate) hidden: usize,
}

impl Shown<'_> {
    /// Returns the line below the table where there are more workers.
    pub(crate) fn note(&self) -> Option<String> {
        let all = self.workers.len() + self.hidden;
        (self.hidden > 0).then(|| {
            format!(
                "of {} workers the first {FIRST} and those with the most time in faults are shown; --summary json and the record have all",
                count(all as u64)
            )
        })
    }
}

/// Chooses the workers.
pub(crate) fn shown(workers: &[Worker]) -> Shown<'_> {
    if workers.len() <= WHOLE {
        return Shown { workers: workers.iter().collect(), hidden: 0 };
    }
    let (first, mut rest): (Vec<&Worker>, Vec<&Worker>) =
        (workers[..FIRST].iter().collect(), workers[FIRST..].iter().collect());
    rest.sort_by(|a, b| {
        let (a, b) = (&a.counters, &b.counters);
        b.fault_seconds.total_cmp(&a.fault_seconds).then(b.major_faults.cmp(&a.major_faults))
    });
    let mut chosen = first;
    chosen.extend(rest.into_iter().take(BUSIEST));
    chosen.sort_by_key(|worker| worker.index);
    Shown { hidden: workers.len() - chosen.len(), workers: chosen }
}

/// The number of core-map counts that are shown line by line; beyond it a line is for twice as many counts as the line before.
const SINGLE_COUNTS: usize = 16;

/// Returns the pages by core-map count in at most a few dozen lines: element 0 of `counts` is for one worker. Lines without
/// pages are left out.
pub(crate) fn counts_in_lines(counts: &[u64]) -> Vec<(RangeInclusive<usize>, u64)> {
    let mut lines = Vec::new();
    let (mut from, mut wide) = (1, 1);
    while from <= counts.len() {
        let to = (from + wide - 1).min(counts.len());
        let pages = counts[from - 1..to].iter().sum();
        if pages > 0 {
            lines.push((from..=to, pages));
        }
        if from >= SINGLE_COUNTS {
            // The lines are from 17 to 32, from 33 to 64, and so on.
            wide = if from == SINGLE_COUNTS { SINGLE_COUNTS } else { wide * 2 };
        }
        from = to + 1;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_record::figures::Counters;

    fn team(size: u32) -> Vec<Worker> {
        let worker = |index| {
            let fault_seconds = f64::from(index % 100);
            Worker { index, pid: 1, counters: Counters { fault_seconds, ..Counters::default() } }
        };
        (0..size).map(worker).collect()
    }

    #[test]
    fn a_large_team_is_the_first_and_the_busiest() {
        let team = team(1000);
        let shown = shown(&team);
        let indices: Vec<u32> = shown.workers.iter().map(|w| w.index).collect();
        assert_eq!((indices, shown.hidden), (vec![0, 1, 2, 3, 99, 199, 299, 399], 992));
        assert!(shown.note().is_some_and(|note| note.contains("of 1000 workers")));
        let small = &team[..WHOLE];
        assert_eq!((super::shown(small).workers.len(), super::shown(small).note()), (WHOLE, None));
    }

    #[test]
    fn counts_beyond_the_first_come_together() {
        let lines = counts_in_lines(&[1; 1024]);
        assert_eq!(lines.iter().map(|(_, pages)| pages).sum::<u64>(), 1024);
        assert_eq!(lines.len(), 16 + 6, "{lines:?}");
        assert_eq!(
            (lines[15].clone(), lines[16].clone(), lines[21].clone()),
            ((16..=16, 1), (17..=32, 16), (513..=1024, 512))
        );
        assert_eq!(counts_in_lines(&[3, 0, 1]), [(1..=1, 3), (3..=3, 1)]);
    }
}
