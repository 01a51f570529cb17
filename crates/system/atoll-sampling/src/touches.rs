//! Fault sampling through private page tables: pages are dropped at random, and a worker that faults on one again has touched
//! it.
//!
//! It needs no PMU and no perf, but atoll's runtime, in which a worker is a process with a page table of its own.
//! `atoll-memory`'s `pager::sample` drops mappings of each worker at the period set here, and the journal reports which worker
//! faulted again. Each sample is a worker's touch of a page chosen at random among all that it maps, so every page in use is
//! seen sooner or later. The sampler shows which pages are in use and by which worker better than how often.

use atoll_profile_wire::{Mark, What as Marked};
use atoll_record::profile::{Access, SamplerInfo};

use crate::instruction::CodeBytes;
use crate::sampler::{Found, Harvest, Sampler};

/// The seconds that a drop and the fault behind it cost, measured on Linux 6.18 in a virtual machine.
pub const SECONDS_A_SAMPLE: f64 = 4.5e-6;

/// The sampler of touches; the runtime does its work.
#[derive(Debug)]
pub struct Touches {
    period_ns: u64,
    found: Vec<Found>,
}

impl Touches {
    /// Makes the sampler for a runtime that was told to drop a page of each worker every `period_ns`.
    pub fn new(period_ns: u64) -> Self {
        Self { period_ns, found: Vec::new() }
    }
}

impl Sampler for Touches {
    fn info(&self) -> SamplerInfo {
        SamplerInfo {
            name: "touches".into(),
            meaning: "the first touch of a page that was dropped from a worker's page table at random".into(),
            period: self.period_ns,
            period_unit: "ns of a worker's processor time".into(),
            reads: true,
            writes: true,
            byte_addresses: true,
            ..SamplerInfo::default()
        }
    }

    fn told(&mut self, mark: &Mark) {
        if let Marked::Touch { address, write, tid, ip } = mark.what {
            let access = if write { Access::Write } else { Access::Read };
            let Mark { time_ns, pid, .. } = *mark;
            self.found.push(Found { time_ns, pid, tid, ip, address, access, ..Found::default() });
        }
    }

    fn needs_perf(&self) -> bool {
        false
    }

    fn harvest(&mut self, _code: &mut dyn CodeBytes, found: &mut Vec<Found>) -> Harvest {
        let records = self.found.len() as u64;
        found.append(&mut self.found);
        Harvest { records, bytes: records * size_of::<Mark>() as u64, ..Harvest::default() }
    }

    fn period(&self) -> u64 {
        self.period_ns
    }

    /// Does nothing: the runtime reads its period once.
    fn set_period(&mut self, _period: u64) {}

    fn seconds_a_sample(&self) -> f64 {
        SECONDS_A_SAMPLE
    }
}
