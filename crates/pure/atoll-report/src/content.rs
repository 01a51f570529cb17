//! Everything that the page shows, as one value that becomes its JSON.
//!
//! This puts together the results of the other modules. `assets/report.js` is the other side and knows these names.

use atoll_record::profile::Profile;
use serde::Serialize;

use crate::analysis::Analysis;
use crate::findings::{self, Known};
use crate::heat::{self, Lanes, Map};
use crate::pages::{self, Histogram};
use crate::placement::{self, Placed, Shares};
use crate::tables::{self, RegionRow, VariableRow, WorkerRow};

/// The number of variables with a map of their own.
const MAPS: usize = 30;
/// The most entries of the map of all memory.
const ALL_ENTRIES: usize = 100_000;
/// The most entries of a variable's map: of the hottest variable's, and of each of the last.
const MOST_ENTRIES: usize = 80_000;
const LEAST_ENTRIES: usize = 5_000;

/// The page's data.
#[derive(Debug, Serialize)]
pub(crate) struct Content {
    /// The command line of the program.
    pub(crate) title: String,
    pub(crate) atoll_version: String,
    /// The start, in seconds since 1970, UTC.
    pub(crate) started: f64,
    pub(crate) seconds: f64,
    pub(crate) summary: Vec<String>,
    pub(crate) findings: Vec<String>,
    /// The number of accesses that were counted.
    pub(crate) accesses: u64,
    pub(crate) nowhere: u64,
    /// The name of the second sampler's samples; `None` where there is no second sampler.
    pub(crate) second: Option<String>,
    /// Whether the sampler tells reads from writes.
    pub(crate) tells_writes: bool,
    pub(crate) variables: Vec<VariableRow>,
    pub(crate) more_variables: usize,
    pub(crate) regions: Vec<RegionRow>,
    pub(crate) more_regions: usize,
    pub(crate) workers: Vec<WorkerRow>,
    pub(crate) maps: Vec<Map>,
    /// The worker of each lane of the maps by worker; `None`: several workers.
    pub(crate) lanes: Vec<Option<u32>>,
    pub(crate) block_bytes: u64,
    pub(crate) pages_by_accesses: Histogram,
    /// The share of accesses estimated to go to pages that no sample saw; and whether the report says anything of sizes by
    /// page.
    pub(crate) unseen: f64,
    pub(crate) pages_tell: bool,
    pub(crate) pages_by_workers: Histogram,
    /// The runtime's own count of core maps; empty where the program ran without it.
    pub(crate) core_maps: Vec<u64>,
    pub(crate) wakeups: Histogram,
    pub(crate) sampler: String,
    pub(crate) hottest_pages: Shares,
    pub(crate) lru: Shares,
    pub(crate) lru_reuses: u64,
    pub(crate) lru_followed: f64,
    pub(crate) placed: Vec<Placed>,
}

impl Content {
    /// Builds the content from a profile and its counts.
    pub(crate) fn of(profile: &Profile, analysis: &Analysis) -> Self {
        let cells = &analysis.cells;
        let pages = pages::pages(cells);
        let peaks = tables::peak_bytes(&profile.spans, profile.variables.len());
        let (variables, more_variables) = tables::variables(profile, analysis, &peaks);
        let (regions, more_regions) = tables::regions(profile, analysis);
        let hottest_pages =
            placement::hottest_pages(pages.iter().map(|p| p.accesses).collect(), cells.block_bytes);
        let known = Known {
            profile,
            analysis,
            variables: &variables,
            regions: &regions,
            pages: &pages,
            hottest_pages: &hottest_pages,
        };
        let (summary, findings) = (findings::summary(&known), findings::findings(&known));
        let by_worker: Vec<u64> = analysis.workers.iter().map(|c| c.total()).collect();
        let lanes = Lanes::of(&by_worker);
        let mut maps = vec![heat::map(None, cells.iter(), cells, &lanes, ALL_ENTRIES)];
        for (rank, row) in variables.iter().take(MAPS).enumerate() {
            let most = (MOST_ENTRIES / (rank + 1)).max(LEAST_ENTRIES);
            maps.push(heat::map(Some(row.variable), cells.of_variable(row.variable), cells, &lanes, most));
        }
        // Often little of a large variable is used. Pages show that where they were sampled well.
        let pages_tell = analysis.coverage.tells();
        let room = |row: &VariableRow| {
            let seen = row.pages.saturating_mul(cells.block_bytes);
            let bytes = row.bytes.map_or(seen, |bytes| if pages_tell { bytes.min(seen) } else { bytes });
            (row.variable, bytes, row.accesses)
        };
        let placed = placement::variables(variables.iter().map(room).collect(), analysis.all.total());
        let curve = analysis.reuse.as_ref();
        let page_bytes = u64::from(profile.header.page_bytes.max(1));
        let info = |sampler: usize| profile.header.samplers.get(sampler);
        Self {
            title: profile.header.arguments.join(" "),
            atoll_version: profile.header.atoll_version.clone(),
            started: profile.header.started_unix_seconds,
            seconds: profile.seconds(),
            summary,
            findings,
            accesses: analysis.all.total(),
            nowhere: analysis.nowhere,
            second: analysis.second.and_then(info).map(|i| i.name.clone()),
            tells_writes: info(analysis.first).is_some_and(|i| i.reads && i.writes),
            workers: tables::workers(profile, analysis),
            lanes: lanes.workers(),
            maps,
            block_bytes: cells.block_bytes,
            unseen: analysis.coverage.unseen,
            pages_tell,
            pages_by_accesses: pages::by_count(pages.iter().map(|p| p.accesses)),
            pages_by_workers: pages::by_count(pages.iter().map(|p| u64::from(p.workers))),
            core_maps: profile.figures.as_ref().map_or_else(Vec::new, |f| f.pages_by_core_map_count.clone()),
            wakeups: pages::between_wakeups(&profile.wakeups, analysis.first),
            sampler: info(analysis.first).map_or_else(String::new, |i| i.name.clone()),
            lru: curve.map_or_else(Shares::default, |c| placement::lru(c, page_bytes)),
            lru_reuses: curve.map_or(0, |c| c.reuses),
            lru_followed: curve.map_or(0.0, |c| c.followed),
            hottest_pages,
            placed,
            variables,
            more_variables,
            regions,
            more_regions,
        }
    }
}
