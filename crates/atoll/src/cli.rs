//! Every command and flag, once: help, manual pages and completions come from here.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use atoll_memory::control::{Faults, MAX_WORKERS, PageTables};
use atoll_pages::{PageSize, PolicySpec, Size};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

use crate::defaults;

/// Runs unmodified OpenMP programs in less near memory than they need
#[derive(Parser, Debug)]
#[command(name = "atoll", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a program with its data in near and far memory
    #[command(after_long_help = EXIT_STATUS)]
    Run(RunArgs),
}

const EXIT_STATUS: &str = "\
Exit status:
  The program's own; a program ended by a signal ends atoll by the same signal. Else:
    2    the command line is wrong
    70   atoll cannot run this program, or not on this machine
    74   far memory is full or failed, and near memory cannot hold the rest
    75   the near limit is smaller than what must be near
    76   a worker was killed, or ended by itself
    126  the program cannot be executed
    127  the program was not found";

#[derive(Args, Debug, Clone)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,

    /// Near memory: how much of the program's data is resident at most (64M, 1.5G)
    ///
    /// Without it nothing is evicted.
    #[arg(long, value_name = "SIZE")]
    pub(crate) near: Option<Size>,

    /// Replacement policy: fifo, lru or cmcp, with options as in cmcp:p=0.5
    #[arg(long, value_name = "POLICY", default_value = defaults::POLICY)]
    pub(crate) policy: PolicySpec,

    /// CMCP's ratio p: the share of near memory ordered by core-map count (the same as --policy cmcp:p=P)
    #[arg(long, value_name = "P")]
    pub(crate) cmcp_p: Option<String>,

    /// Page size: what is fetched and evicted at once
    #[arg(long, value_name = "SIZE", default_value = defaults::PAGE, value_parser = page_sizes())]
    pub(crate) page: PageSize,

    /// Write everything known about the run to FILE (see `atoll show`)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) record: Option<PathBuf>,

    /// What to print on standard error at the end
    #[arg(long, value_enum, default_value_t = SummaryForm::Text)]
    pub(crate) summary: SummaryForm,

    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

/// Flags that every run has, whatever its size.
#[derive(Args, Debug, Clone)]
pub(crate) struct MemoryArgs {
    /// Workers of a team; sets OMP_NUM_THREADS for the program
    ///
    /// Default: the first number of OMP_NUM_THREADS, else the CPUs this process may use.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_WORKERS as i64))]
    pub(crate) workers: Option<u32>,

    /// Far memory: ram, lz4 or zstd (compressed in memory), file or file:DIR
    #[arg(long, value_name = "STORE", default_value = defaults::FAR)]
    pub(crate) far: Far,

    /// Bytes far memory may take
    #[arg(long, value_name = "SIZE")]
    pub(crate) far_limit: Option<Size>,

    /// Workers with page tables of their own (processes), or one page table for all (threads)
    #[arg(long, value_enum, default_value = defaults::PAGE_TABLES)]
    pub(crate) page_tables: PageTablesArg,

    /// Who resolves a fault: the worker itself, or a handler thread (slow, but every system call works on paged memory)
    #[arg(long, value_enum, default_value = defaults::FAULTS)]
    pub(crate) faults: FaultsArg,
}

/// What to run.
#[derive(Args, Debug, Clone)]
pub(crate) struct ProgramArgs {
    /// The program, looked for in PATH, and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true,
          value_hint = ValueHint::CommandWithArguments)]
    pub(crate) words: Vec<OsString>,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SummaryForm {
    /// A table
    Text,
    /// One JSON object
    Json,
    /// Nothing
    None,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageTablesArg {
    /// Workers are processes
    Private,
    /// Workers are threads
    Shared,
}

impl From<PageTablesArg> for PageTables {
    fn from(arg: PageTablesArg) -> Self {
        match arg {
            PageTablesArg::Private => Self::Private,
            PageTablesArg::Shared => Self::Shared,
        }
    }
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultsArg {
    /// The worker that faulted
    #[value(name = "self")]
    Own,
    /// A handler thread
    Thread,
}

impl From<FaultsArg> for Faults {
    fn from(arg: FaultsArg) -> Self {
        match arg {
            FaultsArg::Own => Self::Own,
            FaultsArg::Thread => Self::Thread,
        }
    }
}

/// A far store as it is written; the runtime makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Far(String);

/// Longest far store the control block holds, its NUL taken off.
const FAR_BYTES: usize = 4095;

#[derive(thiserror::Error, Debug, PartialEq, Eq)]
pub(crate) enum FarError {
    #[error("far memory is ram, lz4, zstd, file or file:DIR")]
    Unknown,
    #[error("the directory of far memory is longer than {FAR_BYTES} bytes")]
    TooLong,
}

impl FromStr for Far {
    type Err = FarError;

    fn from_str(text: &str) -> Result<Self, FarError> {
        if text.len() > FAR_BYTES {
            return Err(FarError::TooLong);
        }
        match text.split_once(':') {
            None if ["ram", "lz4", "zstd", "file"].contains(&text) => Ok(Self(text.to_owned())),
            Some(("file", dir)) if !dir.is_empty() => Ok(Self(text.to_owned())),
            _ => Err(FarError::Unknown),
        }
    }
}

impl fmt::Display for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Page sizes with their values in help and completions.
fn page_sizes() -> impl TypedValueParser<Value = PageSize> {
    PossibleValuesParser::new(["4K", "64K", "2M"]).try_map(|text| text.parse::<PageSize>())
}
