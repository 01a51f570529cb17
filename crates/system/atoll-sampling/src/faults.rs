//! The fault sampler: takes the kernel's page-fault event, with the exact addresses.
//!
//! Each sample is a page that a thread's page table lacked, or forbade to write: a page's first touch, or a page that came back
//! from far memory or swap. Under atoll's runtime there are none of the arena, whose faults the runtime resolves itself. The
//! sampler shows which thread touches which memory first, and says nothing of how often. It costs less than the fault itself.
//! The buffer and the period are as for hardware samplers.

use atoll_record::profile::SamplerInfo;
use perf_event_open_sys::bindings as sys;

use crate::instruction::{CodeBytes, REGISTERS, Start};
use crate::perf::{Attached, Layout};
use crate::sampler::{Found, Harvest, Knobs, Sampler, SamplerError};
use crate::software::Software;

const LAYOUT: Layout = Layout {
    sample_type: (sys::PERF_SAMPLE_IP
        | sys::PERF_SAMPLE_TID
        | sys::PERF_SAMPLE_TIME
        | sys::PERF_SAMPLE_ADDR
        | sys::PERF_SAMPLE_REGS_USER) as u64,
    registers: REGISTERS,
    stack_bytes: 0,
};

/// The seconds of writing one record, beside the fault.
const SECONDS_A_SAMPLE: f64 = 3e-7;

/// The sampler of page faults.
#[derive(Debug)]
pub struct Faults {
    software: Software,
}

impl Faults {
    /// Sets the sampler up; the period is in faults.
    ///
    /// # Errors
    /// See [`SamplerError`]: the kernel is asked once whether it has the event.
    pub fn new(knobs: Knobs) -> Result<Self, SamplerError> {
        let knobs = Knobs { period: knobs.period.max(1), ..knobs };
        Ok(Self { software: Software::new(sys::PERF_COUNT_SW_PAGE_FAULTS, LAYOUT, knobs)? })
    }
}

impl Sampler for Faults {
    fn info(&self) -> SamplerInfo {
        let meaning = "a page that a thread touched and its page table lacked, or forbade to write";
        self.software.info("faults", meaning, "faults")
    }

    fn events(&self) -> &[Attached] {
        &self.software.event
    }

    fn events_mut(&mut self) -> &mut [Attached] {
        &mut self.software.event
    }

    fn harvest(&mut self, code: &mut dyn CodeBytes, found: &mut Vec<Found>) -> Harvest {
        let Software { event, instructions } = &mut self.software;
        event[0].harvest(|s, _| {
            // The kernel does not say whether the access was a write; the instruction does.
            let mut one = Found {
                time_ns: s.time,
                pid: s.pid,
                tid: s.tid,
                ip: s.ip,
                address: s.address,
                ..Found::default()
            };
            let start = Start { pid: s.pid, ip: s.ip, registers: s.registers(), stack: &[] };
            instructions.follow(start, 1, code, |touch| {
                if touch.address.is_some_and(|address| address >> 12 == s.address >> 12) {
                    one.access = touch.access;
                }
            });
            found.push(one);
        })
    }

    fn executed(&mut self, pid: u32) {
        self.software.instructions.forget(pid);
    }

    fn seconds_a_sample(&self) -> f64 {
        SECONDS_A_SAMPLE
    }
}
