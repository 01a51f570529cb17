//! What takes the pages that memory has no room for: lenders with a file behind them where there are lenders, otherwise a file alone.
//!
//! `auto` asks it after its own tiers; `hosts` and `file` do the work.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic. (`Behind::new` is set-up code.)

use std::sync::Arc;

use super::file::FileStore;
use super::hosts::HostsStore;
use super::lane::{Lane, Lanes};
use super::{FarConfig, FarError, FarStore, Transfer};

/// The tier by which the lanes count pages of a file.
const FILE: usize = 1;

/// The stores behind memory.
pub(super) enum Behind {
    File(Box<FileStore>),
    Hosts(Box<HostsStore>),
}

impl Behind {
    /// Bytes of scratch memory that the stores use of each lane.
    pub(super) fn scratch_bytes(config: &FarConfig) -> usize {
        if config.has_lenders() { HostsStore::scratch_bytes(config) } else { FileStore::SCRATCH_BYTES }
    }

    /// The stores, with their scratch memory at `scratch_at` of each lane's; `None` where there are no lenders and no file can be made.
    ///
    /// # Errors
    /// Those of `HostsStore`, where there are lenders.
    pub(super) fn new(
        config: &FarConfig,
        lanes: Arc<Lanes>,
        scratch_at: usize,
    ) -> Result<Option<Self>, FarError> {
        if config.has_lenders() {
            let hosts = HostsStore::with_lanes(config, lanes, scratch_at)?;
            return Ok(Some(Self::Hosts(Box::new(hosts))));
        }
        Ok(FileStore::with_lanes(None, config, lanes, FILE, scratch_at)
            .ok()
            .map(|file| Self::File(Box::new(file))))
    }

    /// The copy of the page is worthless.
    pub(super) fn forget(&self, page: u64) {
        match self {
            Self::File(file) => file.forget(page),
            Self::Hosts(hosts) => hosts.forget(page),
        }
    }

    pub(super) fn store(&self, lane: &mut Lane, pages: &[Transfer]) -> Result<(), FarError> {
        match self {
            Self::File(file) => file.store(lane, pages),
            Self::Hosts(hosts) => hosts.store(lane, pages),
        }
    }

    pub(super) fn load(&self, lane: &mut Lane, pages: &[Transfer]) -> Result<(), FarError> {
        match self {
            Self::File(file) => file.load(lane, pages),
            Self::Hosts(hosts) => hosts.load(lane, pages),
        }
    }

    pub(super) fn discard(&self, first: u64, count: u64) {
        match self {
            Self::File(file) => file.discard(first, count),
            Self::Hosts(hosts) => hosts.discard(first, count),
        }
    }

    /// Pages held.
    pub(super) fn pages_held(&self) -> u64 {
        match self {
            Self::File(file) => file.pages_held(),
            Self::Hosts(hosts) => hosts.pages_held(),
        }
    }

    /// Memory of lenders and disk taken for pages.
    pub(super) fn reserved_bytes(&self) -> u64 {
        match self {
            Self::File(file) => file.usage().bytes_reserved,
            Self::Hosts(hosts) => hosts.reserved_bytes(),
        }
    }

    /// Whether pages lie in memory that lenders may want back.
    pub(super) fn borrows(&self) -> bool {
        matches!(self, Self::Hosts(_))
    }

    /// See [`FarStore::give_back`].
    pub(super) fn give_back(&self, lane: &mut Lane) -> bool {
        match self {
            Self::File(_) => false,
            Self::Hosts(hosts) => hosts.give_back(lane),
        }
    }
}
