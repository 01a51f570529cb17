//! Counts samples by variable, region, worker and page.
//!
//! This is one pass over the record. The texts, tables and comparisons of a profile are made from it.

use std::collections::HashMap;

use atoll_record::profile::{Access, Doing, Profile, ProfileError};
use atoll_report::coverage::{Coverage, Sightings};

/// Counts of reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// The number of samples that read, or do not say.
    pub(crate) reads: u64,
    /// The number of samples that wrote.
    pub(crate) writes: u64,
}

impl Counts {
    fn add(&mut self, access: Access) {
        match access {
            Access::Write => self.writes += 1,
            Access::Read | Access::Unknown => self.reads += 1,
        }
    }

    /// Returns the number of all samples.
    pub(crate) fn total(&self) -> u64 {
        self.reads + self.writes
    }
}

/// The counts of a profile's samples.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// All samples.
    pub(crate) all: Counts,
    /// Samples of OpenMP's own code, which waits. They are in no other count.
    pub(crate) waiting: u64,
    /// Samples of atoll's runtime resolving faults. They are in no other count but `paging_of`.
    pub(crate) paging: u64,
    /// The samples of `paging`, by variable of the access.
    pub(crate) paging_of: Vec<u64>,
    /// Samples of other work of atoll's within the program. They are in no other count.
    pub(crate) own: u64,
    /// Samples in memory that is not known.
    pub(crate) nowhere: u64,
    /// The counts by variable.
    pub(crate) variables: Vec<Counts>,
    /// The samples by variable and worker.
    pub(crate) workers_of: HashMap<(u32, u32), u64>,
    /// The samples by variable and region (`u32::MAX`: outside of any).
    pub(crate) regions_of: HashMap<(u32, u32), u64>,
    /// The counts by worker.
    pub(crate) workers: Vec<Counts>,
    /// The counts by region.
    pub(crate) regions: Vec<Counts>,
    /// The share of the touched memory that the samples saw.
    pub(crate) coverage: Coverage,
    /// The counts by address space and page.
    pub(crate) pages: HashMap<(u32, u64), Counts>,
}

impl Tally {
    /// Counts a profile's samples.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn of(profile: &Profile) -> Result<Tally, ProfileError> {
        let mut tally = Tally {
            variables: vec![Counts::default(); profile.variables.len()],
            paging_of: vec![0; profile.variables.len()],
            workers: vec![Counts::default(); profile.workers.len()],
            regions: vec![Counts::default(); profile.regions.len()],
            ..Tally::default()
        };
        let page = u64::from(profile.header.page_bytes.max(1));
        let mut sightings = Sightings::default();
        let mut locator = profile.locator();
        for batch in profile.batches()? {
            for sample in &batch?.samples {
                let place = locator.place(sample);
                match place.doing(profile, sample) {
                    Doing::Access => {}
                    Doing::Waiting => {
                        tally.waiting += 1;
                        continue;
                    }
                    Doing::Paging => {
                        tally.paging += 1;
                        if let Some(variable) = place.variable {
                            tally.paging_of[variable as usize] += 1;
                        }
                        continue;
                    }
                    Doing::Own => {
                        tally.own += 1;
                        continue;
                    }
                }
                tally.all.add(sample.access);
                if let Some(worker) = tally.workers.get_mut(sample.worker as usize) {
                    worker.add(sample.access);
                }
                let region = place.region.unwrap_or(u32::MAX);
                if let Some(region) = tally.regions.get_mut(region as usize) {
                    region.add(sample.access);
                }
                match place.variable {
                    Some(variable) => {
                        tally.variables[variable as usize].add(sample.access);
                        *tally.workers_of.entry((variable, sample.worker)).or_default() += 1;
                        *tally.regions_of.entry((variable, region)).or_default() += 1;
                    }
                    None => tally.nowhere += 1,
                }
                let space = profile.workers.get(sample.worker as usize).map_or(0, |w| w.space);
                sightings.see(space, sample.address / page, sample.worker, sample.time_ns);
                tally.pages.entry((space, sample.address / page)).or_default().add(sample.access);
            }
        }
        tally.coverage = sightings.coverage();
        Ok(tally)
    }

    /// Returns the variables with samples, the hottest first.
    pub(crate) fn hottest(&self) -> Vec<(u32, Counts)> {
        let samples = |number: u32, counts: &Counts| counts.total() + self.paging_of[number as usize];
        let mut all: Vec<(u32, Counts)> = (0..).zip(self.variables.iter().copied()).collect();
        all.retain(|(number, counts)| samples(*number, counts) > 0);
        all.sort_by_key(|(number, counts)| (std::cmp::Reverse(samples(*number, counts)), *number));
        all
    }
}
