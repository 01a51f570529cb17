//! Flags of `atoll profile` and `atoll report`.

use std::path::PathBuf;
use std::str::FromStr;

use atoll_pages::Size;
use clap::{Args, ValueEnum, ValueHint};

use super::RunArgs;

pub(super) const ABOUT: &str = "\
Samplers:
  timer    decodes the instructions behind each interrupt of a timer, at times spread over each thread's processor time. For any
           program, without a PMU. --reset counts nanoseconds.
  pebs, ibs, spe
           have the processor sample. --reset counts accesses (pebs) or operations (ibs, spe).
  faults   takes the kernel's page faults: first touches, and pages that came back from swap. --reset counts faults.
  touches  drops pages at random from a worker's page table, and sees which of them fault again. Under atoll's runtime only.
           --reset counts nanoseconds between two pages of a worker.
  writes   write-protects pages at random, and sees which of them were written (asynchronous write-protection, Linux 6.7). For
           programs that run as they are, without perf. --reset counts nanoseconds between two pages.
  damon    asks the kernel's own monitor, where it is built for virtual addresses (CONFIG_DAMON_VADDR), as root. It sees
           stretches of pages, not single pages. --reset counts microseconds between two checks.
auto takes the processor's sampler where it can be used, else the timer. Without perf it takes touches under the runtime, else writes.

A profile is a record: `atoll report`, `atoll diff`, `atoll export` and `atoll show` read it. They can do so even when the program or the machine died
half way, as samples are in the file half a second later. The file counts samples and marks that were lost. Without -o a profile of the same
name that is there already is kept, under the next free number (app.1.atoll).

Exit status: the program's own, else as for atoll run.";

pub(super) const HALF: &str = "\
Exit status: 3 where a profile is not whole (it was not finished, or is damaged). A line says so, and what was printed or written comes from the part that
could be read. 70 where nothing could be read.";

#[derive(Args, Debug, Clone)]
pub(crate) struct ProfileArgs {
    /// The profile to write; default: the program's name and .atoll
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// The sampler that finds accesses
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) sampler: SamplerArg,

    /// The overhead to keep to, in percent of the program's processor time
    #[arg(long, value_name = "PERCENT", default_value = "1%", conflicts_with = "reset")]
    pub(crate) overhead: Overhead,

    /// The sampling period: the count between two samples, in the sampler's unit (the paper's reset value)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) reset: Option<u64>,

    /// Bytes of records of each thread between two wake-ups
    #[arg(long, value_name = "SIZE", default_value = "32K", value_parser = buffer)]
    pub(crate) buffer: Size,

    /// Have a thread harvest at its own pace, not when buffers are full
    #[arg(long)]
    pub(crate) harvest_thread: bool,

    /// The most bytes that the profile may have
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub(crate) limit: Size,

    /// Which samples are kept where the profile cannot hold all
    #[arg(long, value_enum, default_value = "random")]
    pub(crate) keep: KeepArg,

    /// Whether the program runs under atoll's runtime
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) runtime: RuntimeArg,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// Where samples come from.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SamplerArg {
    /// The best that works here
    Auto,
    /// Intel's PEBS: loads and stores
    Pebs,
    /// AMD's IBS: micro-operations
    Ibs,
    /// Arm's SPE: operations
    Spe,
    /// A timer and the interrupted instruction
    Timer,
    /// The kernel's page faults
    Faults,
    /// Pages dropped from a worker's page table that fault again, with --runtime on
    Touches,
    /// Write-protected pages that were written
    Writes,
    /// The kernel's access monitor, where it watches virtual addresses
    Damon,
    /// Timer and touches together, with --runtime on
    Both,
}

/// Which samples are kept where the profile cannot hold all.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeepArg {
    /// A random part of the samples, from the whole run: the fuller the profile, the fewer
    Random,
    /// The samples of the beginning
    First,
}

/// Whether the program runs under atoll's runtime.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuntimeArg {
    /// Where it is needed: for --near, --nodes, or a sampler of the runtime's
    Auto,
    /// Yes
    On,
    /// No: the program runs as it is
    Off,
}

