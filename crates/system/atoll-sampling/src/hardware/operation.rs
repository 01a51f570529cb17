//! A processor's own record of a sampled operation, decoded.
//!
//! `ibs` and `spe` decode to it, and the hardware sampler makes accesses of it.

use atoll_record::profile::Access;

use crate::sampler::Found;

/// A sampled operation (for AMD: a micro-operation).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Operation {
    /// The address of the operation's instruction.
    pub ip: u64,
    /// Whether it loads or stores; `None`: neither.
    pub access: Option<Access>,
    /// The address of the data, without a tag, if the processor knows it.
    pub address: Option<u64>,
    /// The physical address of the data, if the processor knows it.
    pub physical: Option<u64>,
    /// The cycles that it took: for IBS, those of a load which missed the first cache; for SPE, from issue to completion.
    pub latency: u16,
    /// SPE's system counter at the operation; 0: not recorded.
    pub timestamp: u64,
}

impl Operation {
    /// Returns the access, with everything else from `of`; `None` where the operation has no data address.
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
