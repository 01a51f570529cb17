//! One pass over a profile's samples: everything that the report counts.
//!
//! `cells` holds what maps and histograms need, and `reuse` the distances between touches. The tables are made from the counts
//! here. Samples of the best sampler are the accesses. Samples of a second one (page faults, touches of dropped pages) are
//! counted beside them by variable, as they are no accesses drawn evenly.

use std::collections::HashMap;

use atoll_record::profile::{Access, Doing, Profile, ProfileError, Sample};

use crate::cells::{Cell, Cells, NOWHERE, TIMES};
use crate::coverage::{Coverage, Sightings};
use crate::reuse::{Curve, Reuse};

/// The region of accesses outside of any region.
pub(crate) const NO_REGION: u32 = u32::MAX;

/// Counts of reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, write: bool, n: u64) {
        if write { self.writes += n } else { self.reads += n }
    }

    pub(crate) fn total(self) -> u64 {
        self.reads + self.writes
    }
}

/// The counts of one variable's samples.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OfVariable {
    pub(crate) accesses: Counts,
    /// The number of samples of the second sampler.
    pub(crate) second: u64,
    /// The number of samples taken while accesses to the variable faulted.
    pub(crate) paging: u64,
    /// The number of accesses whose data came from memory rather than a cache, where the sampler tells.
    pub(crate) from_memory: u64,
}

/// All counts of a profile.
#[derive(Debug)]
pub(crate) struct Analysis {
    /// The sampler whose samples are the accesses: an index of the header's.
    pub(crate) first: usize,
    /// The second sampler, which is counted beside it.
    pub(crate) second: Option<usize>,
    pub(crate) all: Counts,
    pub(crate) second_all: u64,
    /// The number of accesses whose source of data the sampler told; and the number of these from memory.
    pub(crate) with_source: u64,
    pub(crate) from_memory: u64,
    /// The number of samples of OpenMP's own code, which waits. They are in no other count.
    pub(crate) waiting: u64,
    /// The number of samples of atoll's runtime resolving faults. They are in no other count but their variable's.
    pub(crate) paging: u64,
    /// The number of samples of other work of atoll's within the program. They are in no other count.
    pub(crate) own: u64,
    /// The number of accesses in memory that is not known.
    pub(crate) nowhere: u64,
    pub(crate) variables: Vec<OfVariable>,
    pub(crate) regions: Vec<Counts>,
    pub(crate) workers: Vec<Counts>,
    /// The number of accesses by variable and region.
    pub(crate) regions_of: HashMap<(u32, u32), u64>,
    pub(crate) cells: Cells,
    pub(crate) reuse: Option<Curve>,
    /// The share of the touched memory that the samples saw.
    pub(crate) coverage: Coverage,
}

/// The bits of the kernel's `perf_mem_data_src` that name local and remote memory, and other caches far away.
const MEMORY_LEVELS: u64 = 0xf80;

/// Whether the data came from memory; `None`: not told.
fn from_memory(sample: &Sample) -> Option<bool> {
    let levels = sample.source >> 5 & 0x3fff;
    (levels & !1 != 0).then_some(levels & MEMORY_LEVELS != 0)
}

/// Returns the sampler whose samples are accesses, and the one that is counted beside it. Samplers that sample evenly come
/// before samplers that see pages coming back, and these before page faults.
fn roles(profile: &Profile) -> (usize, Option<usize>) {
    let rank = |name: &str| match name {
        "touches" => 1,
        "faults" => 2,
        _ => 0,
    };
    let mut samplers: Vec<(u32, usize)> =
        profile.header.samplers.iter().enumerate().map(|(i, info)| (rank(&info.name), i)).collect();
    samplers.sort_unstable();
    (samplers.first().map_or(0, |s| s.1), samplers.get(1).map(|s| s.1))
}

