//! The timer sampler: at random times of a thread, what the instruction touches that comes next.
//!
//! Needs no PMU: the kernel's `cpu-clock` event interrupts a thread after so much of its own processor time, and hands out
//! its registers, from which [`Instructions`] knows the access. So samples are in proportion to the time that accesses take,
//! addresses are exact, and its cost is that of a timer's interrupt: a microsecond on bare machines, ten in many virtual ones.
//! As its period is in the thread's own time, its overhead is the same for every program.

use std::os::fd::RawFd;

use atoll_record::profile::SamplerInfo;
use perf_event_open_sys::bindings as sys;

use crate::instruction::{CodeBytes, Instructions, REGISTERS};
use crate::perf::{Attached, Layout, Setup};
use crate::sampler::{Found, Harvest, Knobs, Sampler, SamplerError};

/// The shortest period that the kernel keeps.
pub const LEAST_PERIOD_NS: u64 = 10_000;

const LAYOUT: Layout = Layout {
    sample_type: (sys::PERF_SAMPLE_IP
        | sys::PERF_SAMPLE_TID
        | sys::PERF_SAMPLE_TIME
        | sys::PERF_SAMPLE_REGS_USER) as u64,
    registers: REGISTERS,
};

/// The sampler.
#[derive(Debug)]
pub struct Timer {
    event: Attached,
    instructions: Instructions,
    seconds_a_sample: f64,
}

impl Timer {
    /// Sets it up; the period is in nanoseconds of a thread's processor time.
    ///
    /// # Errors
    /// See [`SamplerError`]: the kernel is asked once.
    pub fn new(knobs: Knobs, seconds_a_sample: f64) -> Result<Self, SamplerError> {
        if !cfg!(target_arch = "x86_64") {
            return Err(SamplerError::Absent("it knows the instructions of x86-64 only".into()));
        }
        let event = Attached::new(Setup {
            kind: sys::PERF_TYPE_SOFTWARE,
            config: u64::from(sys::PERF_COUNT_SW_CPU_CLOCK),
            period: knobs.period.max(LEAST_PERIOD_NS),
            layout: LAYOUT,
            ..Setup::of(&knobs)
        })?;
        Ok(Self { event, instructions: Instructions::default(), seconds_a_sample })
    }
}

impl Sampler for Timer {
    fn info(&self) -> SamplerInfo {
        SamplerInfo {
            name: "timer".into(),
            meaning: "what the next access of a thread is, at times spread over its processor time".into(),
            period: self.event.period(),
            period_unit: "ns".into(),
            buffer_bytes: self.event.setup().wakeup_bytes as u64,
            reads: true,
            writes: true,
            byte_addresses: true,
            ..SamplerInfo::default()
        }
    }

    fn attach(&mut self, _pid: u32, tid: u32, at_exec: bool) -> Result<(), SamplerError> {
        self.event.attach(tid, at_exec)
    }

    fn harvest(&mut self, code: &mut dyn CodeBytes, found: &mut Vec<Found>) -> Harvest {
        self.event.harvest(|s, harvest| {
            let before = found.len();
            self.instructions.accesses(s.pid, s.ip, s.registers(), code, |touch| {
                found.push(Found {
                    time_ns: s.time,
                    pid: s.pid,
                    tid: s.tid,
                    ip: touch.ip,
                    address: touch.address,
                    access: touch.access,
                    ..Found::default()
                });
            });
            harvest.without_address += u64::from(found.len() == before);
        })
    }

    fn detach(&mut self, tid: u32) {
        self.event.detach(tid);
    }

    fn executed(&mut self, pid: u32) {
        self.instructions.forget(pid);
    }

    fn descriptors(&self, each: &mut dyn FnMut(RawFd)) {
        self.event.descriptors(each);
    }

    fn period(&self) -> u64 {
        self.event.period()
    }

    fn set_period(&mut self, period: u64) {
        self.event.set_period(period.max(LEAST_PERIOD_NS));
    }

    fn jitter(&mut self, factor: f64) {
        self.event.jitter(factor.max(LEAST_PERIOD_NS as f64 / self.event.period() as f64));
    }

    fn seconds_a_sample(&self) -> f64 {
        self.seconds_a_sample
    }
}
