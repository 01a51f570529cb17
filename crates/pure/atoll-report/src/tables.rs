//! The tables of variables, regions and workers.
//!
//! They are made from the counts of `analysis`, and from the runtime's counts where the program ran under it. `content` puts
//! the tables into the report.

use std::collections::{HashMap, HashSet};

use atoll_record::profile::{Kind, Profile, Span};
use serde::Serialize;

use crate::analysis::{Analysis, NO_REGION};
use crate::cells::NOWHERE;
use crate::text::share;

/// The most rows of a table; the rest is counted.
const ROWS: usize = 1000;

/// A row of the table of variables. Shares are from 0 to 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct VariableRow {
    pub(crate) variable: u32,
    pub(crate) name: String,
    pub(crate) place: String,
    pub(crate) function: String,
    pub(crate) kind: &'static str,
    /// The most bytes that it had at one time; `None` where that says nothing (stacks, memory without a name).
    pub(crate) bytes: Option<u64>,
    pub(crate) accesses: u64,
    pub(crate) share: f64,
    /// The share of its accesses that wrote.
    pub(crate) writes: f64,
    /// The number of blocks of pages seen.
    pub(crate) pages: u64,
    pub(crate) workers: u32,
    /// Its share of the second sampler's samples; `None` where there is no second sampler.
    pub(crate) second: Option<f64>,
    /// Its share of the samples taken while accesses faulted; `None` where there are none.
    pub(crate) paging: Option<f64>,
    /// Its share of all data that came from memory; `None` where the sampler does not tell.
    pub(crate) from_memory: Option<f64>,
    /// The region that touched it most, and that region's part of the accesses.
    pub(crate) region: String,
    pub(crate) region_share: f64,
}

/// A row of the table of regions.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub(crate) struct RegionRow {
    pub(crate) name: String,
    pub(crate) place: String,
    pub(crate) seconds: f64,
    pub(crate) entered: u64,
    pub(crate) accesses: u64,
    pub(crate) share: f64,
    pub(crate) writes: f64,
    /// The variable that the region touched most.
    pub(crate) variable: String,
    /// The runtime's counts; `None` where the program ran without it.
    pub(crate) counted: Option<RegionCounts>,
}

/// The counts of atoll's runtime for a region.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub(crate) struct RegionCounts {
    pub(crate) minor: u64,
    pub(crate) major: u64,
    pub(crate) first: u64,
    pub(crate) write: u64,
    pub(crate) prefetched: u64,
    pub(crate) fault_seconds: f64,
    pub(crate) worker_seconds: f64,
}

/// A row of the table of workers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct WorkerRow {
    pub(crate) worker: u32,
    pub(crate) label: String,
    pub(crate) tid: u32,
    pub(crate) node: u32,
    pub(crate) accesses: u64,
    pub(crate) share: f64,
    pub(crate) writes: f64,
}

/// Returns the most bytes that each variable had at one time.
pub(crate) fn peak_bytes(spans: &[Span], variables: usize) -> Vec<u64> {
    let mut steps: Vec<(u32, u64, i128)> = Vec::with_capacity(2 * spans.len());
    for span in spans {
        steps.push((span.variable, span.born_ns, i128::from(span.bytes)));
        steps.push((span.variable, span.died_ns, -i128::from(span.bytes)));
    }
    steps.sort_unstable();
    let mut peaks = vec![0u64; variables];
    let (mut last, mut now) = (None, 0i128);
    for (variable, _, step) in steps {
        now = if last == Some(variable) { now + step } else { step };
        last = Some(variable);
        if let Some(peak) = peaks.get_mut(variable as usize) {
            *peak = (*peak).max(u64::try_from(now).unwrap_or(if now < 0 { 0 } else { u64::MAX }));
        }
    }
    peaks
}

/// Returns the number of blocks and of workers seen, by variable.
fn seen(analysis: &Analysis) -> HashMap<u32, (u64, u32)> {
    let mut found: HashMap<u32, (u64, u32)> = HashMap::new();
    let mut workers: HashSet<u32> = HashSet::new();
    let (mut last, mut page) = (NOWHERE, None);
    for (cell, _) in analysis.cells.iter().filter(|(c, _)| c.variable != NOWHERE) {
        if last != cell.variable {
            (last, page) = (cell.variable, None);
            workers.clear();
        }
        let entry = found.entry(cell.variable).or_default();
        if page.replace((cell.space, cell.page)) != Some((cell.space, cell.page)) {
            entry.0 += 1;
        }
        if workers.insert(cell.worker) {
            entry.1 += 1;
        }
    }
    found
}

fn region_name(profile: &Profile, region: u32) -> String {
    if region == NO_REGION {
        return "outside of regions".into();
    }
    profile.regions.get(region as usize).map_or_else(String::new, |r| r.name.clone())
}

