//! The flags of `atoll bench`.

use std::path::PathBuf;

use atoll_pages::Size;
use clap::{Args, Subcommand, ValueHint};

use super::help::flow;

/// What `--help` prints below the flags of `atoll bench machine`.
const MACHINE: &str = "\
Each number is measured with the kernel calls that atoll's pager makes, and printed with the way it was found. This takes some seconds, and
other work on the machine disturbs it. atoll sweep measures how fast programs run.";

const LATENCY: &str = "\
The measurement follows lists of pointers, so that each load needs the one before. The lists are in order and in random order, and go through every level
of cache, main memory with small and large pages, every NUMA node, a line that another CPU wrote, and pages that come by faults. The paper's figures
are table 5.1 of Message Passing and Bulk Transport on Heterogeneous Multiprocessors (ETH Zurich, 2014). This takes some ten seconds, and other work on
the machine disturbs it.";

const THROUGHPUT: &str = "\
Every engine copies from 64 bytes to 128M in every direction that it reaches: within a process, from and to another process, from and to a file. Each
engine is measured by itself, and as the manager chooses. UCX is measured beside them where ucx_perftest is installed. The paper's figures are figures
5.3 to 5.6 of Message Passing and Bulk Transport on Heterogeneous Multiprocessors (ETH Zurich, 2014). This takes a minute and 600 MB, and other work on the
machine disturbs it.";

const CHANNEL: &str = "\
Two processes, each on its CPU, measure round trips by placement of the rings, messages a second by size, the cost of a message in a set of many
channels, and messages and gets over every transport. A bare cache line is measured beside them, and UCX where ucx_perftest is installed. The paper's figures
are table 5.2 and figures 5.7 to 5.9 of Message Passing and Bulk Transport on Heterogeneous Multiprocessors (ETH Zurich, 2014). This takes one or two
minutes, and other work on the machine disturbs it.";

const FAR: &str = "\
Pages of 4K go to and come from each far store, one by one and 64 at a time, in random order: plain memory, compressed memory, a file, and another
host's memory, whose lender is a process on the other CPU, over the loopback interface. Lenders that are at work (atoll lenders) are measured, too. Then, as
root, two network namespaces get a link of a limited bandwidth between them (by ip and tc; both go with the measurement), and pages of a lender at its
other end are measured beside TCP alone and UCX, where ucx_perftest is installed. At the end each target is printed as met or not met. This takes
a minute and 300 MB, and other work on the machine disturbs it. --programs takes some minutes.";

const NAMES: &str = "\
The services of two nodes run in one process and a client in another. It registers, looks up and waits for names of the node and of all nodes, and
starts a program on either node. The paper's design is in section 6.8 of Message Passing and Bulk Transport on Heterogeneous Multiprocessors (ETH Zurich,
2014). This takes some seconds, and other work on the machine disturbs it.";

const SEGMENT: &str = "\
RandomAccess on a table of 4 GiB and Graph500 run natively with pages of 4K, 2M and 1G, and the same binaries run under atoll run --translation
segment. Each has its turn in every round, and the best round counts. Page faults after the start are counted. Then segmentation cores are measured: a
delegated getppid, and i386 programs beside the same programs run by Linux. Huge pages are reserved meanwhile (as root) and given back. What it
needs is printed first, and what cannot be reserved is left out. At the end each target is printed as met or not met. This takes at most eight minutes with
the defaults, and some 17 GiB; a smaller --size takes less. Other work on the machine disturbs it.";

const SAMPLING: &str = "\
Programs run natively, and under atoll profile with every sampler that works here, at overheads of 1% and 5%. The samples are compared with exact
traces (atoll trace --exact, which needs qemu-user): pages seen of pages touched, rank correlation of counts by page and by variable, and
whether the ten hottest variables are in their order. Two short traces tell what an iteration of a program touches, so that runs may be
long. Overhead is printed twice: by the measured cost of a sample, and by processor time against the program alone, the best of the rounds.
This takes some ten minutes, and other work on the machine disturbs it.";

