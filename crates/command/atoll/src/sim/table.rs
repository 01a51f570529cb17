//! Prints the results of simulations, as a table and as comma-separated values.

use std::fmt::Write;

use atoll_machine::{Outcome, Pager, Setup};
use atoll_pages::Size;

use crate::cli::Share;
use crate::csv;
use crate::run::summary::{bytes, count, write_aligned};

/// One simulation and its result.
#[derive(Debug)]
pub(crate) struct Cell {
    /// The near limit as the user wrote it; `None`: everything near.
    pub(crate) share: Option<Share>,
    pub(crate) setup: Setup,
    pub(crate) outcome: Outcome,
}

impl Cell {
    /// Returns the simulated seconds.
    pub(crate) fn seconds(&self) -> f64 {
        self.outcome.elapsed as f64 / 1e12
    }

    /// Returns the time with everything near over this one's.
    fn relative(&self, all: &[Self]) -> Option<f64> {
        let (page, tables) = (self.setup.page, self.setup.tables);
        let base =
            all.iter().find(|c| c.share.is_none() && c.setup.page == page && c.setup.tables == tables)?;
        Some(base.seconds() / self.seconds())
    }
}

const HEADS: [&str; 19] = [
    "near",
    "limit",
    "page",
    "tables",
    "policy",
    "seconds",
    "relative",
    "faults",
    "major",
    "inval",
    "dTLB miss",
    "compute",
    "walk",
    "fault",
    "lock",
    "send",
    "intr",
    "transfer",
    "idle",
];

/// Returns a line for each simulation; counts are per worker, and the parts of the time in percent of all workers' time.
pub(crate) fn text(cells: &[Cell]) -> String {
    let mut rows = vec![HEADS.map(str::to_owned).to_vec()];
    rows.extend(cells.iter().map(|cell| row(cell, cells)));
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_aligned(&mut out, &rows);
    out
}

fn row(cell: &Cell, cells: &[Cell]) -> Vec<String> {
    let (setup, outcome) = (&cell.setup, &cell.outcome);
    let times = outcome.total().times;
    let percent = |part: u64| format!("{:.1}%", part as f64 * 100.0 / times.total().max(1) as f64);
    let mut row = vec![
        cell.share.map_or("all".to_owned(), |share| share.to_string()),
        setup.near.filter(|_| cell.share.is_some()).map_or("-".to_owned(), bytes),
        setup.page.to_string(),
        setup.tables.to_string(),
        setup.policy.to_string(),
        format!("{:.4}", cell.seconds()),
        cell.relative(cells).map_or("-".to_owned(), |relative| format!("{relative:.3}")),
    ];
    row.extend(
        [
            outcome.per_worker(|c| c.faults()),
            outcome.per_worker(|c| c.major_faults),
            outcome.per_worker(|c| c.remote_invalidations),
            outcome.per_worker(|c| c.tlb_misses),
        ]
        .map(|n| count(n.round() as u64)),
    );
    row.extend(times.fields().iter().map(|(_, part)| percent(*part)));
    row
}

/// A value in a file of results.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// Words.
    Text(String),
    /// A number of things; `None` where there is no such number.
    Count(Option<u64>),
    /// A measure, such as seconds; `None` where there is no such measure.
    Number(Option<f64>),
}

/// Returns names and values of every simulation: sums over all workers, times in seconds.
pub(crate) fn columns(machine: &str, cells: &[Cell]) -> Vec<Vec<(String, Value)>> {
    let line = |cell: &Cell| {
        let (setup, total) = (&cell.setup, cell.outcome.total());
        let text = |value: &dyn std::fmt::Display| Value::Text(value.to_string());
        let share = cell.share.map_or("all".to_owned(), |share| share.to_string());
        let mut line = vec![
            ("machine", text(&machine)),
            ("workers", Value::Count(Some(setup.workers as u64))),
            ("near", Value::Text(share)),
            ("near_bytes", Value::Count(setup.near.filter(|_| cell.share.is_some()))),
            ("page", text(&setup.page)),
            ("page_tables", text(&setup.tables)),
            ("policy", text(&setup.policy)),
            ("pager", text(&setup.pager)),
            (
                "batch",
                Value::Count(match setup.pager {
                    Pager::Kernel { batch } => Some(batch.into()),
                    Pager::Atoll => None,
                }),
            ),
            ("seconds", Value::Number(Some(cell.seconds()))),
            ("relative", Value::Number(cell.relative(cells))),
            ("scanned_pages", Value::Count(Some(cell.outcome.scanned))),
        ];
        line.extend(total.counts.fields().into_iter().map(|(name, n)| (name, Value::Count(Some(n)))));
        let mut line: Vec<(String, Value)> =
            line.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let seconds =
            |(name, time): (&str, u64)| (format!("{name}_seconds"), Value::Number(Some(time as f64 / 1e12)));
        line.extend(total.times.fields().into_iter().map(seconds));
        line
    };
    cells.iter().map(line).collect()
}