/// Returns the table of variables, the hottest first; and the number of further variables.
pub(crate) fn variables(profile: &Profile, analysis: &Analysis, peaks: &[u64]) -> (Vec<VariableRow>, usize) {
    let seen = seen(analysis);
    let regions_of = analysis.regions_of();
    let hottest = analysis.hottest();
    let row = |&number: &u32| {
        let variable = profile.variables.get(number as usize)?;
        let of = analysis.variables.get(number as usize)?;
        let total = of.accesses.total();
        let (pages, workers) = seen.get(&number).copied().unwrap_or_default();
        let region = regions_of.get(&number).and_then(|r| r.first()).copied();
        let sized = matches!(variable.kind, Kind::Heap | Kind::Global);
        Some(VariableRow {
            variable: number,
            name: variable.name.clone(),
            place: variable.place(),
            function: variable.function.clone(),
            kind: variable.kind.word(),
            bytes: peaks.get(number as usize).copied().filter(|_| sized),
            accesses: total,
            share: share(total, analysis.all.total()),
            writes: share(of.accesses.writes, total),
            pages,
            workers,
            second: analysis.second.map(|_| share(of.second, analysis.second_all)),
            paging: (analysis.paging > 0).then(|| share(of.paging, analysis.paging)),
            from_memory: (analysis.with_source > 0).then(|| share(of.from_memory, analysis.from_memory)),
            region: region.map_or_else(String::new, |(r, _)| region_name(profile, r)),
            region_share: region.map_or(0.0, |(_, n)| share(n, total)),
        })
    };
    let rows: Vec<VariableRow> = hottest.iter().take(ROWS).filter_map(row).collect();
    let more = hottest.len() - rows.len();
    (rows, more)
}

/// Returns the table of regions, those with most time first.
pub(crate) fn regions(profile: &Profile, analysis: &Analysis) -> (Vec<RegionRow>, usize) {
    let mut seconds = vec![(0u64, 0.0); profile.regions.len()];
    for phase in &profile.phases {
        if let Some(of) = seconds.get_mut(phase.region as usize) {
            let end = phase.end_ns.min(profile.end_ns);
            *of = (of.0 + 1, of.1 + end.saturating_sub(phase.begin_ns) as f64 * 1e-9);
        }
    }
    let mut most: HashMap<u32, (u64, u32)> = HashMap::new();
    for (&(variable, region), &n) in &analysis.regions_of {
        let best = most.entry(region).or_insert((0, NOWHERE));
        if variable != NOWHERE && (n, best.1) > *best {
            *best = (n, variable);
        }
    }
    let counted: HashMap<&str, RegionCounts> = profile
        .figures
        .iter()
        .flat_map(|f| &f.regions)
        .map(|r| {
            let counts = RegionCounts {
                minor: r.minor_faults,
                major: r.major_faults,
                first: r.first_faults,
                write: r.write_faults,
                prefetched: r.prefetched_pages,
                fault_seconds: r.fault_seconds,
                worker_seconds: r.worker_seconds,
            };
            (r.name.as_str(), counts)
        })
        .collect();
    let mut rows: Vec<RegionRow> = Vec::with_capacity(profile.regions.len());
    for (number, region) in profile.regions.iter().enumerate() {
        let of = analysis.regions.get(number).copied().unwrap_or_default();
        let hottest = most.get(&(number as u32)).and_then(|(_, v)| profile.variables.get(*v as usize));
        rows.push(RegionRow {
            name: region.name.clone(),
            place: atoll_record::profile::span::place(&region.file, region.line),
            seconds: seconds[number].1,
            entered: seconds[number].0,
            accesses: of.total(),
            share: share(of.total(), analysis.all.total()),
            writes: share(of.writes, of.total()),
            variable: hottest.map_or_else(String::new, |v| v.name.clone()),
            counted: counted.get(region.name.as_str()).cloned(),
        });
    }
    rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then(b.accesses.cmp(&a.accesses)));
    let more = rows.len().saturating_sub(ROWS);
    rows.truncate(ROWS);
    (rows, more)
}

/// Returns the table of workers with accesses.
pub(crate) fn workers(profile: &Profile, analysis: &Analysis) -> Vec<WorkerRow> {
    let busy = profile.workers.iter().zip(&analysis.workers).enumerate().filter(|(_, (_, c))| c.total() > 0);
    let rows = busy.take(ROWS).map(|(number, (worker, counts))| WorkerRow {
        worker: number as u32,
        label: worker.number.map_or_else(|| format!("thread {}", worker.tid), |n| format!("worker {n}")),
        tid: worker.tid,
        node: worker.node,
        accesses: counts.total(),
        share: share(counts.total(), analysis.all.total()),
        writes: share(counts.writes, counts.total()),
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_freed_and_allocated_again_counts_once() {
        let span = |born_ns, died_ns| Span { variable: 0, space: 1, start: 0, bytes: 100, born_ns, died_ns };
        let spans = vec![span(0, 10), span(10, 20), span(15, u64::MAX)];
        assert_eq!(peak_bytes(&spans, 2), [200, 0]);
    }
}
