//! What a profile says of itself: before the first sample ([`Header`]) and after the last ([`Trailer`]).
//!
//! Both are JSON in their chunks: fields may be added, and a missing one is empty or zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::run::{Ending, Machine, Settings};

/// What is known before the first sample.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// [`FORMAT`](super::FORMAT) of what wrote it.
    pub format: u32,
    /// The atoll that wrote it.
    pub atoll_version: String,
    /// The file that was executed, as its variables' modules name it: from the root, without links.
    pub program: String,
    /// Its arguments, its name first. Bytes that are no UTF-8 are replaced.
    pub arguments: Vec<String>,
    /// Working directory.
    pub directory: String,
    /// Variables of the environment whose names start with OMP_ or GOMP_.
    pub environment: BTreeMap<String, String>,
    /// Where it ran.
    pub machine: Machine,
    /// When it started, in seconds since 1970 (UTC).
    pub started_unix_seconds: f64,
    /// Bytes of the pages that are counted.
    pub page_bytes: u32,
    /// Under atoll's runtime: what was decided there. None: the program ran as it is.
    pub settings: Option<Settings>,
    /// The samplers, in the order of their numbers in the samples' chunks.
    pub samplers: Vec<SamplerInfo>,
    /// Why these samplers were taken, in a sentence.
    pub choice: String,
    /// Samplers that were not taken, and why.
    pub refused: Vec<(String, String)>,
}

/// What accesses a sampler sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// It does not tell.
    #[default]
    Unknown,
    /// A load.
    Read,
    /// A store; also an instruction that reads and writes.
    Write,
}

/// A sampler as it was set.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplerInfo {
    /// Its name, as `--sampler` takes it.
    pub name: String,
    /// What one sample is, in words.
    pub meaning: String,
    /// The sampling period at the start, in `period_unit`: the paper's reset value.
    pub period: u64,
    /// `accesses`, `faults`, `ns`, or whatever is counted.
    pub period_unit: String,
    /// Bytes of records between two wake-ups: the paper's buffer size.
    pub buffer_bytes: u64,
    /// The overhead it is to hold, as a share of the program's time; none: the period is fixed.
    pub overhead_target: Option<f64>,
    /// Does a thread harvest at its own pace rather than on wake-ups?
    pub harvest_thread: bool,
    /// Does it see reads?
    pub reads: bool,
    /// Does it see writes?
    pub writes: bool,
    /// Are addresses exact to the byte, or only to the page?
    pub byte_addresses: bool,
    /// What a weight is (`cycles of latency`, `accesses`), empty where there are none.
    pub weight: String,
}

/// What one sampler did.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplerTotals {
    /// What it cost something for: interrupts, or pages protected or dropped; of one several samples may come.
    pub records: u64,
    /// Samples in the record.
    pub samples: u64,
    /// Samples of processes that were not profiled, or without an address.
    pub foreign: u64,
    /// Samples lost because a buffer of the kernel or the runtime was full.
    pub lost: u64,
    /// Samples dropped because this record's own bound was reached.
    pub dropped: u64,
    /// How often the kernel throttled it.
    pub throttled: u64,
    /// Threads that it could not be attached to.
    pub unsampled: u64,
    /// Wake-ups of the harvester.
    pub wakeups: u64,
    /// Its period at the end.
    pub last_period: u64,
    /// Cost of one of its records to the program, in seconds, as measured before the start or while it ran.
    pub seconds_a_sample: f64,
}

/// What is known after the last sample.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Trailer {
    /// By sampler.
    pub samplers: Vec<SamplerTotals>,
    /// Allocations, regions and other marks lost because their buffer was full.
    pub marks_lost: u64,
    /// From start to end.
    pub wall_seconds: f64,
    /// Processor time of the program, user and system.
    pub cpu_seconds: f64,
    /// Of that, what sampling took of it by the measured cost of a record.
    pub sampling_seconds: f64,
    /// Processor time of the harvester beside the program.
    pub harvest_seconds: f64,
    /// How the program ended.
    pub ending: Ending,
    /// The file of the program that most samples are of, as the kernel names it; empty: not known.
    pub program: String,
}

impl Trailer {
    /// What the program would have used without sampling, in seconds of processor time: what overheads are shares of.
    pub fn own_seconds(&self) -> f64 {
        (self.cpu_seconds - self.sampling_seconds).max(0.0)
    }

    /// Sampling's share of the program's processor time, harvesting included; 0 where nothing ran.
    pub fn overhead(&self) -> f64 {
        let own = self.own_seconds();
        if own > 0.0 { (self.sampling_seconds + self.harvest_seconds) / own } else { 0.0 }
    }
}
