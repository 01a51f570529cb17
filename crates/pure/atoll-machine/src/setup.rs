//! The parameters of a simulation: workers, near memory, pages, page tables and policy.
//!
//! The commands parse them from flags; [`Engine`](crate::Engine) is built from a [`Setup`].

use std::fmt;
use std::str::FromStr;

use atoll_pages::page_size::PageSizeError;
use atoll_pages::spec::SpecError;
use atoll_pages::{MAX_WORKERS, PageSize, PolicySpec};

/// How addresses are translated, and in which units memory moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageMode {
    /// All pages have this size.
    One(PageSize),
    /// Each page is the largest of 4K, 64K and 2M whose aligned block lies within one mapping of the program.
    Mixed,
    /// Base and limit: nothing is translated, and all of memory is near.
    Segment,
}

impl PageMode {
    /// Returns the largest page size in use.
    pub fn largest(self) -> PageSize {
        match self {
            Self::One(size) => size,
            Self::Mixed | Self::Segment => PageSize::M2,
        }
    }

    /// Returns the smallest page size in use, which frames are counted in.
    pub fn smallest(self) -> PageSize {
        match self {
            Self::One(size) => size,
            Self::Mixed | Self::Segment => PageSize::K4,
        }
    }
}

impl fmt::Display for PageMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(size) => size.fmt(f),
            Self::Mixed => f.pad("mixed"),
            Self::Segment => f.pad("segment"),
        }
    }
}

impl FromStr for PageMode {
    type Err = PageSizeError;

    fn from_str(text: &str) -> Result<Self, PageSizeError> {
        match text {
            "mixed" => Ok(Self::Mixed),
            "segment" => Ok(Self::Segment),
            size => size.parse().map(Self::One),
        }
    }
}

/// The kinds of page tables (`papers/cmcp.txt`, section 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tables {
    /// Each worker has its own; it is known which workers map a page.
    Private,
    /// There is one for all, under one lock; every change interrupts all other workers.
    Shared,
}

impl fmt::Display for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Private => "private",
            Self::Shared => "shared",
        })
    }
}

/// What decides which page leaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Replacement {
    /// A policy of `atoll-pages`.
    Policy(PolicySpec),
    /// Nothing leaves: all memory is near, whatever the limit.
    None,
    /// Belady's MIN: the fewest major faults there can be.
    Min,
}

impl fmt::Display for Replacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(spec) => spec.fmt(f),
            Self::None => f.pad("none"),
            Self::Min => f.pad("min"),
        }
    }
}

impl FromStr for Replacement {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        match text {
            "none" => Ok(Self::None),
            "min" => Ok(Self::Min),
            spec => spec.parse().map(Self::Policy),
        }
    }
}

/// What a fault brings, and what leaves for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pager {
    /// As in the paper's kernel: a fault brings its page; when there is no room for it, `batch` pages leave at once, at
    /// least 1.
    Kernel {
        /// The number of pages.
        batch: u32,
    },
    /// As in `atoll run`: a fault brings what its stream will want next, mapped with it; workers keep free frames for
    /// themselves, which they get in batches of neighbours; pages are mapped with their neighbours.
    Atoll,
}

impl fmt::Display for Pager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kernel { .. } => "kernel",
            Self::Atoll => "atoll",
        })
    }
}

/// The parameters of one simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setup {
    /// The number of workers, each on a hardware thread of its own: from 1 to [`MAX_WORKERS`].
    pub workers: usize,
    /// Near memory in bytes; `None`: as much as is touched.
    pub near: Option<u64>,
    /// The pages.
    pub page: PageMode,
    /// The page tables.
    pub tables: Tables,
    /// The replacement policy.
    pub policy: Replacement,
    /// The pager that handles faults.
    pub pager: Pager,
}

/// The reason why a setup cannot be simulated.
#[derive(thiserror::Error, Debug, Clone, PartialEq, Eq)]
pub enum SetupError {
    /// The number of workers is out of range.
    #[error("{0} workers cannot be simulated: from 1 to {MAX_WORKERS}")]
    Workers(usize),
    /// There are more workers than the machine has hardware threads.
    #[error("{workers} workers are more than the {threads} hardware threads of {node}")]
    Threads {
        /// The number of workers asked for.
        workers: usize,
        /// The number of hardware threads.
        threads: u64,
        /// The name of the node.
        node: String,
    },
    /// Not even one page fits.
    #[error("{near} bytes of near memory do not hold one page of {page} bytes")]
    Near {
        /// The near memory asked for, in bytes.
        near: u64,
        /// The largest page, in bytes.
        page: u64,
    },
    /// There are more frames than a policy can number.
    #[error("{0} frames are more than a policy can number: use larger pages or less near memory")]
    Frames(u64),
    /// Belady's MIN is only known for pages of one size.
    #[error("policy min needs pages of one size, not mixed")]
    MinMixed,
    /// The batch of pages to evict at once is empty.
    #[error("a batch is at least one page")]
    Batch,
    /// A policy or pages that atoll's pager does not have.
    #[error("atoll's pager has pages of one size, and no policy min: simulate those with the kernel's")]
    Pager,
    /// Workers that keep frames for themselves could take all of the frames.
    #[error("atoll's pager needs {least} bytes of near memory for {workers} workers, not {near}")]
    Least {
        /// The near memory asked for, in bytes.
        near: u64,
        /// The least near memory, in bytes.
        least: u64,
        /// The number of workers.
        workers: usize,
    },
}
