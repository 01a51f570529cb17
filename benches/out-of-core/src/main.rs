//! `out-of-core`: runs programs at part of their memory, side by side: native, under Linux swap, under atoll.
//!
//! Start reading at [`full`], [`no_flags`] and [`demo`]. `sheet` measures one program, `micro` one page, and `targets` prints the targets.
//! `group`, `swap` and `setting` change the machine and put it back.

mod bench;
mod demo;
mod error;
mod full;
mod group;
mod micro;
mod no_flags;
mod part;
mod plan;
mod process;
mod report;
mod setting;
mod sheet;
mod signals;
mod stats;
mod subject;
mod swap;
mod targets;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use error::Error;

/// Measures programs at part of their memory: native, under Linux swap and under atoll
///
/// As root it makes a zram device, a swap file and memory cgroups of its own, and removes them at the end, also when
/// interrupted. What this machine does not have is left out, and the reason printed. Nothing else should run meanwhile.
#[derive(Parser, Debug)]
#[command(name = "out-of-core", max_term_width = 100)]
pub(crate) struct Options {
    /// Show one program: native, under swap and under atoll, in less than three minutes
    #[arg(long)]
    demo: bool,

    /// Measure atoll with no flag but --near, on more programs, beside Linux swap and the best flags found by hand
    #[arg(long, conflicts_with = "demo")]
    no_flags: bool,

    /// Use small classes, and 2 runs unless --runs says otherwise
    #[arg(long)]
    quick: bool,

    /// The number of runs of everything; the medians are printed [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,

    /// The memory limit, in percent of the native footprint
    #[arg(long, value_name = "P", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100))]
    percent: u32,

    /// Run only these programs
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    programs: Vec<String>,

    /// Run only subjects whose name contains one of these words, and native
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    subjects: Vec<String>,

    /// Leave the microbenchmark out
    #[arg(long)]
    no_micro: bool,

    /// Cut a run after this number of seconds; it counts as having taken that long [default: 60, with --no-flags 90]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,

    /// Begin no further round that would end after this number of minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 40)]
    budget: u64,

    /// Write every sample to FILE
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// The folder of the swap file and of far memory's file; on a disk, not in memory
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    dir: PathBuf,

    /// The compression algorithm of zram
    #[arg(long, value_name = "NAME", default_value = "lz4")]
    zram_algorithm: String,

    /// The atoll command [default: beside this one]
    #[arg(long, value_name = "FILE")]
    atoll: Option<PathBuf>,

    /// The built workloads [default: ../programs from this command]
    #[arg(long, value_name = "DIR")]
    programs_dir: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    signals::take();
    let result = if options.demo {
        demo::demo(&options)
    } else if options.no_flags {
        no_flags::no_flags(&options)
    } else {
        full::full(&options)
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("out-of-core: {error}");
            ExitCode::from(if matches!(error, Error::Interrupted) { 130 } else { 1 })
        }
    }
}