const OPENMP: &str = "\
A program measures constructs in the manner of EPCC's micro benchmarks: fork-join, barriers, loops, single, critical, locks, ordered, reductions, nested
regions and tasks, each around a short delay, less the same delays without it. It is built by gcc and, where it is installed, by clang, and runs natively
and under atoll run, in interleaved rounds on two CPUs. The medians of the rounds are printed in nanoseconds by construct, iteration or task. At the
end each target is printed as met or not met: a construct is no slower where its median is not above the other's by more than half the distance of that one's
quartiles (2 to 10%). This takes some three minutes, and other work on the machine disturbs it.";

/// The subcommands of `atoll bench`.
#[derive(Subcommand, Debug, Clone)]
pub(crate) enum Bench {
    /// Measure what page walks, faults, interrupts and copies cost here, as a machine for `atoll sim`
    #[command(after_long_help = flow(MACHINE))]
    Machine {
        /// Write the machine's description to FILE, for atoll sim --machine FILE
        #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        output: Option<PathBuf>,

        /// Take the far memory of the lender NAME (`atoll lenders` lists them) for the machine's
        #[arg(long, value_name = "NAME")]
        lender: Option<String>,
    },
    /// Measure how long a load waits for every kind of memory here
    #[command(after_long_help = flow(LATENCY))]
    Latency(BenchArgs),
    /// Measure how fast engines copy, by direction and size
    #[command(after_long_help = flow(THROUGHPUT))]
    Throughput(BenchArgs),
    /// Measure messages between two processes
    #[command(after_long_help = flow(CHANNEL))]
    Channel(BenchArgs),
    /// Measure what a page costs on its way to and from each far store
    #[command(after_long_help = flow(FAR))]
    Far(FarBenchArgs),
    /// Measure names and the starting of programs
    #[command(after_long_help = flow(NAMES))]
    Names(BenchArgs),
    /// Measure programs in a direct segment beside small and large pages
    #[command(after_long_help = flow(SEGMENT))]
    Segment(SegmentBenchArgs),
    /// Measure samplers against exact traces
    #[command(after_long_help = flow(SAMPLING))]
    Sampling(SamplingBenchArgs),
    /// Measure what OpenMP's constructs cost beside libgomp and libomp
    #[command(after_long_help = flow(OPENMP))]
    Openmp(OpenmpBenchArgs),
}

/// Flags of `atoll bench openmp`.
#[derive(Args, Debug, Clone)]
pub(crate) struct OpenmpBenchArgs {
    /// Write the tables (CSV) to DIR
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) output: Option<PathBuf>,

    /// The directory where `make programs` put the workloads
    #[arg(long, value_name = "DIR", default_value = "target/programs", value_hint = ValueHint::DirPath)]
    pub(crate) programs: PathBuf,

    /// The two CPUs of all teams; default: the first two that this process may use
    #[arg(long, value_name = "A,B", value_parser = cpus)]
    pub(crate) cpus: Option<Pair>,

    /// The numbers of workers
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,4", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) workers: Vec<u32>,

    /// Measure only these constructs, named as in the table; give the flag once for each
    #[arg(long, value_name = "CONSTRUCT")]
    pub(crate) only: Vec<String>,

    /// The number of runs with each setting; medians count
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(crate) rounds: u32,

    /// The number of measurements of each construct in a run
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(crate) repetitions: u32,

    /// The least time of a measurement
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) microseconds: u32,

    /// Do the same as with --rounds 1 --repetitions 3 --microseconds 100
    #[arg(long)]
    pub(crate) quick: bool,
}

/// Flags of `atoll bench sampling`.
#[derive(Args, Debug, Clone)]
pub(crate) struct SamplingBenchArgs {
    /// The directory where `make programs` put the workloads
    #[arg(long, value_name = "DIR", default_value = "target/programs", value_hint = ValueHint::DirPath)]
    pub(crate) programs: PathBuf,

