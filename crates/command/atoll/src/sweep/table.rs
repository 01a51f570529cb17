//! Prints a sweep's results: the medians as a table, every run as comma-separated values.

use std::fmt::Write;

use atoll_pages::Size;
use atoll_record::figures::{Counters, Figures};

use super::measure::{Outcome, Point};
use crate::cli::Share;
use crate::csv;
use crate::run::summary::{bytes, count, head, write_aligned};

/// The runs at one point.
#[derive(Debug)]
pub(super) struct Cell {
    /// The near limit as the user wrote it; `None`: all near.
    pub(super) share: Option<Share>,
    pub(super) point: Point,
    pub(super) outcomes: Vec<Outcome>,
}

impl Cell {
    fn done(&self) -> impl Iterator<Item = &Figures> {
        self.outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Done(figures) => Some(&**figures),
            Outcome::Failed(_) => None,
        })
    }

    fn failure(&self) -> Option<&str> {
        self.outcomes.iter().find_map(|outcome| match outcome {
            Outcome::Done(_) => None,
            Outcome::Failed(how) => Some(how.as_str()),
        })
    }

    /// Returns the median of `f` over the runs that succeeded.
    pub(super) fn median(&self, f: impl Fn(&Figures) -> f64) -> Option<f64> {
        median(self.done().map(f).collect())
    }

    /// Returns the median time.
    pub(super) fn seconds(&self) -> Option<f64> {
        self.median(|figures| figures.wall_seconds)
    }

    /// Returns the greatest near memory that any of the runs needed so that nothing would have been evicted.
    pub(super) fn footprint(&self) -> Option<u64> {
        self.done().map(|f| f.memory.footprint_peak_bytes).max()
    }
}

pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

const HEADS: [&str; 10] =
    ["near", "limit", "time", "relative", "minor", "major", "write", "evicted", "inval", ""];
const UNITS: [&str; 10] = ["", "bytes", "s", "speed", "faults", "faults", "faults", "pages", "TLBs", ""];

/// Returns a block for each policy and page size, with all shares of near memory. `all_near` are the runs without limit.
pub(super) fn text(cells: &[Cell], all_near: &[Cell]) -> String {
    let mut out = String::new();
    let mut shown: Vec<(String, String)> = Vec::new();
    for cell in cells {
        let (policy, page) = (cell.point.policy, cell.point.page);
        let key = (policy.to_string(), page.to_string());
        if shown.contains(&key) {
            continue;
        }
        shown.push(key);
        let all = all_near.iter().find(|c| c.point.page == page);
        let base = all.and_then(Cell::seconds);
        let base_text = base.map_or("failed".to_owned(), |s| format!("{s:.3} s"));
        let needs =
            all.and_then(Cell::footprint).map_or(String::new(), |n| format!(", footprint {}", bytes(n)));
        // Writing to a string does not fail.
        let _ = writeln!(out, "{policy}, {page} pages (all near: {base_text}{needs})");
        let mut rows = head(HEADS, UNITS);
        let block = cells.iter().filter(|c| c.point.policy == policy && c.point.page == page);
        rows.extend(block.map(|cell| row(cell, base)));
        let _ = write_aligned(&mut out, &rows);
        out.push('\n');
    }
    out
}

fn row(cell: &Cell, base: Option<f64>) -> Vec<String> {
    let counter = |f: fn(&Counters) -> u64| {
        cell.median(|figures| f(&figures.total) as f64).map_or("-".to_owned(), |n| count(n as u64))
    };
    let seconds = cell.seconds();
    let relative = base.zip(seconds).map(|(base, s)| base / s);
    vec![
        cell.share.map_or("all".to_owned(), |share| share.to_string()),
        cell.point.near.map_or("-".to_owned(), |Size(near)| bytes(near)),
        seconds.map_or("-".to_owned(), |s| format!("{s:.3}")),
        relative.map_or("-".to_owned(), |r| format!("{r:.3}")),
        counter(|c| c.minor_faults),
        counter(|c| c.major_faults),
        counter(|c| c.write_faults),
        counter(|c| c.evictions_clean + c.evictions_dirty),
        counter(|c| c.remote_tlb_invalidations),
        cell.failure().map_or(String::new(), |how| format!("failed: {how}")),
    ]
}

