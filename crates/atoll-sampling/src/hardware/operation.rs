//! What a processor's own record of a sampled operation says.
//!
//! `ibs` and `spe` decode to it; the sampler makes accesses of it.

use atoll_record::profile::Access;

use crate::sampler::Found;

/// A sampled operation (of AMD: a micro-operation).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Operation {
    /// Its instruction.
    pub ip: u64,
    /// Load or store; none: neither.
    pub access: Option<Access>,
    /// Address of the data, without a tag, if the processor knows it.
    pub address: Option<u64>,
    /// Physical address, if it knows that.
    pub physical: Option<u64>,
    /// Cycles it took: of IBS, a load which missed the first cache; of SPE, from issue to completion.
    pub latency: u16,
    /// SPE's system counter; 0: not recorded.
    pub timestamp: u64,
}

impl Operation {
    /// The access, with what else is known of it in `of`; none where it has no data address.
    pub fn found(&self, of: Found) -> Option<Found> {
        Some(Found {
            ip: self.ip,
            address: self.address?,
            access: self.access?,
            weight: u64::from(self.latency),
            physical: self.physical.unwrap_or(of.physical),
            ..of
        })
    }
}
