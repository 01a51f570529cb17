//! What a sampler is: something that is attached to threads and finds accesses of theirs.
//!
//! `timer`, `faults` and `hardware` are samplers; the recorder drives them. One suite of tests runs against each
//! (`tests/conformance.rs`).

use std::io;
use std::os::fd::RawFd;

use atoll_profile_wire::Mark;
use atoll_record::profile::{Access, SamplerInfo};

use crate::instruction::CodeBytes;
use crate::perf::Attached;

/// An access that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found {
    /// When, by CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Whose process.
    pub pid: u32,
    /// Whose thread.
    pub tid: u32,
    /// The instruction; 0: not known.
    pub ip: u64,
    /// The address touched.
    pub address: u64,
    /// Read or write.
    pub access: Access,
    /// As [`SamplerInfo::weight`] says; 0: none.
    pub weight: u64,
    /// The kernel's `perf_mem_data_src`; 0: not known.
    pub source: u64,
    /// Physical address; 0: not known.
    pub physical: u64,
    /// The thread was handling a fault of an access of its own, which `address` and `ip` do not tell of.
    pub paging: bool,
}

/// What one harvest found beside the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Harvest {
    /// Records in the buffers.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records without an address that is known.
    pub without_address: u64,
    /// Samples the kernel lost, its buffer being full.
    pub lost: u64,
    /// How often the kernel throttled.
    pub throttled: u64,
    /// Bytes in the fullest of the buffers.
    pub fullest: u64,
}

impl std::ops::AddAssign for Harvest {
    fn add_assign(&mut self, other: Self) {
        self.records += other.records;
        self.bytes += other.bytes;
        self.without_address += other.without_address;
        self.lost += other.lost;
        self.throttled += other.throttled;
        self.fullest = self.fullest.max(other.fullest);
    }
}

/// Why a sampler cannot be had.
#[derive(thiserror::Error, Debug)]
pub enum SamplerError {
    /// The kernel forbids it.
    #[error("the kernel forbids it (kernel.perf_event_paranoid is {0}): {advice}", advice = advice(.0))]
    Forbidden(String),
    /// Neither this processor nor this kernel has it.
    #[error("{0}")]
    Absent(String),
    /// Somebody else has what it needs.
    #[error("another user has the processor's counters: end the other profiler, or a watchdog that uses one")]
    Busy,
    /// Too little memory may be locked for its buffers.
    #[error(
        "its buffers of {0} kB are more than may be locked: a smaller --buffer, `ulimit -l`, or kernel.perf_event_mlock_kb"
    )]
    Memory(usize),
    /// Anything else.
    #[error("{what}: {error}")]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
}

/// What lets perf be used where `kernel.perf_event_paranoid` is this.
fn advice(paranoid: &str) -> &'static str {
    match paranoid.parse::<i32>() {
        // Two is enough for a user's own programs.
        Ok(level) if level <= 2 => {
            "that is low enough, so a filter of system calls forbids it, as containers have: allow perf_event_open there"
        }
        _ => "`sysctl kernel.perf_event_paranoid=2` as root, or CAP_PERFMON",
    }
}

/// The knobs of every sampler: the paper's reset value and buffer size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knobs {
    /// What is counted between two samples, in the sampler's unit.
    pub period: u64,
    /// Bytes of records between two wake-ups; a power of two of at least a page.
    pub buffer_bytes: usize,
    /// No wake-ups: somebody harvests at times of his own.
    pub harvest_thread: bool,
}

/// A source of samples.
///
/// What threads, descriptors and periods ask for has an answer here for samplers that are made of perf events
/// ([`events`](Self::events)).
pub trait Sampler: Send {
    /// What it is and how it is set.
    fn info(&self) -> SamplerInfo;

    /// The events it is made of.
    fn events(&self) -> &[Attached] {
        &[]
    }

    /// The same, to change them.
    fn events_mut(&mut self) -> &mut [Attached] {
        &mut []
    }

    /// Samples thread `tid` from now on; with `at_exec`, from when it executes a program.
    ///
    /// # Errors
    /// See [`SamplerError`]. A thread that is gone already is none.
    fn attach(&mut self, pid: u32, tid: u32, at_exec: bool) -> Result<(), SamplerError> {
        let _ = pid;
        self.events_mut().iter_mut().try_for_each(|event| event.attach(tid, at_exec))
    }

    /// Takes what was found since the last harvest, of each thread in order of time.
    fn harvest(&mut self, code: &mut dyn CodeBytes, found: &mut Vec<Found>) -> Harvest;

    /// The program's inside tells something: a sampler whose work is done there takes it.
    fn told(&mut self, mark: &Mark) {
        let _ = mark;
    }

    /// Does it need perf events?
    fn needs_perf(&self) -> bool {
        true
    }

    /// Thread `tid` is over: what it left was harvested.
    fn detach(&mut self, tid: u32) {
        self.events_mut().iter_mut().for_each(|event| event.detach(tid));
    }

    /// Process `pid` executes another program.
    fn executed(&mut self, pid: u32) {
        let _ = pid;
    }

    /// Descriptors that are readable when the buffers hold [`Knobs::buffer_bytes`].
    fn descriptors(&self, each: &mut dyn FnMut(RawFd)) {
        self.events().iter().for_each(|event| event.descriptors(each));
    }

    /// The shortest period it can have.
    fn least_period(&self) -> u64 {
        1
    }

    /// The period now.
    fn period(&self) -> u64 {
        self.events().first().map_or(0, Attached::period)
    }

    /// Sets the period for all threads.
    fn set_period(&mut self, period: u64) {
        let period = period.max(self.least_period());
        self.events_mut().iter_mut().for_each(|event| event.set_period(period));
    }

    /// Uses `factor` times the period for a while, so that samples do not keep step with the program's loops. The period
    /// stays what it is.
    fn jitter(&mut self, factor: f64) {
        let factor = factor.max(self.least_period() as f64 / self.period().max(1) as f64);
        self.events().iter().for_each(|event| event.jitter(factor));
    }

    /// What one sample costs the program, in seconds; 0: not known.
    fn seconds_a_sample(&self) -> f64;
}
