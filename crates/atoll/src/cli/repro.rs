//! Flags of `atoll repro`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

pub(super) const ABOUT: &str = "\
cmcp: figures 6, 7a to 7d, 8, 9, 10 and table 1 of the CMCP paper, on the simulated machine knc-5110p, from traces of cg, lu, bt
and stencil. One number is calibrated: the work of a major fault, so that bt at 56 cores with FIFO, private page tables and
64% of its memory near has 55% of its speed without data movement (the paper: between 50 and 60%); another, how often a core is asked
for a page that leaves, is fitted on CG's invalidations a fault at 56 cores. All else is prediction.

segmentation: RandomAccess and Graph500 with 1 and 2 workers on this machine, with pages of 4K, 2M and 1G, in direct segments (atoll run
--translation segment) and on segmentation cores (atoll segment run), beside the talk's 81% over 4K pages and 9% over 2M pages; OS noise as
fixed quanta of work. Huge pages are reserved meanwhile, as root; what is not to be had here is left out with the reason. Then both programs on
one core of the simulated machine, where one number is calibrated: the cycles of a walk to a 4K page, on Graph500 (81%).

pebs: programs run on this machine with the best sampler it has, at the paper's reset values and buffers: overheads in the form of
figure 3, coverage, pages by count (figure 7), times between wake-ups (figure 6), harvesting by a thread; and, simulated, how interruptions of 32 to 2,048
nodes add up at barriers. The timer's unit is 2 microseconds: reset 64 is a sample each 128 us of a thread's time.

Traces are captured by `atoll trace` where they are not in the directory of traces yet. Ours is printed beside the paper's
number; each claim ends in `held` or `not held`. The exit status is 0 either way.";

/// `atoll repro`.
#[derive(Args, Debug, Clone)]
pub(crate) struct ReproArgs {
    /// What to reproduce; everything if it is left out
    #[arg(value_enum, value_name = "PAPER")]
    pub(crate) paper: Option<PaperArg>,

    /// Smaller classes, fewer core counts: within 10 minutes on two CPUs
    #[arg(long)]
    pub(crate) quick: bool,

    /// Where `make programs` put the workloads
    #[arg(long, value_name = "DIR", default_value = "target/programs", value_hint = ValueHint::DirPath)]
    pub(crate) programs: PathBuf,

    /// Where traces are kept
    #[arg(long, value_name = "DIR", default_value = "target/repro/traces", value_hint = ValueHint::DirPath)]
    pub(crate) traces: PathBuf,

    /// Where figures and results are written
    #[arg(long, value_name = "DIR", default_value = "target/repro", value_hint = ValueHint::DirPath)]
    pub(crate) out: PathBuf,
}

/// A paper.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PaperArg {
    /// Gerofi and others, HPDC'14
    Cmcp,
    /// Soma, Gerofi and Ishikawa, 2014
    Segmentation,
    /// Roca Nonell and others, MCHPC'18
    Pebs,
}