const CSV_HEAD: &str = "policy,page_bytes,near,near_bytes,run,status,wall_seconds,relative,minor_faults,major_faults,\
first_faults,write_faults,prefetched_pages,evictions_clean,evictions_dirty,bytes_in,bytes_out,\
remote_tlb_invalidations,scan_unmapped_pages,fault_seconds,waits,resident_peak_bytes,footprint_peak_bytes,\
data_peak_bytes,pinned_peak_bytes,table_bytes,far_stored_bytes,kernel_tlb_shootdowns\n";

/// Returns every run on a line.
pub(super) fn csv<'a>(cells: impl Iterator<Item = &'a Cell>, all_near: &[Cell]) -> String {
    let mut out = CSV_HEAD.to_owned();
    for cell in cells {
        let base = all_near.iter().find(|c| c.point.page == cell.point.page).and_then(Cell::seconds);
        for (run, outcome) in cell.outcomes.iter().enumerate() {
            let share = cell.share.map_or("all".to_owned(), |s| s.to_string());
            let near = cell.point.near.map_or(String::new(), |n| n.0.to_string());
            let (policy, page) = (csv::word(&cell.point.policy.to_string()), cell.point.page.bytes());
            let _ = write!(out, "{policy},{page},{share},{near},{},", run + 1);
            match outcome {
                Outcome::Done(figures) => csv_figures(&mut out, figures, base),
                Outcome::Failed(how) => {
                    out.push_str(&csv::word(how));
                    out.push_str(&",".repeat(CSV_HEAD.matches(',').count() - 5));
                }
            }
            out.push('\n');
        }
    }
    out
}

fn csv_figures(out: &mut String, f: &Figures, base: Option<f64>) {
    let (c, m) = (&f.total, &f.memory);
    let relative = base.map_or(String::new(), |base| format!("{:.6}", base / f.wall_seconds));
    let _ = write!(out, "ok,{:.6},{relative}", f.wall_seconds);
    for n in [
        c.minor_faults,
        c.major_faults,
        c.first_faults,
        c.write_faults,
        c.prefetched_pages,
        c.evictions_clean,
        c.evictions_dirty,
        c.bytes_in,
        c.bytes_out,
        c.remote_tlb_invalidations,
        c.scan_unmapped_pages,
    ] {
        let _ = write!(out, ",{n}");
    }
    let _ = write!(out, ",{:.6},{}", c.fault_seconds, c.waits);
    for n in [
        m.resident_peak_bytes,
        m.footprint_peak_bytes,
        m.data_peak_bytes,
        m.pinned_peak_bytes,
        m.table_bytes,
        m.far_stored_bytes,
    ] {
        let _ = write!(out, ",{n}");
    }
    let _ = write!(out, ",{}", f.kernel_tlb_shootdowns.map_or(String::new(), |n| n.to_string()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_pages::PageSize;

    fn cell(share: Option<&str>, seconds: &[Option<f64>]) -> Cell {
        let outcome = |s: &Option<f64>| match s {
            Some(wall_seconds) => {
                Outcome::Done(Box::new(Figures { wall_seconds: *wall_seconds, ..Figures::default() }))
            }
            None => Outcome::Failed("exit 75".into()),
        };
        Cell {
            share: share.map(|s| s.parse().unwrap()),
            point: Point {
                near: share.map(|_| Size(1 << 20)),
                policy: "cmcp".parse().unwrap(),
                page: PageSize::K4,
            },
            outcomes: seconds.iter().map(outcome).collect(),
        }
    }

    #[test]
    fn the_table_holds_medians_against_all_near() {
        let all = [cell(None, &[Some(1.0), Some(3.0), Some(2.0)])];
        let cells = [cell(Some("50%"), &[Some(4.0), None]), cell(Some("25%"), &[None, None])];
        let text = text(&cells, &all);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("cmcp:p=0.5, 4K pages (all near: 2.000 s, footprint"), "{text}");
        assert!(
            lines[3].contains("50%") && lines[3].contains("0.500") && lines[3].ends_with("failed: exit 75"),
            "{text}"
        );
        assert!(lines[4].contains("25%") && lines[4].contains(" - "), "{text}");
    }

    #[test]
    fn every_line_of_the_csv_has_every_column() {
        let all = [cell(None, &[Some(1.0)])];
        let cells = [cell(Some("50%"), &[Some(4.0), None])];
        let text = csv(all.iter().chain(&cells), &all);
        assert_eq!(text.lines().count(), 4);
        let columns = text.lines().next().unwrap().split(',').count();
        assert!(text.lines().all(|line| line.split(',').count() == columns), "{text}");
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0]), Some(2.0));
        assert_eq!(median(vec![3.0, 1.0, 9.0]), Some(3.0));
    }
}