    /// Measure only these programs
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,

    /// Measure only these samplers, named as for atoll profile
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) samplers: Vec<String>,

    /// Overheads to keep to, in percent
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "1,5", value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(crate) overheads: Vec<u32>,

    /// The number of runs with each setting; the best counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(crate) rounds: u32,

    /// Run a fifth of the iterations, and one round
    #[arg(long)]
    pub(crate) quick: bool,

    /// Print the hottest variables, too, beside their true counts
    #[arg(long)]
    pub(crate) variables: bool,
}

/// Flags of the measurements that print tables.
#[derive(Args, Debug, Clone)]
pub(crate) struct BenchArgs {
    /// Write the tables (CSV) and drawings (SVG) to DIR
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) output: Option<PathBuf>,

    /// The CPUs of the two processes; default: the first two that this process may use
    #[arg(long, value_name = "A,B", value_parser = cpus)]
    pub(crate) cpus: Option<Pair>,
}

/// Flags of `atoll bench far`.
#[derive(Args, Debug, Clone)]
pub(crate) struct FarBenchArgs {
    #[command(flatten)]
    pub(crate) bench: BenchArgs,

    /// The bandwidths of the links, in Gbit/s
    #[arg(long, value_name = "GBITS", value_delimiter = ',', default_value = "10,56", value_parser = clap::value_parser!(u32).range(1..=400))]
    pub(crate) links: Vec<u32>,

    /// Measure programs at half of their memory over a link of 56 Gbit/s, beside a file, and nothing else
    #[arg(long)]
    pub(crate) programs: bool,

    /// The directory where `make programs` put the workloads
    #[arg(long, value_name = "DIR", default_value = "target/programs", value_hint = ValueHint::DirPath)]
    pub(crate) programs_dir: PathBuf,
}

/// Flags of `atoll bench segment`.
#[derive(Args, Debug, Clone)]
pub(crate) struct SegmentBenchArgs {
    /// Write the tables (CSV) to DIR
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) output: Option<PathBuf>,

    /// The directory where `make programs` put the workloads
    #[arg(long, value_name = "DIR", default_value = "target/programs", value_hint = ValueHint::DirPath)]
    pub(crate) programs: PathBuf,

    /// The number of workers in each run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) workers: u32,

    /// Bytes of RandomAccess's table, a power of two; the target is for 4G
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = table)]
    pub(crate) size: Size,

    /// The class of Graph500's graph: A has 72 MB, B 560 MB, C 2.2 GB
    #[arg(long, value_name = "CLASS", default_value = "B", value_parser = ["A", "B", "C"])]
    pub(crate) graph: String,

    /// The most rounds of all measurements; no round begins that would not fit into the eight minutes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,

    /// Seconds that any run of a program may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) limit: u64,

    /// Do the same as with --size 512M --graph A --rounds 1
    #[arg(long)]
    pub(crate) quick: bool,
}

/// Parses the bytes of RandomAccess's table: a power of two from 2^16 words, its smallest class, to 2^35 words of 8 bytes.
fn table(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|e: atoll_pages::size::SizeError| e.to_string())?;
    match size.0 {
        n if n.is_power_of_two() && (1 << 19..=1 << 38).contains(&n) => Ok(size),
        _ => Err("it must be a power of two from 512K to 256G".to_owned()),
    }
}

/// The numbers of two CPUs.
type Pair = std::sync::Arc<[usize]>;

fn cpus(text: &str) -> Result<Pair, String> {
    let wrong = || format!("{text:?} is not two different CPUs, as in 0,1");
    let (here, there) = text.split_once(',').ok_or_else(wrong)?;
    match (here.trim().parse(), there.trim().parse()) {
        (Ok(here), Ok(there)) if here != there => Ok([here, there].into()),
        _ => Err(wrong()),
    }
}
