//! The trait of samplers: a sampler is attached to threads and finds their accesses.
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
    /// The time, by CLOCK_MONOTONIC, in nanoseconds.
    pub time_ns: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The address of the instruction; 0: not known.
    pub ip: u64,
    /// The address touched.
    pub address: u64,
    /// Whether the access reads or writes.
    pub access: Access,
    /// The weight, as [`SamplerInfo::weight`] defines it; 0: none.
    pub weight: u64,
    /// The kernel's `perf_mem_data_src`; 0: not known.
    pub source: u64,
    /// The physical address; 0: not known.
    pub physical: u64,
    /// Whether the thread was handling a fault of an access of its own, which `address` and `ip` do not name.
    pub paging: bool,
}

/// The counts of one harvest, beside the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Harvest {
    /// The number of records in the buffers.
    pub records: u64,
    /// The number of bytes of these records.
    pub bytes: u64,
    /// The number of records whose address is not known.
    pub without_address: u64,
    /// The number of samples that the kernel lost because its buffer was full.
    pub lost: u64,
    /// The number of times that the kernel throttled the event.
    pub throttled: u64,
    /// The number of bytes in the fullest buffer.
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

/// The reason why a sampler is not available.
#[derive(thiserror::Error, Debug)]
pub enum SamplerError {
    /// The kernel forbids it, for this reason.
    #[error("the kernel forbids it (kernel.perf_event_paranoid is {0}): {advice}", advice = advice(.0))]
    Forbidden(String),
    /// This processor or this kernel does not have it.
    #[error("{0}")]
    Absent(String),
    /// Another program uses what it needs.
    #[error("another user has the processor's counters: end the other profiler, or a watchdog that uses one")]
    Busy,
    /// Less memory may be locked than its buffers need.
    #[error(
        "its buffers of {0} kB are more than may be locked: a smaller --buffer, `ulimit -l`, or kernel.perf_event_mlock_kb"
    )]
    Memory(usize),
    /// Any other error of the kernel.
    #[error("{what}: {error}")]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
}

/// Returns advice on how to allow perf, where `kernel.perf_event_paranoid` has this value.
fn advice(paranoid: &str) -> &'static str {
    match paranoid.parse::<i32>() {
        // A value of two is enough for a user's own programs.
        Ok(level) if level <= 2 => {
            "that is low enough, so a filter of system calls forbids it, as containers have: allow perf_event_open there"
        }
        _ => "`sysctl kernel.perf_event_paranoid=2` as root, or CAP_PERFMON",
    }
}

/// The knobs of every sampler: the paper's reset value and buffer size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knobs {
    /// The period: the count between two samples, in the sampler's unit.
    pub period: u64,
    /// Bytes of records between two wake-ups; a power of two of at least a page.
    pub buffer_bytes: usize,
    /// Whether a thread harvests at times of its own, so that buffers wake nobody.
    pub harvest_thread: bool,
}

/// A source of samples.
///
/// The default methods about threads, descriptors and periods serve samplers that are made of perf events
/// ([`events`](Self::events)).
pub trait Sampler: Send {
    /// Returns the sampler's description and settings.
    fn info(&self) -> SamplerInfo;

    /// Returns the perf events that the sampler is made of.
    fn events(&self) -> &[Attached] {
        &[]
    }

    /// Returns the perf events that the sampler is made of, to change them.
    fn events_mut(&mut self) -> &mut [Attached] {
        &mut []
    }

    /// Samples thread `tid` from now on; with `at_exec`, from when it executes a program.
    ///
    /// # Errors
    /// See [`SamplerError`]. A thread that is already gone is no error.
    fn attach(&mut self, pid: u32, tid: u32, at_exec: bool) -> Result<(), SamplerError> {
        let _ = pid;
        self.events_mut().iter_mut().try_for_each(|event| event.attach(tid, at_exec))
    }

    /// Takes everything found since the last harvest, for each thread in the order of time.
    fn harvest(&mut self, code: &mut dyn CodeBytes, found: &mut Vec<Found>) -> Harvest;

    /// Takes a report from inside the program; samplers whose work is done there use it.
    fn told(&mut self, mark: &Mark) {
        let _ = mark;
    }

    /// Whether the sampler needs perf events.
    fn needs_perf(&self) -> bool {
        true
    }

    /// Forgets thread `tid`, which has ended and whose buffer was harvested.
    fn detach(&mut self, tid: u32) {
        self.events_mut().iter_mut().for_each(|event| event.detach(tid));
    }

    /// Notes that process `pid` executes another program.
    fn executed(&mut self, pid: u32) {
        let _ = pid;
    }

    /// Calls `each` with the descriptors that are readable when the buffers hold [`Knobs::buffer_bytes`].
    fn descriptors(&self, each: &mut dyn FnMut(RawFd)) {
        self.events().iter().for_each(|event| event.descriptors(each));
    }

    /// Returns the shortest period that the sampler can have.
    fn least_period(&self) -> u64 {
        1
    }

    /// Returns the current period.
    fn period(&self) -> u64 {
        self.events().first().map_or(0, Attached::period)
    }

    /// Sets the period for all threads.
    fn set_period(&mut self, period: u64) {
        let period = period.max(self.least_period());
        self.events_mut().iter_mut().for_each(|event| event.set_period(period));
    }

    /// Uses `factor` times the period for a while, so that samples do not keep step with the program's loops. The period itself
    /// stays.
    fn jitter(&mut self, factor: f64) {
        let factor = factor.max(self.least_period() as f64 / self.period().max(1) as f64);
        self.events().iter().for_each(|event| event.jitter(factor));
    }

    /// Returns the seconds that one sample costs the program; 0: not known.
    fn seconds_a_sample(&self) -> f64;
}
