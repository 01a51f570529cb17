//! Every command and flag, once: help, manual pages and completions come from here.

use std::ffi::OsString;
use std::path::PathBuf;

use atoll_memory::control::{Faults, MAX_WORKERS, PageTables};
use atoll_memory::far::{FarSpec, FarSpecError};
use atoll_memory::layout::MAX_NODES;
use atoll_pages::{PageSize, PolicySpec, Size};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
#[cfg(feature = "tools")]
use clap_complete::Shell;

use crate::defaults;
use crate::run::mpi;

#[cfg(feature = "tools")]
mod bench;
mod help;
mod nodes;
#[cfg(feature = "tools")]
mod profile;
#[cfg(feature = "tools")]
mod repro;
#[cfg(feature = "tools")]
mod segment;
mod share;
#[cfg(feature = "tools")]
mod sim;
#[cfg(feature = "tools")]
mod trace;
mod translation;
use help::flow;

#[cfg(feature = "tools")]
pub(crate) use bench::{Bench, BenchArgs, SamplingBenchArgs, SegmentBenchArgs};
pub(crate) use nodes::{ConsistencyArg, OnOff};
#[cfg(feature = "tools")]
pub(crate) use profile::{
    DiffArgs, ExportArgs, ExportForm, KeepArg, ProfileArgs, ReportArgs, RuntimeArg, SamplerArg,
};
#[cfg(feature = "tools")]
pub(crate) use repro::{PaperArg, ReproArgs};
#[cfg(feature = "tools")]
pub(crate) use segment::{Segment, SegmentRunArgs};
pub(crate) use share::{Share, ShareError};
#[cfg(feature = "tools")]
pub(crate) use sim::{PagerArg, SimArgs};
#[cfg(feature = "tools")]
pub(crate) use trace::{EngineArg, TraceArgs};
pub(crate) use translation::{Translation, TranslationArgs};

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
    #[command(after_long_help = flow(EXIT_STATUS))]
    Run(Box<RunArgs>),
    /// Measure a program at several near limits, under several policies and page sizes
    #[command(after_long_help = flow(SWEEP))]
    #[cfg(feature = "tools")]
    Sweep(Box<SweepArgs>),
    /// Run a static program on segmentation cores, with no paging of its own
    #[command(subcommand)]
    #[cfg(feature = "tools")]
    Segment(Segment),
    /// Look at running programs
    #[cfg(feature = "tools")]
    Top(TopArgs),
    /// Record which worker touches which page, in what order
    #[command(after_long_help = flow(trace::ABOUT))]
    #[cfg(feature = "tools")]
    Trace(Box<TraceArgs>),
    /// Record where a program touches memory
    #[command(after_long_help = flow(profile::ABOUT))]
    #[cfg(feature = "tools")]
    Profile(Box<ProfileArgs>),
    /// Say what a profile shows
    #[command(after_long_help = flow(profile::HALF))]
    #[cfg(feature = "tools")]
    Report(ReportArgs),
    /// Compare two profiles
    #[command(after_long_help = flow(profile::HALF))]
    #[cfg(feature = "tools")]
    Diff(DiffArgs),
    /// Write a profile in another format
    #[command(after_long_help = flow(profile::EXPORT))]
    #[cfg(feature = "tools")]
    Export(ExportArgs),
    /// Print what is in a record, a profile or a trace
    #[command(after_long_help = flow(profile::HALF))]
    #[cfg(feature = "tools")]
    Show(ShowArgs),
    /// Reproduce the papers' tables and figures on simulated machines
    #[command(after_long_help = flow(repro::ABOUT))]
    #[cfg(feature = "tools")]
    Repro(ReproArgs),
    /// Replay a trace on a simulated machine
    #[command(after_long_help = flow(sim::SIM))]
    #[cfg(feature = "tools")]
    Sim(Box<SimArgs>),
    /// Measure this machine
    #[command(subcommand)]
    #[cfg(feature = "tools")]
    Bench(Bench),
    /// Say what on this machine is missing or slow, and what mends it
    ///
    /// Exit status 1 if something that every run needs is missing.
    Doctor {
        /// Print a JSON list
        #[arg(long)]
        json: bool,
    },
    /// What a run on several hosts starts on each of them
    #[command(hide = true)]
    Agent,
    /// Print completions for a shell
    #[cfg(feature = "tools")]
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Print the manual page, or write one for every command into a directory
    #[cfg(feature = "tools")]
    Manual {
        /// The directory, which must exist
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
}

