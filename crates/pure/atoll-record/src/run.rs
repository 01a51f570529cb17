//! The chunk `run`: what was run, how, where and when.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::container::Tag;

/// The chunk's tag.
pub const TAG: Tag = Tag::new("run");

/// The description of a run: what was run, how, where and when.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// The version of the atoll that ran the program.
    pub atoll_version: String,
    /// The file that was executed.
    pub path: String,
    /// The program's arguments, its name first. Bytes that are no UTF-8 are replaced.
    pub arguments: Vec<String>,
    /// The working directory.
    pub directory: String,
    /// The variables of the environment whose names start with OMP_ or GOMP_.
    pub environment: BTreeMap<String, String>,
    /// The settings decided before the start.
    pub settings: Settings,
    /// The machine that it ran on.
    pub machine: Machine,
    /// The start time, in seconds since 1970 (UTC).
    pub started_unix_seconds: f64,
    /// The time from start to end, in seconds.
    pub wall_seconds: f64,
    /// How the program ended.
    pub ending: Ending,
}

/// The settings of a run, decided before the start.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The near limit in bytes; `None`: no limit.
    pub near_bytes: Option<u64>,
    /// Whether the limit is what the machine could give at the end, as the user set none.
    pub near_is_automatic: bool,
    /// The page size in bytes.
    pub page_bytes: u64,
    /// The kind of page tables: `private` or `shared`.
    pub page_tables: String,
    /// What resolves faults: `self` or `thread`.
    pub faults: String,
    /// The number of workers in a team.
    pub workers: u32,
    /// The replacement policy with its options.
    pub policy: String,
    /// The far store.
    pub far: String,
    /// The limit of far memory in bytes; `None`: no limit.
    pub far_limit_bytes: Option<u64>,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// The machine's name.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// The model of the processor.
    pub cpu: String,
    /// The number of CPUs that are online.
    pub cpus_online: u32,
    /// The number of these CPUs that the run could use.
    pub cpus_usable: u32,
    /// The machine's memory in bytes.
    pub memory_bytes: u64,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ending {
    /// The exit status, if the program ended by one.
    pub status: Option<i32>,
    /// The signal, if the program ended by one.
    pub signal: Option<i32>,
}
