//! Flags of `atoll trace`.

use std::ffi::OsString;
use std::path::PathBuf;

use atoll_memory::control::MAX_WORKERS;
use clap::{Args, ValueEnum, ValueHint};

use crate::defaults;
use crate::trace::select::Regions;

pub(super) const ABOUT: &str = "\
A region is one occurrence of a parallel region. Its number counts all that the program begins, from 1. Its name is that of the
function the region stands in, or of its outlined function. Outside of the selected regions only maps are recorded.

An iteration is one occurrence of a mark: of a region, or of a barrier in one, as the first worker meets it. With
--iterations N recording ends before any mark of the selected regions would occur for the (N+1)th time. The program runs on to its end.

Engines:
  qemu  runs an unmodified x86-64 program under qemu-x86_64 (Debian's package qemu-user, 6.0 to 8.2)
  tsan  runs a program made for it: objects compiled by gcc -fsanitize=thread, linked without that flag, and against
        libatoll_hooks.so, which is beside atoll or in ../lib/atoll

Exit status: the program's own, else as for atoll run.";

#[derive(Args, Debug, Clone)]
pub(crate) struct TraceArgs {
    /// The trace to write; the file appears once it is whole
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,

    /// The number of workers in a team, on however few CPUs; sets OMP_NUM_THREADS for the program
    ///
    /// Default: the first number of OMP_NUM_THREADS, else the CPUs this process may use.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_WORKERS as i64))]
    pub(crate) workers: Option<u32>,

    /// Record only these regions: numbers and names, as in 3,10-20,conj_grad
    #[arg(long, value_name = "SELECTION")]
    pub(crate) regions: Option<Regions>,

    /// End recording after N iterations
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) iterations: Option<u64>,

    /// End the program, by SIGKILL, once recording has ended; the exit status is then 0
    #[arg(long, requires = "iterations")]
    pub(crate) stop: bool,

    /// Record every access, without a filter
    #[arg(long, conflicts_with = "filter")]
    pub(crate) exact: bool,

    /// The number of places in each worker's filter: a page in one of them is not recorded again
    #[arg(long, value_name = "N", default_value_t = defaults::FILTER, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) filter: u32,

    /// The engine that sees the accesses
    #[arg(long, value_enum, default_value = defaults::ENGINE)]
    pub(crate) engine: EngineArg,

    /// Import PROGRAM, a trace in another format, instead of running a program
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with_all = ["workers", "regions", "iterations", "exact", "filter", "engine", "export"])]
    pub(crate) import: Option<ImportArg>,

    /// Export PROGRAM, a trace, to another format instead of running a program
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with_all = ["workers", "regions", "iterations", "exact", "filter", "engine"])]
    pub(crate) export: Option<ExportArg>,

    /// The program, which is looked for in PATH, and its arguments; or the trace to import or export
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true,
          value_hint = ValueHint::CommandWithArguments)]
    pub(crate) words: Vec<OsString>,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EngineArg {
    /// QEMU's user mode, for any program
    Qemu,
    /// Hooks in a program compiled for them
    Tsan,
}

impl EngineArg {
    /// Returns the value's name on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Tsan => "tsan",
        }
    }
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImportArg {
    /// libCacheSim's oracleGeneral
    OracleGeneral,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExportArg {
    /// A row for each event; only where atoll was built with the feature `parquet`
    Parquet,
}
