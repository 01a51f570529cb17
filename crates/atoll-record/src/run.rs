//! Chunk `run`: what was run, how, where and when.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::container::Tag;

/// The chunk's tag.
pub const TAG: Tag = Tag::new("run");

/// What was run, how, where and when.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// The atoll that ran it.
    pub atoll_version: String,
    /// The file that was executed.
    pub path: String,
    /// Its arguments, its name first. Bytes that are no UTF-8 are replaced.
    pub arguments: Vec<String>,
    /// Working directory.
    pub directory: String,
    /// Variables of the environment whose names start with OMP_ or GOMP_.
    pub environment: BTreeMap<String, String>,
    /// What was decided before the start.
    pub settings: Settings,
    /// Where it ran.
    pub machine: Machine,
    /// When it started, in seconds since 1970 (UTC).
    pub started_unix_seconds: f64,
    /// From start to end.
    pub wall_seconds: f64,
    /// How it ended.
    pub ending: Ending,
}

/// What was decided before the start.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Near limit; none: no limit.
    pub near_bytes: Option<u64>,
    /// Page size.
    pub page_bytes: u64,
    /// `private` or `shared`.
    pub page_tables: String,
    /// `self` or `thread`.
    pub faults: String,
    /// Workers of a team.
    pub workers: u32,
    /// Replacement policy with its options.
    pub policy: String,
    /// Far store.
    pub far: String,
    /// Limit of far memory; none: no limit.
    pub far_limit_bytes: Option<u64>,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Its name.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// Model of its processor.
    pub cpu: String,
    /// CPUs that are online.
    pub cpus_online: u32,
    /// Of these, those the run could use.
    pub cpus_usable: u32,
    /// Memory.
    pub memory_bytes: u64,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ending {
    /// Exit status, if it ended by one.
    pub status: Option<i32>,
    /// Signal, if it ended by one.
    pub signal: Option<i32>,
}
