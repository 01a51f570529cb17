//! Defines every command and flag once: help, manual pages and completions are made from these definitions.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use atoll_memory::control::{Faults, MAX_WORKERS};
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
mod policies;
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
pub(crate) use bench::{
    Bench, BenchArgs, FarBenchArgs, OpenmpBenchArgs, SamplingBenchArgs, SegmentBenchArgs,
};
pub(crate) use nodes::{ConsistencyArg, OnOff};
#[cfg(feature = "tools")]
pub(crate) use policies::Policies;
#[cfg(feature = "tools")]
pub(crate) use profile::{
    DiffArgs, ExportArgs, ExportForm, KeepArg, ProfileArgs, ReportArgs, RuntimeArg, SamplerArg,
};
#[cfg(feature = "tools")]
pub(crate) use repro::{PaperArg, ReproArgs};
#[cfg(feature = "tools")]
pub(crate) use segment::Segment;
#[cfg(all(feature = "tools", target_arch = "x86_64"))]
pub(crate) use segment::{BackendArg, SegmentRunArgs};
pub(crate) use share::{Near, Share};
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
    /// Say what on this machine is missing or slow, and how to fix it
    ///
    /// Exit status 1 if something that every run needs is missing.
    Doctor {
        /// Print a JSON list
        #[arg(long)]
        json: bool,
    },
    /// Lend this host's memory to runs on other hosts, until a signal ends it
    ///
    /// At the first signal (Ctrl-C, SIGTERM) it lends nothing more, and ends when the runs that have something of it have moved it elsewhere; at the
    /// second one at once. Runs give memory back, too, when the host has less free than --keep-free says, and when a command with --resize says so.
    /// Runs with --far hosts borrow of it. Whoever borrows has to know the secret in the user's folder of lenders,
    /// $XDG_STATE_HOME/atoll/lenders or ~/.local/state/atoll/lenders or what ATOLL_LENDERS names, which all hosts must see. Hosts that share no
    /// folder set ATOLL_LENDERS to HOST:PORT of one lender (--listen), by which all others are found, and copy the secret. Pages go over the network
    /// as they are: nothing is encrypted.
    Lend(LendArgs),
    /// List who lends memory, how much of it is free, how far away it is, and who has it
    Lenders {
        /// Print a JSON list
        #[arg(long)]
        json: bool,
    },
    /// Start the lenders of a run on other hosts; a run with --hosts-far starts this command
    #[command(hide = true)]
    StartLenders(StartLendersArgs),
    /// Lend to one run; the lender of a run on a host starts this command, and again when it is killed
    #[command(hide = true)]
    LendWorker,
    /// Start a node on this host; a run on several hosts starts this command on each of them
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
    #[arg(long, value_name = "POLICIES", default_value = "adaptive,fifo,lru,cmcp")]
    pub(crate) policy: Vec<Policies<PolicySpec>>,

    /// Page sizes
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = defaults::PAGE, value_parser = page_sizes())]
    pub(crate) page: Vec<PageSize>,

    /// The number of runs with each setting; the median counts
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
    /// Show only the run whose launcher or program is this process
    #[arg(value_name = "PID")]
    pub(crate) pid: Option<i32>,

    /// Print the state once as text and end (the default where standard output is no terminal)
    #[arg(long)]
    pub(crate) once: bool,

    /// Print the state once as a JSON list and end
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(feature = "tools")]
#[derive(Args, Debug, Clone)]
pub(crate) struct ShowArgs {
    /// A file that `atoll run --record`, `atoll profile` or `atoll trace` wrote
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// Print all of it as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const EXIT_STATUS: &str = "\
Exit status:
  The program's own. If a signal ends the program, the same signal ends atoll. Else:
    2    the command line is wrong
    70   atoll cannot run this program, or not on this machine; or --require was given and no program was managed
    74   far memory is full or failed, and near memory cannot hold the rest
    75   the near limit is smaller than what must be near
    76   a worker was killed, or ended without being asked to
    77   another node of the run is gone, or sent nonsense
    126  the program cannot be executed
    127  the program was not found";

#[derive(Args, Debug, Clone)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,

    #[command(flatten)]
    pub(crate) translation: TranslationArgs,

    /// Near memory: the most of the program's data that is resident at once (64M, 1.5G, 50%, none)
    ///
    /// A percentage is of the footprint that this program had when it last ran with these arguments, else of the machine's
    /// memory; a line says which. Without this flag, on one node, the limit is what the machine or the memory group can give, less a
    /// part for others. It is looked at anew while the program runs, and counts compressed far memory, too. `none` takes the limit away:
    /// then nothing is evicted.
    #[arg(long, value_name = "SIZE")]
    pub(crate) near: Option<Near>,

