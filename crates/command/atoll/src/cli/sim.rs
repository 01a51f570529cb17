//! The flags of `atoll sim`.

use std::path::PathBuf;

use atoll_machine::job::Consistency;
use atoll_machine::{PageMode, Replacement};
use atoll_pages::Size;
use clap::{Args, ValueEnum, ValueHint};

use super::{ConsistencyArg, OnOff, PageTablesArg, Policies, Share};

/// What `--help` prints below the flags.
pub(super) const SIM: &str = "\
Replays a trace of `atoll trace` on a machine that need not be there. Flags that take several values, with commas between, make a
grid, which is replayed on all CPUs. Besides, the trace is replayed once with everything near (policy none) for each page size and kind of page tables: the
column relative is that time over the time at the limit.

Faults, invalidations and TLB misses are per worker, as in the CMCP paper's table 1. The time of all workers is split into
computing, page walks, the work of faults, waiting for locks, sending invalidations, being interrupted by other workers' invalidations, transfers, and
waiting at barriers. The footprint is the size of the 4K pages that the trace touches.

With --nodes the trace's workers are spread over nodes that share no memory, and the cost of keeping 4K pages coherent is simulated
instead: faults that wait for other nodes, invalidations sent one by one and batched at barriers, pages and diffs that move. Time is approximate: it has
computing, faults, links and barriers, but no TLBs and near limits.

A trace with a filter (its header says so) leaves out pages that a worker has just touched. It shows too few TLB misses for TLBs that are not larger
than the filter.";

/// The pager that is simulated.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PagerArg {
    /// The paper's kernel: a fault brings its page
    Kernel,
    /// atoll's: a fault also brings the pages that its stream will want next
    Atoll,
}

impl From<ConsistencyArg> for Consistency {
    fn from(arg: ConsistencyArg) -> Self {
        match arg {
            ConsistencyArg::Sc => Self::Sc,
            ConsistencyArg::Mw => Self::Mw,
            ConsistencyArg::Smart => Self::Smart,
        }
    }
}

/// Flags of `atoll sim`.
#[derive(Args, Debug, Clone)]
pub(crate) struct SimArgs {
    /// Machine: knc-5110p, knl-7250, xeon-e5-2670v2+phi-3210a, xeon-e5-2620+thunderx, this-machine, or a TOML file
    #[arg(long, value_name = "MACHINE", default_value = "this-machine")]
    pub(crate) machine: String,

    /// The number of workers that the trace must have; each is simulated on a hardware thread of its own
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<usize>,

    /// Near limits in percent of the footprint, or sizes
    #[arg(long, value_name = "SHARES", value_delimiter = ',', default_value = "100%,75%,50%,25%")]
    pub(crate) near: Vec<Share>,

    /// Page sizes: 4K, 64K, 2M, mixed (the largest of them that fits a mapping), or segment (no paging at all)
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "4K")]
    pub(crate) page: Vec<PageMode>,

    /// Page tables: private, shared
    #[arg(long, value_enum, value_name = "TABLES", value_delimiter = ',', default_value = "private")]
    pub(crate) page_tables: Vec<PageTablesArg>,

    /// Replacement policies, options as in cmcp:p=0.5; and min (Belady's bound)
    #[arg(long, value_name = "POLICIES", default_value = "adaptive,fifo,lru,cmcp,min")]
    pub(crate) policy: Vec<Policies<Replacement>>,

    /// The pager that handles faults: the paper's kernel, or that of `atoll run`, which fetches ahead and moves neighbours together
    #[arg(long, value_enum, value_name = "PAGER", default_value = "kernel")]
    pub(crate) pager: PagerArg,

    /// The number of pages that the kernel's pager evicts at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch: u32,

    /// The number of replays before the one that counts, so that it finds near memory full
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) warm: u32,

    /// Count only what happens in these regions, by the names of their functions
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) regions: Vec<String>,

    /// Of these regions, count only those of the first N iterations, each of which begins with the region that is named first
    #[arg(long, value_name = "N", requires = "regions", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) iterations: Option<u32>,

    /// Page only runs of touched memory of at least SIZE; stacks and small blocks stay near and are not counted
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub(crate) paged: Size,

    /// The number of nodes that share no memory, over which the workers are spread in equal stretches
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=64),
          conflicts_with_all = ["near", "page", "page_tables", "policy", "pager", "batch", "regions", "iterations", "paged", "parquet"])]
    pub(crate) nodes: Vec<u8>,

    /// Protocols between the nodes
    #[arg(
        long,
        value_enum,
        value_name = "PROTOCOLS",
        value_delimiter = ',',
        default_value = "sc,mw,smart",
        requires = "nodes"
    )]
    pub(crate) consistency: Vec<ConsistencyArg>,

    /// Whether nodes fetch, at a region's entry, the pages that they had to wait for in an earlier run of it
    #[arg(
        long,
        value_enum,
        value_name = "ON|OFF",
        value_delimiter = ',',
        default_value = "off,on",
        requires = "nodes"
    )]
    pub(crate) prefetch: Vec<OnOff>,

    /// Write all counts and times to FILE, comma-separated
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) csv: Option<PathBuf>,

    /// Write the same to FILE as Parquet; only where atoll was built with the feature `parquet`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) parquet: Option<PathBuf>,

    /// Print every number of the machine's description with its source, and end
    #[arg(long)]
    pub(crate) describe: bool,

    /// A trace that `atoll trace` wrote
    #[arg(value_name = "TRACE", value_hint = ValueHint::FilePath, required_unless_present = "describe")]
    pub(crate) trace: Option<PathBuf>,
}
