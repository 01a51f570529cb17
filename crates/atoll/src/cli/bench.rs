//! The flags of `atoll bench`.

use std::path::PathBuf;

use clap::{Subcommand, ValueHint};

/// What `--help` says below the flags.
const MACHINE: &str = "\
Each number is measured by the kernel calls that atoll's pager makes, and printed with how it was found. It takes some seconds;
other work disturbs it. How fast programs run is measured by atoll sweep.";

/// `atoll bench`.
#[derive(Subcommand, Debug, Clone)]
pub(crate) enum Bench {
    /// Measure what page walks, faults, interrupts and copies cost here, as a machine for `atoll sim`
    #[command(after_long_help = MACHINE)]
    Machine {
        /// Write the machine's description to FILE, for atoll sim --machine FILE
        #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        output: Option<PathBuf>,
    },
}