#[cfg(feature = "tools")]
const SWEEP: &str = "\
First the program runs with everything near, under each page size, which tells its footprint with such pages: the near limit from
which on nothing is evicted, with pinned memory and atoll's own tables in it. Then it runs once for every policy, page size and share of
near memory. Relative performance is the time with everything near over the time at that limit.";

#[cfg(feature = "tools")]
#[derive(Args, Debug, Clone)]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,

    /// Near limits in percent of the footprint, or sizes
    #[arg(long, value_name = "SHARES", value_delimiter = ',', default_value = "100%,75%,50%,25%")]
    pub(crate) near: Vec<Share>,

    /// Replacement policies; options as in cmcp:p=0.5
    #[arg(long, value_name = "POLICIES", value_delimiter = ',', default_value = "adaptive,fifo,lru,cmcp")]
    pub(crate) policy: Vec<PolicySpec>,

    /// Page sizes
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = defaults::PAGE, value_parser = page_sizes())]
    pub(crate) page: Vec<PageSize>,

    /// Runs of each, of which the median counts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,

    /// Write every run's figures to FILE, comma-separated
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) csv: Option<PathBuf>,

    /// Let the program's standard output through
    #[arg(long)]
    pub(crate) show: bool,

    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

#[cfg(feature = "tools")]
#[derive(Args, Debug, Clone)]
pub(crate) struct TopArgs {
    /// Only the run whose launcher or program is this process
    #[arg(value_name = "PID")]
    pub(crate) pid: Option<i32>,

    /// Print one look as text and end (as where standard output is no terminal)
    #[arg(long)]
    pub(crate) once: bool,

    /// Print one look as a JSON list and end
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(feature = "tools")]
#[derive(Args, Debug, Clone)]
pub(crate) struct ShowArgs {
    /// What `atoll run --record`, `atoll profile` or `atoll trace` wrote
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// Print all of it as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const EXIT_STATUS: &str = "\
Exit status:
  The program's own; a program ended by a signal ends atoll by the same signal. Else:
    2    the command line is wrong
    70   atoll cannot run this program, or not on this machine; nothing was managed, and --require was given
    74   far memory is full or failed, and near memory cannot hold the rest
    75   the near limit is smaller than what must be near
    76   a worker was killed, or ended by itself
    77   another node of the run is gone, or says what makes no sense
    126  the program cannot be executed
    127  the program was not found";

#[derive(Args, Debug, Clone)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,

    #[command(flatten)]
    pub(crate) translation: TranslationArgs,

    /// Near memory: how much of the program's data is resident at most (64M, 1.5G, 50%)
    ///
    /// A percentage is of the footprint that this program had when it ran last with these arguments, else of the machine's memory; a
    /// line says which. Without a limit nothing is evicted.
    #[arg(long, value_name = "SIZE", value_parser = near)]
    pub(crate) near: Option<Share>,

    /// Near memory of all ranks of an MPI program on this host together: each rank gets an equal part (8G)
    ///
    /// The number of ranks is the one that mpirun or srun says; without them there is one.
    #[arg(long, value_name = "SIZE", conflicts_with = "near")]
    pub(crate) near_host: Option<Size>,

    /// End with an error if the program cannot be managed, so that --near means nothing
    ///
    /// Before the start where that is known then, else as soon as it is, else at the end, in place of exit status 0. A second OpenMP
    /// program of the run, which would run without the limit, is not started.
    #[arg(long)]
    pub(crate) require: bool,

    /// Replacement policy: adaptive, fifo, lru, cmcp or newest, with options as in cmcp:p=0.5
    #[arg(long, value_name = "POLICY", default_value = defaults::POLICY)]
    pub(crate) policy: PolicySpec,

