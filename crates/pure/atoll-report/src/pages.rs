//! Histograms of pages by the number of times they were seen (the paper's Figure 7) and by the number of workers that saw them
//! (CMCP's Figure 6), and of the time between wake-ups (Figure 6).
//! `cells` are read in their order, page by page. `content` puts the histograms into the report.

use std::collections::BTreeMap;

use atoll_record::profile::Wakeup;
use serde::Serialize;

use crate::cells::Cells;

/// The counts of one block of pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page {
    pub(crate) accesses: u64,
    pub(crate) workers: u32,
}

/// Returns all blocks that were seen.
pub(crate) fn pages(cells: &Cells) -> Vec<Page> {
    let mut pages: Vec<Page> = Vec::new();
    let mut last = None;
    let mut seen: Vec<u32> = Vec::new();
    for (cell, n) in cells.iter() {
        let key = (cell.space, cell.variable, cell.page);
        if last != Some(key) {
            last = Some(key);
            seen.clear();
            pages.push(Page { accesses: 0, workers: 0 });
        }
        if let Some(page) = pages.last_mut() {
            page.accesses += u64::from(n);
            if let Err(at) = seen.binary_search(&cell.worker) {
                seen.insert(at, cell.worker);
                page.workers += 1;
            }
        }
    }
    pages
}

/// A histogram: for each bar the least value, the greatest value, and the count.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Histogram {
    pub(crate) from: Vec<f64>,
    pub(crate) to: Vec<f64>,
    pub(crate) count: Vec<u64>,
}

/// Makes bars for values that are counts: one a value below 16, then ever wider ones.
pub(crate) fn by_count(values: impl Iterator<Item = u64>) -> Histogram {
    let mut bars: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for value in values {
        let bar = if value < 16 {
            (value, value)
        } else {
            let width = 1 << (value.ilog2() - 3);
            let from = value / width * width;
            (from, from.saturating_add(width - 1))
        };
        *bars.entry(bar).or_default() += 1;
    }
    let mut histogram = Histogram::default();
    for ((from, to), count) in bars {
        histogram.from.push(from as f64);
        histogram.to.push(to as f64);
        histogram.count.push(count);
    }
    histogram
}

/// Makes the histogram of seconds between wake-ups of a sampler's harvester, in bars of a quarter of a doubling.
pub(crate) fn between_wakeups(wakeups: &[Wakeup], sampler: usize) -> Histogram {
    let mut bars: BTreeMap<i32, u64> = BTreeMap::new();
    let mut before = None;
    for wakeup in wakeups.iter().filter(|w| w.sampler as usize == sampler) {
        if let Some(before) = before.replace(wakeup.time_ns) {
            let gap = wakeup.time_ns.saturating_sub(before).max(1) as f64 * 1e-9;
            *bars.entry((gap.log2() * 4.0).floor() as i32).or_default() += 1;
        }
    }
    let mut histogram = Histogram::default();
    for (bar, count) in bars {
        histogram.from.push((f64::from(bar) / 4.0).exp2());
        histogram.to.push((f64::from(bar + 1) / 4.0).exp2());
        histogram.count.push(count);
    }
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::Cell;

    #[test]
    fn pages_know_their_accesses_and_workers() {
        let mut cells = Cells::new(4096);
        for (page, time, worker) in [(5, 0, 1), (5, 1, 0), (5, 2, 1), (6, 0, 1)] {
            cells.add(Cell { space: 0, variable: 2, page, time, worker, write: false });
        }
        cells.finish();
        let pages = pages(&cells);
        let seen: Vec<(u64, u32)> = pages.iter().map(|p| (p.accesses, p.workers)).collect();
        assert_eq!(seen, [(3, 2), (1, 1)]);
    }

    #[test]
    fn bars_of_counts_leave_no_value_out() {
        let histogram = by_count((1..1000).chain([u64::MAX]));
        assert_eq!(histogram.count.iter().sum::<u64>(), 1000);
        assert_eq!((histogram.from[0], histogram.to[0], histogram.count[0]), (1.0, 1.0, 1));
        assert!(histogram.from.windows(2).all(|w| w[0] < w[1]));
    }

    #[test]
    fn wakeups_of_another_sampler_do_not_count() {
        let wakeup = |ms: u64, sampler| Wakeup { time_ns: ms * 1_000_000, sampler, records: 1, bytes: 8 };
        let wakeups = vec![wakeup(1, 0), wakeup(2, 1), wakeup(11, 0), wakeup(21, 0)];
        let histogram = between_wakeups(&wakeups, 0);
        assert_eq!(histogram.count, [2]);
        assert!(histogram.from[0] <= 0.01 && histogram.to[0] > 0.01);
    }
}