/// Returns every simulation on a line.
pub(crate) fn csv(machine: &str, cells: &[Cell]) -> String {
    let lines = columns(machine, cells);
    let mut out = String::new();
    if let Some(first) = lines.first() {
        out += &first.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(",");
        out.push('\n');
    }
    for line in lines {
        let word = |(_, value): (String, Value)| match value {
            Value::Text(text) => csv::word(&text),
            Value::Count(count) => count.map_or(String::new(), |n| n.to_string()),
            Value::Number(number) => number.map_or(String::new(), |n| format!("{n:.9}")),
        };
        out += &line.into_iter().map(word).collect::<Vec<_>>().join(",");
        out.push('\n');
    }
    out
}

/// Returns the pages by the number of workers that use them, in percent of all.
pub(crate) fn distribution(pages: &[u64]) -> String {
    let all = pages.iter().sum::<u64>().max(1);
    let mut out = String::from("pages by workers that use them:");
    for (workers, &n) in pages.iter().enumerate().filter(|(_, n)| **n > 0) {
        let _ = write!(out, "  {workers}: {:.1}%", n as f64 * 100.0 / all as f64);
    }
    out.push('\n');
    out
}

/// Returns a near limit in bytes: whole pages, at least one.
pub(crate) fn near(share: Share, footprint: u64, setup: &Setup) -> u64 {
    let size = setup.page.largest();
    let wanted = match share {
        Share::Percent(percent) => (footprint as f64 * percent / 100.0) as u64,
        Share::Size(Size(size)) => size,
    };
    size.pages(wanted).max(1) * size.bytes() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_machine::{Replacement, Tables};

    fn cell(share: Option<&str>, seconds: u64) -> Cell {
        let setup = Setup {
            workers: 2,
            near: share.map(|_| 1 << 20),
            page: "4K".parse().unwrap(),
            tables: Tables::Private,
            policy: if share.is_some() { "cmcp".parse().unwrap() } else { Replacement::None },
            pager: Pager::Kernel { batch: 1 },
        };
        let workers = vec![atoll_machine::Worker::default(); 2];
        let outcome = Outcome {
            workers,
            elapsed: seconds * 1_000_000_000_000,
            scanned: 0,
            distribution: vec![],
            frames: None,
            settled: false,
        };
        Cell { share: share.map(|s| s.parse().unwrap()), setup, outcome }
    }

    #[test]
    fn lines_are_relative_to_everything_near() {
        let cells = [cell(None, 2), cell(Some("50%"), 8)];
        let text = text(&cells);
        assert!(text.lines().nth(2).unwrap().contains("0.250"), "{text}");
        let csv = csv("knc-5110p", &cells);
        let columns = csv.lines().next().unwrap().split(',').count();
        assert!(csv.lines().all(|line| line.split(',').count() == columns), "{csv}");
        assert!(csv.contains(",cmcp:p=0.5,"));
        assert_eq!(distribution(&[0, 3, 0, 1]), "pages by workers that use them:  1: 75.0%  3: 25.0%\n");
    }

    #[test]
    fn limits_are_whole_pages_and_hold_one() {
        let mut setup = cell(None, 1).setup;
        assert_eq!(near(Share::Percent(50.0), 10_000, &setup), 8192);
        setup.page = "mixed".parse().unwrap();
        assert_eq!(near(Share::Size(Size(1)), 0, &setup), 2 << 20);
    }
}