    /// CMCP's ratio p: the share of near memory ordered by core-map count (the same as --policy cmcp:p=P)
    #[arg(long, value_name = "P")]
    pub(crate) cmcp_p: Option<String>,

    /// Page size: what is fetched and evicted at once
    #[arg(long, value_name = "SIZE", default_value = defaults::PAGE, value_parser = page_sizes())]
    pub(crate) page: PageSize,

    /// Nodes that share no memory, over which the team is spread: so many process groups on this machine
    ///
    /// Default: the processes of the job if mpirun or srun started this one as one of several (1: each runs the program by itself),
    /// else 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_NODES as i64))]
    pub(crate) nodes: Option<u32>,

    /// A node on each of these hosts, which ssh reaches without a password; localhost is this machine, a host may be there more
    /// than once
    #[arg(long, value_name = "HOSTS", value_delimiter = ',', conflicts_with = "nodes")]
    pub(crate) hosts: Vec<String>,

    /// What starts a command on another host instead of ssh ("ssh -p 2222")
    #[arg(long, value_name = "COMMAND", requires = "hosts")]
    pub(crate) rsh: Option<String>,

    /// Where atoll is on all hosts, if not where this one is
    #[arg(long, value_name = "PATH", requires = "hosts", value_hint = ValueHint::FilePath)]
    pub(crate) remote: Option<PathBuf>,

    /// What nodes on several hosts talk through: interfaces or ports of RDMA cards, as UCX names them (eth0, mlx5_0:1)
    ///
    /// Default: UCX_NET_DEVICES, else the first network of the first node that all hosts are in.
    #[arg(long, value_name = "DEVICES")]
    pub(crate) network: Option<String>,

    /// How nodes talk: auto is shared memory where all are on one machine, else UCX
    #[arg(long, value_enum, default_value_t = TransportArg::Auto)]
    pub(crate) transport: TransportArg,

    /// How copies of a page are kept coherent between nodes: one writer at a time (sc), many in regions where that is safe (mw),
    /// or the one of both that costs less, region by region (smart)
    #[arg(long, value_enum, default_value_t = ConsistencyArg::Smart)]
    pub(crate) consistency: ConsistencyArg,

    /// Fetch what a region's earlier runs had to fetch, at its entry on each node
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    pub(crate) prefetch: OnOff,

    /// Look for errors of the program, which takes time: races are words that two nodes write in one region
    ///
    /// Needs several nodes: --nodes N --workers N sees what any two workers write. Regions run among many writers, whatever
    /// --consistency says, and every first write to a page in a phase faults. Regions whose code synchronises by instructions of its own are
    /// not looked at. A store that leaves a byte as it was is not seen.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) check: Option<CheckArg>,
    /// Run regions on the first node alone where that takes less time, by measurement; off spreads every region that can be
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    pub(crate) home_alone: OnOff,

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

    /// Far memory: auto, ram, lz4 or zstd (compressed in memory), file or file:DIR
    ///
    /// auto: lz4 in memory that the machine (or the memory group) has to spare beside the near limit, and a file for what does not fit there.
    #[arg(long, value_name = "STORE", default_value = defaults::FAR, value_parser = far)]
    pub(crate) far: FarSpec,

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
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true,
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
pub(crate) enum CheckArg {
    /// Words that two nodes write in one region
    Races,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransportArg {
    /// The faster one that can be
    Auto,
    /// UCX, on one machine too
    Ucx,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageTablesArg {
    /// Workers are processes
    Private,
    /// Workers are threads
    Shared,
}

impl PageTablesArg {
    /// As it is written.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Shared => "shared",
        }
    }
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

impl FaultsArg {
    /// As it is written.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Own => "self",
            Self::Thread => "thread",
        }
    }
}

impl From<FaultsArg> for Faults {
    fn from(arg: FaultsArg) -> Self {
        match arg {
            FaultsArg::Own => Self::Own,
            FaultsArg::Thread => Self::Thread,
        }
    }
}

/// Longest far store that the control block holds, its NUL taken off.
const FAR_BYTES: usize = 4095;

