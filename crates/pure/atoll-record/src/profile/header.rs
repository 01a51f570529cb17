//! The description of a profile: before the first sample ([`Header`]) and after the last ([`Trailer`]).
//!
//! Both are JSON in their chunks: fields may be added, and a missing one is empty or zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::run::{Ending, Machine, Settings};

/// The description of a profile that is known before the first sample.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// The [`FORMAT`](super::FORMAT) of the atoll that wrote the profile.
    pub format: u32,
    /// The version of that atoll.
    pub atoll_version: String,
    /// The file that was executed, as the modules of its variables name it: from the root, without links.
    pub program: String,
    /// The program's arguments, its name first. Bytes that are no UTF-8 are replaced.
    pub arguments: Vec<String>,
    /// The working directory.
    pub directory: String,
    /// The variables of the environment whose names start with OMP_ or GOMP_.
    pub environment: BTreeMap<String, String>,
    /// The machine that it ran on.
    pub machine: Machine,
    /// The start time, in seconds since 1970 (UTC).
    pub started_unix_seconds: f64,
    /// The number of bytes of the pages that are counted.
    pub page_bytes: u32,
    /// The settings of atoll's runtime; `None`: the program ran without it.
    pub settings: Option<Settings>,
    /// The samplers, in the order of their numbers in the samples' chunks.
    pub samplers: Vec<SamplerInfo>,
    /// Why these samplers were taken, in a sentence.
    pub choice: String,
    /// Samplers that were not taken, and why.
    pub refused: Vec<(String, String)>,
}

/// The kinds of accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// The sampler does not tell.
    #[default]
    Unknown,
    /// A load.
    Read,
    /// A store; also an instruction that reads and writes.
    Write,
}

/// A sampler with its settings.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplerInfo {
    /// The sampler's name, as `--sampler` takes it.
    pub name: String,
    /// What one sample is, in words.
    pub meaning: String,
    /// The sampling period at the start, in `period_unit`: the paper's reset value.
    pub period: u64,
    /// The unit of the period: `accesses`, `faults`, `ns`, or whatever is counted.
    pub period_unit: String,
    /// Bytes of records between two wake-ups: the paper's buffer size.
    pub buffer_bytes: u64,
    /// The overhead to keep to, as a share of the program's time; `None`: the period is fixed.
    pub overhead_target: Option<f64>,
    /// Whether a thread harvests at its own pace rather than on wake-ups.
    pub harvest_thread: bool,
    /// Whether the sampler sees reads.
    pub reads: bool,
    /// Whether the sampler sees writes.
    pub writes: bool,
    /// Whether addresses are exact to the byte, rather than to the page.
    pub byte_addresses: bool,
    /// The meaning of a weight (`cycles of latency`, `accesses`); empty where there are none.
    pub weight: String,
}

/// The totals of one sampler.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplerTotals {
    /// The number of interrupts, or of pages protected or dropped, which cost the program time. One of them can give several
    /// samples.
    pub records: u64,
    /// The number of samples in the record.
    pub samples: u64,
    /// The number of samples of processes that were not profiled, or without an address.
    pub foreign: u64,
    /// The number of samples lost because a buffer of the kernel or the runtime was full.
    pub lost: u64,
    /// The number of samples dropped because this record's own bound was reached.
    pub dropped: u64,
    /// The number of times that the kernel throttled the sampler.
    pub throttled: u64,
    /// The number of threads that the sampler could not be attached to.
    pub unsampled: u64,
    /// The number of wake-ups of the harvester.
    pub wakeups: u64,
    /// The sampler's period at the end.
    pub last_period: u64,
    /// The cost of one record to the program, in seconds, as measured before the start or while it ran.
    pub seconds_a_sample: f64,
}

/// The description of a profile that is known after the last sample.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Trailer {
    /// The totals of each sampler.
    pub samplers: Vec<SamplerTotals>,
    /// The number of allocations, regions and other marks lost because their buffer was full.
    pub marks_lost: u64,
    /// The time from start to end, in seconds.
    pub wall_seconds: f64,
    /// The processor time of the program, user and system, in seconds.
    pub cpu_seconds: f64,
    /// The part of this that sampling took, by the measured cost of a record, in seconds.
    pub sampling_seconds: f64,
    /// The processor time of the harvester beside the program, in seconds.
    pub harvest_seconds: f64,
    /// How the program ended.
    pub ending: Ending,
    /// The file of the program that most samples are of, as the kernel names it; empty: not known.
    pub program: String,
}

impl Trailer {
    /// Returns the processor time that the program would have used without sampling, in seconds. Overheads are shares of it.
    pub fn own_seconds(&self) -> f64 {
        (self.cpu_seconds - self.sampling_seconds).max(0.0)
    }

    /// Returns sampling's share of the program's processor time, harvesting included; 0 where nothing ran.
    pub fn overhead(&self) -> f64 {
        let own = self.own_seconds();
        if own > 0.0 { (self.sampling_seconds + self.harvest_seconds) / own } else { 0.0 }
    }
}