impl Analysis {
    /// Counts a profile's samples.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn of(profile: &Profile) -> Result<Self, ProfileError> {
        let page_bytes = u64::from(profile.header.page_bytes.max(1));
        let (first, second) = roles(profile);
        let mut found = Self {
            first,
            second,
            all: Counts::default(),
            second_all: 0,
            with_source: 0,
            from_memory: 0,
            waiting: 0,
            paging: 0,
            own: 0,
            nowhere: 0,
            variables: vec![OfVariable::default(); profile.variables.len()],
            regions: vec![Counts::default(); profile.regions.len()],
            workers: vec![Counts::default(); profile.workers.len()],
            regions_of: HashMap::new(),
            cells: Cells::new(page_bytes),
            reuse: None,
            coverage: Coverage::default(),
        };
        let (mut reuse, mut sightings) = (Reuse::new(), Sightings::default());
        let mut spaces: HashMap<u32, u32> = HashMap::new();
        let space_of: Vec<u32> = profile
            .workers
            .iter()
            .map(|worker| {
                let next = spaces.len() as u32;
                *spaces.entry(worker.space).or_insert(next)
            })
            .collect();
        // Samples come in runs of one variable and region. These are added up before the table is looked up.
        let mut run = ((NOWHERE, NO_REGION), 0u64);
        let end = u128::from(profile.end_ns) + 1;
        let mut locator = profile.locator();
        for batch in profile.batches()? {
            let batch = batch?;
            if batch.sampler != first && Some(batch.sampler) != second {
                continue;
            }
            for sample in &batch.samples {
                let place = locator.place(sample);
                match place.doing(profile, sample) {
                    Doing::Access => {}
                    Doing::Waiting => {
                        found.waiting += 1;
                        continue;
                    }
                    Doing::Paging => {
                        found.paging += 1;
                        if let Some(variable) =
                            place.variable.and_then(|v| found.variables.get_mut(v as usize))
                        {
                            variable.paging += 1;
                        }
                        continue;
                    }
                    Doing::Own => {
                        found.own += 1;
                        continue;
                    }
                }
                if batch.sampler != first {
                    found.second_all += 1;
                    if let Some(variable) = place.variable.and_then(|v| found.variables.get_mut(v as usize)) {
                        variable.second += 1;
                    }
                    continue;
                }
                let write = sample.access == Access::Write;
                let source = from_memory(sample);
                found.with_source += u64::from(source.is_some());
                found.from_memory += u64::from(source == Some(true));
                found.all.add(write, 1);
                if let Some(worker) = found.workers.get_mut(sample.worker as usize) {
                    worker.add(write, 1);
                }
                if let Some(region) = place.region.and_then(|r| found.regions.get_mut(r as usize)) {
                    region.add(write, 1);
                }
                match place.variable.and_then(|v| found.variables.get_mut(v as usize)) {
                    Some(variable) => {
                        variable.accesses.add(write, 1);
                        variable.from_memory += u64::from(source == Some(true));
                    }
                    None => found.nowhere += 1,
                }
                let variable = place.variable.map_or(NOWHERE, |v| v.min(NOWHERE));
                let key = (variable, place.region.unwrap_or(NO_REGION));
                if run.0 != key {
                    if run.1 > 0 {
                        *found.regions_of.entry(run.0).or_default() += run.1;
                    }
                    run = (key, 0);
                }
                run.1 += 1;
                let space = space_of.get(sample.worker as usize).copied().unwrap_or(0);
                let page = sample.address / page_bytes;
                let time =
                    (u128::from(sample.time_ns) * u128::from(TIMES) / end).min(u128::from(TIMES - 1)) as u32;
                found.cells.add(Cell { space, variable, page, time, worker: sample.worker, write });
                // Samples of one sighting are no reuse.
                if sightings.see(space, page, sample.worker, sample.time_ns) {
                    reuse.see(space, page);
                }
            }
        }
        if run.1 > 0 {
            *found.regions_of.entry(run.0).or_default() += run.1;
        }
        found.cells.finish();
        found.reuse = reuse.curve();
        found.coverage = sightings.coverage();
        Ok(found)
    }

    /// Returns a number of samples as a part of all samples, of whatever kind, from 0 to 1.
    pub(crate) fn part(&self, samples: u64) -> f64 {
        crate::text::share(samples, self.all.total() + self.waiting + self.paging + self.own)
    }

    /// Returns the variables with accesses, the hottest first.
    pub(crate) fn hottest(&self) -> Vec<u32> {
        let total = |v: &u32| {
            let of = &self.variables[*v as usize];
            of.accesses.total() + of.paging
        };
        let mut all: Vec<u32> = (0..self.variables.len() as u32).filter(|v| total(v) > 0).collect();
        all.sort_by_key(|v| (std::cmp::Reverse(total(v)), *v));
        all
    }

    /// Returns the regions of each variable with the accesses made in them, the most first.
    pub(crate) fn regions_of(&self) -> HashMap<u32, Vec<(u32, u64)>> {
        let mut by_variable: HashMap<u32, Vec<(u32, u64)>> = HashMap::new();
        for (&(variable, region), &n) in &self.regions_of {
            by_variable.entry(variable).or_default().push((region, n));
        }
        for regions in by_variable.values_mut() {
            regions.sort_by_key(|&(region, n)| (std::cmp::Reverse(n), region));
        }
        by_variable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_word_for_a_source_is_understood() {
        let source = |level: u64| from_memory(&Sample { source: level << 5, ..Sample::default() });
        assert_eq!(source(0), None);
        assert_eq!(source(1), None, "not available");
        assert_eq!(source(0x0a), Some(false), "hit in the first level");
        assert_eq!(source(0x82), Some(true), "local memory");
        assert_eq!(source(0x102), Some(true), "remote memory");
    }
}