    /// Near memory of all ranks of an MPI program on this host together; each rank gets an equal part (8G)
    ///
    /// mpirun or srun says how many ranks there are; without them there is one.
    #[arg(long, value_name = "SIZE", conflicts_with = "near")]
    pub(crate) near_host: Option<Size>,

    /// End with an error (exit status 70) if the program cannot be managed, so that --near would have no effect
    ///
    /// The error comes before the start if that is known then, else as soon as it is known, at the latest at the end in place
    /// of exit status 0. On several nodes a second OpenMP program of the run, which would run without the limit, is not started.
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

    /// The number of nodes over which the team is spread: process groups on this machine that share no memory
    ///
    /// Default: the number of the job's processes if mpirun or srun started this one as one of several, else 1. With 1, each
    /// process of such a job runs the program by itself.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_NODES as i64))]
    pub(crate) nodes: Option<u32>,

    /// Hosts, on each of which a node runs; ssh must reach them without a password. localhost is this machine, and a host may be
    /// named more than once
    #[arg(long, value_name = "HOSTS", value_delimiter = ',', conflicts_with = "nodes", group = "places")]
    pub(crate) hosts: Vec<String>,

    /// Hosts whose memory is far memory: a lender is started on each for this run, by ssh as nodes are, and ends with it
    ///
    /// A lender lends what its host can spare. To borrow of lenders that are at work already use --far hosts. Under mpirun and srun
    /// the word job stands for the hosts of the job's other processes: the first process runs the program, and one process on each
    /// other host lends to it until it ends.
    #[arg(long, value_name = "HOSTS", value_delimiter = ',', conflicts_with_all = ["far", "nodes"], group = "places")]
    pub(crate) hosts_far: Vec<String>,

    /// The command that starts a command on another host, instead of ssh ("ssh -p 2222")
    #[arg(long, value_name = "COMMAND", requires = "places")]
    pub(crate) rsh: Option<String>,

    /// The path of atoll on all hosts, if it is not this one's
    #[arg(long, value_name = "PATH", requires = "places", value_hint = ValueHint::FilePath)]
    pub(crate) remote: Option<PathBuf>,

    /// Network interfaces, or ports of RDMA cards, that nodes on several hosts talk through, as UCX names them (eth0, mlx5_0:1)
    ///
    /// Default: UCX_NET_DEVICES, else the first network of node 0 that all hosts are in.
    #[arg(long, value_name = "DEVICES")]
    pub(crate) network: Option<String>,

    /// The transport between nodes: auto is shared memory where all nodes are on one machine, else UCX
    #[arg(long, value_enum, default_value_t = TransportArg::Auto)]
    pub(crate) transport: TransportArg,

    /// The protocol that keeps copies of a page coherent between nodes: one writer at a time (sc), many writers in regions
    /// where that is safe (mw), or for each region the one of these that costs less (smart)
    #[arg(long, value_enum, default_value_t = ConsistencyArg::Smart)]
    pub(crate) consistency: ConsistencyArg,

    /// Fetch, when a region begins on a node, the pages that its earlier runs had to fetch
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    pub(crate) prefetch: OnOff,

    /// Look for errors of the program; this takes time. Races are words that two nodes write in one region
    ///
    /// Needs several nodes: --nodes N --workers N sees what any two workers write. Regions run among many writers, whatever
    /// --consistency says, and every first write to a page in a phase faults. Regions whose code synchronises by instructions
    /// of its own are not checked. A store that leaves a byte as it was is not seen.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) check: Option<CheckArg>,
    /// Run a region on node 0 alone where this takes less time: by measurement, or as other nodes bring no CPUs; off spreads
    /// every region that can be
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    pub(crate) home_alone: OnOff,

    /// Write everything known about the run to FILE (see `atoll show`)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) record: Option<PathBuf>,

