//! The parts that the samplers of the kernel's own events share: the event, and the instructions by which they find accesses.
//!
//! `timer` and `faults` are such samplers. Those of the processor's events are in `hardware`.

use atoll_record::profile::SamplerInfo;
use perf_event_open_sys::bindings as sys;

use crate::instruction::Instructions;
use crate::perf::{Attached, Layout, Setup};
use crate::sampler::{Knobs, SamplerError};

/// One of the kernel's own events, and the instructions of the threads that it is attached to.
#[derive(Debug)]
pub(crate) struct Software {
    pub(crate) event: [Attached; 1],
    pub(crate) instructions: Instructions,
}

impl Software {
    /// Sets up the event `config` (`PERF_COUNT_SW_…`) with the period and buffer of `knobs`.
    ///
    /// # Errors
    /// See [`SamplerError`]: the kernel is asked once whether it has the event.
    pub(crate) fn new(config: sys::perf_sw_ids, layout: Layout, knobs: Knobs) -> Result<Self, SamplerError> {
        let event = [Attached::new(Setup {
            kind: sys::PERF_TYPE_SOFTWARE,
            config: u64::from(config),
            period: knobs.period,
            layout,
            ..Setup::of(&knobs)
        })?];
        Ok(Self { event, instructions: Instructions::default() })
    }

    /// Returns the description of a sampler that finds reads and writes, to the byte.
    pub(crate) fn info(&self, name: &str, meaning: &str, period_unit: &str) -> SamplerInfo {
        SamplerInfo {
            name: name.into(),
            meaning: meaning.into(),
            period: self.event[0].period(),
            period_unit: period_unit.into(),
            buffer_bytes: self.event[0].setup().wakeup_bytes as u64,
            reads: true,
            writes: true,
            byte_addresses: true,
            ..SamplerInfo::default()
        }
    }
}
