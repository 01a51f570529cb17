//! The timer sampler: at random times of a thread, it finds what the thread's next instructions touch.
//!
//! It needs no PMU. The kernel's `cpu-clock` event interrupts a thread after a period of its own processor time, and hands
//! out its registers and the top of its stack. From these [`instruction`](crate::instruction) finds the accesses of the
//! [`STRETCH`] instructions that follow. [`SAMPLES`] of them, spread over all, are samples.
//!
//! The interrupted instruction is mostly one that waits, and the instructions right behind it are seen more often than they are
//! executed. Over a stretch of many turns of a loop that averages out. So counts are close to those of accesses within a loop,
//! and in proportion to the time of each loop between loops. Addresses are exact where they follow from registers, and where
//! they follow from memory that did not change until the harvest.
//!
//! A sample costs a timer's interrupt: a microsecond on bare machines, ten in many virtual ones. The period is in the thread's
//! own time, so the overhead is the same for every program.

use atoll_profile_wire::Mark;
use atoll_record::profile::SamplerInfo;
use perf_event_open_sys::bindings as sys;

use crate::clock;
use crate::instruction::{CodeBytes, REGISTERS, STACK_POINTER, Start, Touch};
use crate::paging::FaultStacks;
use crate::perf::{Attached, Layout};
use crate::random::Random;
use crate::sampler::{Found, Harvest, Knobs, Sampler, SamplerError};
use crate::software::Software;

/// The shortest period that the kernel keeps, in nanoseconds.
pub const LEAST_PERIOD_NS: u64 = 10_000;

/// The number of instructions that are followed from where a thread is interrupted.
pub const STRETCH: usize = 256;
/// The number of samples of an interrupt, spread over the accesses of its stretch; an access of more than 8 bytes counts as
/// several.
pub const SAMPLES: u64 = 8;
/// The seconds that following the instructions behind an interrupt costs the harvester, measured on a virtual machine of two
/// processors.
pub const HARVEST_SECONDS: f64 = 15e-6;
/// The number of bytes of the stack that come with an interrupt: the function's own variables, where its registers are too few.
const STACK_BYTES: u32 = 256;

const LAYOUT: Layout = Layout {
    sample_type: (sys::PERF_SAMPLE_IP
        | sys::PERF_SAMPLE_TID
        | sys::PERF_SAMPLE_TIME
        | sys::PERF_SAMPLE_REGS_USER
        | sys::PERF_SAMPLE_STACK_USER) as u64,
    registers: REGISTERS,
    stack_bytes: STACK_BYTES,
};

/// The sampler driven by a timer.
#[derive(Debug)]
pub struct Timer {
    software: Software,
    stretch: Vec<Touch>,
    random: Random,
    fault_stacks: FaultStacks,
    seconds_a_sample: f64,
}

impl Timer {
    /// Sets the sampler up; the period is in nanoseconds of a thread's processor time.
    ///
    /// # Errors
    /// See [`SamplerError`]: the kernel is asked once whether it has the event.
    pub fn new(knobs: Knobs, seconds_a_sample: f64) -> Result<Self, SamplerError> {
        if !cfg!(target_arch = "x86_64") {
            return Err(SamplerError::Absent("it knows the instructions of x86-64 only".into()));
        }
        let knobs = Knobs { period: knobs.period.max(LEAST_PERIOD_NS), ..knobs };
        Ok(Self {
            software: Software::new(sys::PERF_COUNT_SW_CPU_CLOCK, LAYOUT, knobs)?,
            stretch: Vec::new(),
            random: Random::new(clock::now_ns()),
            fault_stacks: FaultStacks::default(),
            seconds_a_sample,
        })
    }
}

impl Sampler for Timer {
    fn info(&self) -> SamplerInfo {
        let meaning = "accesses of a thread's next instructions, at times spread over its processor time";
        self.software.info("timer", meaning, "ns")
    }

    fn events(&self) -> &[Attached] {
        &self.software.event
    }

    fn events_mut(&mut self) -> &mut [Attached] {
        &mut self.software.event
    }

    fn harvest(&mut self, code: &mut dyn CodeBytes, found: &mut Vec<Found>) -> Harvest {
        let Self { software: Software { event, instructions }, stretch, random, fault_stacks, .. } = self;
        instructions.fresh();
        event[0].harvest(|s, harvest| {
            let stack_pointer = s.registers().nth(STACK_POINTER).unwrap_or(0);
            if fault_stacks.holds(s.tid, stack_pointer) {
                // The sample stands for as much time as any other interrupt's, all of it of one access.
                let one = Found {
                    time_ns: s.time,
                    pid: s.pid,
                    tid: s.tid,
                    ip: s.ip,
                    paging: true,
                    ..Found::default()
                };
                found.extend((0..SAMPLES).map(|_| one));
                return;
            }
            stretch.clear();
            let start = Start { pid: s.pid, ip: s.ip, registers: s.registers(), stack: s.stack };
            instructions.follow(start, STRETCH, code, |touch| stretch.push(touch));
            // Each interrupt stands for the same time, whatever is in its stretch.
            let words = |touch: &Touch| f64::from(touch.bytes.div_ceil(8).max(1));
            let step = stretch.iter().map(words).sum::<f64>() / SAMPLES as f64;
            let (mut passed, mut next) = (0.0, random.share() * step);
            let before = found.len();
            for touch in stretch.iter() {
                passed += words(touch);
                while next < passed {
                    next += step;
                    let Some(address) = touch.address else { continue };
                    found.push(Found {
                        time_ns: s.time,
                        pid: s.pid,
                        tid: s.tid,
                        ip: touch.ip,
                        address,
                        access: touch.access,
                        ..Found::default()
                    });
                }
            }
            harvest.without_address += u64::from(found.len() == before);
        })
    }

    fn told(&mut self, mark: &Mark) {
        self.fault_stacks.told(mark);
    }

    fn executed(&mut self, pid: u32) {
        self.fault_stacks.forget(pid);
        self.software.instructions.forget(pid);
    }

    fn least_period(&self) -> u64 {
        LEAST_PERIOD_NS
    }

    fn seconds_a_sample(&self) -> f64 {
        self.seconds_a_sample
    }
}