/// A share of the program's time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Overhead(pub(crate) f64);

#[derive(thiserror::Error, Debug, PartialEq)]
#[error("an overhead is a percentage above 0 and at most 50, as in 1%")]
pub(crate) struct OverheadError;

impl FromStr for Overhead {
    type Err = OverheadError;

    fn from_str(text: &str) -> Result<Self, OverheadError> {
        let number = text.strip_suffix('%').unwrap_or(text);
        let percent: f64 = number.parse().map_err(|_| OverheadError)?;
        if percent > 0.0 && percent <= 50.0 { Ok(Self(percent / 100.0)) } else { Err(OverheadError) }
    }
}

fn buffer(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|e: atoll_pages::size::SizeError| e.to_string())?;
    if size.0.is_power_of_two() && (4096..=64 << 20).contains(&size.0) {
        Ok(size)
    } else {
        Err("a buffer is a power of two from 4K to 64M".into())
    }
}

#[derive(Args, Debug, Clone)]
pub(crate) struct ReportArgs {
    /// A profile that `atoll profile` wrote
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// Compare with an exact trace of the same program and arguments (`atoll trace --exact`), by the program's globals
    #[arg(long, value_name = "TRACE", value_hint = ValueHint::FilePath)]
    pub(crate) against: Option<PathBuf>,

    /// The HTML file to write; default: the profile's name and .html
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "text")]
    pub(crate) output: Option<PathBuf>,

    /// Do not open the file in a browser; on a desktop it is opened otherwise
    #[arg(long, conflicts_with = "text")]
    pub(crate) no_open: bool,

    /// Print the report in the terminal
    #[arg(long)]
    pub(crate) text: bool,

    /// Leave out variables smaller than this
    #[arg(long, value_name = "SIZE", default_value = "0", requires = "text")]
    pub(crate) least: Size,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct DiffArgs {
    /// The profile before
    #[arg(value_name = "BEFORE", value_hint = ValueHint::FilePath)]
    pub(crate) before: PathBuf,

    /// The profile after
    #[arg(value_name = "AFTER", value_hint = ValueHint::FilePath)]
    pub(crate) after: PathBuf,
}

pub(super) const EXPORT: &str = "\
Formats:
  csv       a line a sample: time, worker, address, access, variable, region, source line
  parquet   the same columns, for pandas and polars; where atoll was built with the feature parquet
  firefox   for https://profiler.firefox.com: workers, their samples by region, function and variable
  perfetto  for https://ui.perfetto.dev: regions, and samples a second of the hottest variables

Exit status 3 where a profile is not whole (it was not finished, or is damaged), which a line says: what was written is of the part
that could be read. 70 where nothing could be read.";

#[derive(Args, Debug, Clone)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) form: ExportForms,

    /// The file to write; default: standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// A profile that `atoll profile` wrote
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
}

/// The formats, of which one is chosen.
#[derive(Args, Debug, Clone)]
#[group(required = true, multiple = false)]
pub(crate) struct ExportForms {
    /// Comma-separated values
    #[arg(long)]
    csv: bool,

    /// Parquet
    #[arg(long)]
    parquet: bool,

    /// The Firefox Profiler's format
    #[arg(long)]
    firefox_profile: bool,

    /// Trace events, as Perfetto reads them
    #[arg(long)]
    perfetto: bool,
}

/// The format that was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExportForm {
    /// Comma-separated values.
    Csv,
    /// Parquet.
    Parquet,
    /// The Firefox Profiler's.
    Firefox,
    /// Perfetto's.
    Perfetto,
}

impl ExportForms {
    /// Returns the format that was asked for.
    pub(crate) fn form(&self) -> ExportForm {
        match (self.parquet, self.firefox_profile, self.perfetto) {
            (true, ..) => ExportForm::Parquet,
            (_, true, _) => ExportForm::Firefox,
            (.., true) => ExportForm::Perfetto,
            _ => ExportForm::Csv,
        }
    }
}