#[derive(thiserror::Error, Debug, PartialEq, Eq)]
pub(crate) enum FarError {
    #[error("{0}")]
    Unknown(#[from] FarSpecError),
    #[error("the directory of far memory is longer than {FAR_BYTES} bytes")]
    TooLong,
}

fn far(text: &str) -> Result<FarSpec, FarError> {
    if text.len() > FAR_BYTES { Err(FarError::TooLong) } else { Ok(text.parse()?) }
}

impl RunArgs {
    /// The near limit: `--near`, or this rank's part of `--near-host`, in whole pages.
    pub(crate) fn near(&self) -> Option<Share> {
        let page = self.page.bytes() as u64;
        let part = |Size(all): Size| Share::Size(Size((all / mpi::ranks_here()).max(page) / page * page));
        self.near.or_else(|| self.near_host.map(part))
    }
}

/// A near limit. What it must be enough for is known later.
fn near(text: &str) -> Result<Share, ShareError> {
    match text.parse()? {
        Share::Size(Size(0)) => Err(ShareError::Nothing),
        share => Ok(share),
    }
}

/// Page sizes with their values in help and completions.
fn page_sizes() -> impl TypedValueParser<Value = PageSize> {
    PossibleValuesParser::new(["4K", "64K", "2M"]).try_map(|text| text.parse::<PageSize>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn run(line: &str) -> Result<RunArgs, String> {
        match Cli::try_parse_from(line.split(' ')).map_err(|e| e.to_string())?.command {
            Command::Run(args) => Ok(*args),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_follows_the_program_is_the_programs() {
        let args = run("atoll run --near 1.5G --page 64K ./bt.C --near 3 -- x").unwrap();
        assert_eq!(args.near, Some(Share::Size(Size(3 << 29))));
        assert_eq!(args.page, PageSize::K64);
        assert_eq!(args.program.words, ["./bt.C", "--near", "3", "--", "x"]);
        assert_eq!(run("atoll run -- ./a -b").unwrap().program.words, ["./a", "-b"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = |line: &str, text: &str| {
            let error = run(line).unwrap_err();
            assert!(error.contains(text), "{line}: {error}");
        };
        wrong("atoll run --near 0% -- a", "a share is a percentage above 0");
        wrong("atoll run --near 0 -- a", "no near memory at all");
        wrong("atoll run --near 64Q -- a", "the unit of a size");
        wrong("atoll run --policy clock -- a", "there are fifo, lru, cmcp");
        wrong("atoll run --policy cmcp:p=2 -- a", "p must be a ratio");
        wrong("atoll run --page 8K -- a", "possible values: 4K, 64K, 2M");
        wrong(
            "atoll run --far disk -- a",
            "no far store is called `disk`: use auto, ram, lz4, zstd, file or file:DIR",
        );
        wrong("atoll run --workers 0 -- a", "0 is not in 1..=1024");
        wrong("atoll run --workers 1025 -- a", "1025 is not in 1..=1024");
        wrong("atoll run", "PROGRAM");
        let long = format!("atoll run --far file:{} -- a", "d".repeat(5000));
        wrong(&long, "longer than 4095 bytes");
    }
    /// A flag that was misspelt was taken for the program: "there is no program --nera".
    #[test]
    fn a_misspelt_flag_was_taken_for_the_program() {
        for (line, meant) in [
            ("atoll run --nera 60M -- ls", "'--near'"),
            ("atoll run --polcy fifo ls", "'--policy'"),
            ("atoll profile --overhed 1% ls", "'--overhead'"),
            ("atoll sweep --nears 50% ls", "'--near'"),
            ("atoll trace --worker 2 -o x ls", "'--workers'"),
            ("atoll segment run --bakcend ldt ls", "'--backend'"),
        ] {
            let error = Cli::try_parse_from(line.split(' ')).unwrap_err().to_string();
            assert!(error.contains("unexpected argument") && error.contains(meant), "{line}: {error}");
        }
        assert_eq!(run("atoll run ls -l --near 3").unwrap().program.words, ["ls", "-l", "--near", "3"]);
        assert_eq!(run("atoll run -- -l").unwrap().program.words, ["-l"]);
    }
}
