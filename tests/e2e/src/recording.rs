//! Runs the commands of atoll that run a program and record what it does to a file: `profile`, `trace`.
//!
//! `run` has `atoll run` itself, with all the checks around it.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::build;

/// Runs `atoll KIND OPTIONS -o FILE -- PROGRAM ARGUMENTS`, cut after a number of seconds, without the caller's settings for the
/// program.
pub fn recording(
    kind: &str,
    seconds: u32,
    options: &str,
    file: &Path,
    program: &Path,
    arguments: &str,
) -> Command {
    let mut command = Command::new("timeout");
    command.arg(seconds.to_string()).arg(build::atoll()).arg(kind).args(options.split_whitespace());
    command.arg("-o").arg(file).arg("--").arg(program).args(arguments.split_whitespace());
    command.env_remove("OMP_NUM_THREADS").env_remove("LD_PRELOAD").stdin(Stdio::null());
    command
}