    /// The form of the summary, which is printed on standard error at the end
    #[arg(long, value_enum, default_value_t = SummaryForm::Text)]
    pub(crate) summary: SummaryForm,

    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct LendArgs {
    /// The most memory to lend (64G). It is taken from the system only when somebody borrows it
    #[arg(value_name = "SIZE")]
    pub(crate) size: Size,

    /// The lender's name, which no other lender has
    ///
    /// Default: the name of this host.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Where to listen, as an address and a port (10.0.0.2:7411)
    ///
    /// Default: all IPv4 networks of this host, at a port that is free.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,

    /// The memory of this host that stays free: nothing of it is lent, and when there is less free runs give some back
    ///
    /// Default: a twentieth of the host's memory.
    #[arg(long, value_name = "SIZE")]
    pub(crate) keep_free: Option<Size>,

    /// The seconds that a run which is to give memory back may take for each piece of it; then what it is to give back moves to a file in
    /// $TMPDIR or /var/tmp, or all that it has is taken where neither is on a disk, and when this lender ends
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub(crate) within: u64,

    /// Have the lender of this name, which is at work, lend at most SIZE from now on
    #[arg(long, conflicts_with_all = ["listen", "keep_free", "within"])]
    pub(crate) resize: bool,

    /// Lend to the run that started this process on this host, and to no other
    #[arg(long, hide = true)]
    pub(crate) for_run: bool,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct StartLendersArgs {
    /// A host
    #[arg(long, value_name = "HOST", required = true)]
    pub(crate) host: Vec<String>,

    /// The command that starts a command on another host
    #[arg(long, value_name = "COMMAND")]
    pub(crate) rsh: Option<String>,

    /// The path of atoll on all hosts
    #[arg(long, value_name = "PATH")]
    pub(crate) remote: Option<PathBuf>,
}

/// Flags that every run has, whatever its size.
#[derive(Args, Debug, Clone)]
pub(crate) struct MemoryArgs {
    /// The number of workers in a team; sets OMP_NUM_THREADS for the program
    ///
    /// Default: the first number of OMP_NUM_THREADS, else the CPUs this process may use.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_WORKERS as i64))]
    pub(crate) workers: Option<u32>,

    /// Far memory: auto, ram, lz4 or zstd (compressed in memory), file or file:DIR, or hosts (memory of other hosts)
    ///
    /// auto is memory that the machine (or the memory group) can spare beside the near limit, and a file for what does not fit.
    /// While a quarter of the machine's memory is available, pages stay as they are in a quarter of that memory, most of them where they
    /// lie, out of all page tables. In the rest they are packed by lz4. Where lenders on other hosts answer at once, pages go to them before
    /// they go to the file. hosts is memory that lenders lend (`atoll lend`, `atoll lenders`), the nearest first, and a file for pages
    /// that no lender has room for.
    #[arg(long, value_name = "STORE", default_value = defaults::FAR, value_parser = far)]
    pub(crate) far: FarSpec,

    /// The most bytes that far memory may take
    #[arg(long, value_name = "SIZE")]
    pub(crate) far_limit: Option<Size>,

    /// On how many lenders each page lies that goes to lenders: with 2, on different hosts, a run goes on when a lender is lost
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    pub(crate) far_copies: u32,

    /// Whether each worker has a page table of its own or all share one
    #[arg(long, value_enum, default_value = defaults::PAGE_TABLES)]
    pub(crate) page_tables: PageTablesChoice,

    /// Whether a fault is resolved by the worker itself or by a handler thread (slow, but every system call works on paged
    /// memory)
    #[arg(long, value_enum, default_value = defaults::FAULTS)]
    pub(crate) faults: FaultsArg,
}

/// The program to run, with its arguments.
#[derive(Args, Debug, Clone)]
pub(crate) struct ProgramArgs {
    /// The program, which is looked for in PATH, and its arguments
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
    /// Shared memory where all nodes are on one machine, else UCX
    Auto,
    /// UCX, even on one machine
    Ucx,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageTablesArg {
    /// Workers are processes
    Private,
    /// Workers are threads
    Shared,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageTablesChoice {
    /// Shared where four CPUs or fewer may be used and Linux is 6.15 or later, but private on several nodes and for CMCP
    Auto,
    /// Workers are processes
    Private,
    /// Workers are threads
    Shared,
}

impl PageTablesChoice {
    /// Whether [`Auto`](Self::Auto) means private page tables for the policy: it goes by how many workers map a page.
    pub(crate) fn is_private_for(policy: &PolicySpec) -> bool {
        matches!(policy, PolicySpec::Cmcp(_))
    }

    /// Returns the value's name on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Private => "private",
            Self::Shared => "shared",
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
    /// Returns the value's name on the command line.
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

/// The longest far store in bytes that the control block holds, without its NUL.
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
    /// Returns the near limit that the user asks for: `--near`, or this rank's part of `--near-host`, in whole pages.
    pub(crate) fn near(&self) -> Option<Share> {
        let page = self.page.bytes() as u64;
        let part = |Size(all): Size| Share::Size(Size((all / mpi::ranks_here()).max(page) / page * page));
        match self.near {
            Some(Near::Limit(share)) => Some(share),
            Some(Near::None) => None,
            None => self.near_host.map(part),
        }
    }

    /// Whether near memory is what the machine can give, as the user says nothing of it. Huge pages have a pool of their own, which is
    /// their limit.
    pub(crate) fn near_is_automatic(&self) -> bool {
        let is_asked = self.near.is_some() || self.near_host.is_some();
        !is_asked && self.translation.translation == Translation::Paging && self.page != PageSize::M2
    }
}

/// Parses a page size; help and completions list the possible values.
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
        assert_eq!(args.near, Some(Near::Limit(Share::Size(Size(3 << 29)))));
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
            "no far store is called `disk`: use auto, ram, lz4, zstd, file, file:DIR or hosts",
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
