//! Flags of `atoll repro`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

pub(super) const ABOUT: &str = "\
cmcp: figures 6, 7a to 7d, 8, 9, 10 and table 1 of the CMCP paper, on the simulated machine knc-5110p, from traces of cg, lu, bt
and stencil. Four numbers are fitted. The time of an interrupt for an invalidation is fitted so that bt at 56 cores with FIFO, private page tables and
64% of its memory near has 55% of its speed without data movement (the paper: between 50 and 60%). The number of rounds in which a core is interrupted
for a page that leaves is fitted on CG's invalidations a fault at 56 cores, the frames that LRU's scan passes over on bt's invalidations at 56 cores, and what waiters add to a lock on
the cores up to which regular page tables gain. All else is prediction. Results are kept in a file of the --out directory: a run that was ended goes on where it stopped.

segmentation: RandomAccess and Graph500 with 1 and 2 workers on this machine, with pages of 4K, 2M and 1G, in direct segments (atoll run
--translation segment) and on segmentation cores (atoll segment run), beside the talk's 81% over 4K pages and 9% over 2M pages; and OS noise as
fixed quanta of work. Huge pages are reserved meanwhile, as root. What this machine does not have is left out, with the reason. Then both programs run on
one core of the simulated machine, where one number is fitted: the cycles of a walk to a 4K page, on Graph500 (81%).

pebs: programs run on this machine with the best sampler it has, at the paper's reset values and buffers. It prints overheads in the form of
figure 3, coverage, pages by count (figure 7), times between wake-ups (figure 6) and harvesting by a thread. How interruptions of 32 to 2,048 nodes
add up at barriers is simulated. The timer's unit is 2 microseconds: reset 64 is a sample each 128 us of a thread's time.

popcorn: nine programs on the two simulated machines of the paper, on one node and on two, under one writer, many writers, smart regions and
prefetch. What two nodes of this machine do is measured by `make bench-nodes`.

barrelfish: `atoll bench latency`, `throughput`, `channel` and `names`, one after the other, beside the report's tables.

What came of all papers is in index.html of the --out directory. Traces that are not in the directory of traces yet are captured by `atoll trace`. Our number is printed beside the paper's, and
each claim ends in `held` or `not held`. The exit status is 0 either way.";

/// Flags of `atoll repro`.
#[derive(Args, Debug, Clone)]
pub(crate) struct ReproArgs {
    /// The paper to reproduce; default: all
    #[arg(value_enum, value_name = "PAPER")]
    pub(crate) paper: Option<PaperArg>,

    /// Use smaller classes, fewer core counts and fewer limits, to end within half an hour on two CPUs
    #[arg(long)]
    pub(crate) quick: bool,

    /// The directory where `make programs` put the workloads
    #[arg(long, value_name = "DIR", default_value = "target/programs", value_hint = ValueHint::DirPath)]
    pub(crate) programs: PathBuf,

    /// The directory where traces are kept
    #[arg(long, value_name = "DIR", default_value = "target/repro/traces", value_hint = ValueHint::DirPath)]
    pub(crate) traces: PathBuf,

    /// The directory where figures and results are written
    #[arg(long, value_name = "DIR", default_value = "target/repro", value_hint = ValueHint::DirPath)]
    pub(crate) out: PathBuf,
}

/// The papers that can be reproduced.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PaperArg {
    /// Gerofi and others, HPDC'14
    Cmcp,
    /// Soma, Gerofi and Ishikawa, 2014
    Segmentation,
    /// Roca Nonell and others, MCHPC'18
    Pebs,
    /// Chuang and others, SYSTOR'20
    Popcorn,
    /// ETH Zurich, 2014
    Barrelfish,
    /// No paper's: what each replacement policy fetches beside Belady's MIN
    Foresight,
}

impl PaperArg {
    /// All papers, in the order in which they are reproduced.
    pub(crate) const ALL: [Self; 6] =
        [Self::Cmcp, Self::Segmentation, Self::Pebs, Self::Popcorn, Self::Barrelfish, Self::Foresight];

    /// Returns the paper's name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cmcp => "cmcp",
            Self::Segmentation => "segmentation",
            Self::Pebs => "pebs",
            Self::Popcorn => "popcorn",
            Self::Barrelfish => "barrelfish",
            Self::Foresight => "foresight",
        }
    }
}
