//! A sample with everything that is known of it, as a row of a table.

use atoll_record::profile::{Access, Place, Profile, Region, Sample, Variable, Worker};

/// Names of the columns, for tables.
pub(super) const COLUMNS: [&str; 14] = [
    "time_ns", "sampler", "worker", "thread", "address", "page", "access", "weight", "ip", "variable",
    "kind", "place", "region", "offset",
];

/// A sample and what it touched.
pub(super) struct Row<'a> {
    pub(super) sample: Sample,
    pub(super) sampler: &'a str,
    pub(super) worker: Option<&'a Worker>,
    pub(super) variable: Option<&'a Variable>,
    pub(super) region: Option<&'a Region>,
    /// The distance from the beginning of the variable's memory.
    pub(super) offset: Option<u64>,
    pub(super) page: u64,
}

impl<'a> Row<'a> {
    /// Makes the row of a sample.
    pub(super) fn new(profile: &'a Profile, sampler: usize, sample: Sample, place: Place) -> Self {
        let span = place.span.and_then(|span| profile.spans.get(span as usize));
        Self {
            sample,
            sampler: profile.header.samplers.get(sampler).map_or("", |info| &*info.name),
            worker: profile.workers.get(sample.worker as usize),
            variable: place.variable.and_then(|v| profile.variables.get(v as usize)),
            region: place.region.and_then(|r| profile.regions.get(r as usize)),
            offset: span.map(|span| sample.address.wrapping_sub(span.start)),
            page: sample.address / u64::from(profile.header.page_bytes.max(1)),
        }
    }

    /// Returns whether the access read, wrote, or faulted and waited for its page; empty if not known.
    pub(super) fn access(&self) -> &'static str {
        if self.sample.is_paging() {
            return "paging";
        }
        match self.sample.access {
            Access::Read => "read",
            Access::Write => "write",
            Access::Unknown => "",
        }
    }
}
