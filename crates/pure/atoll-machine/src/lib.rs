//! Simulated machines: what a program's page accesses cost on machines that nobody here owns.
//!
//! The commands `atoll sim` and `atoll repro` drive it with traces (`atoll-record`). It drives the very policies that ship
//! (`atoll-pages`). Pure code: no clock, no file, no thread. Sources: `papers/cmcp.txt` (page tables in section 2.3, page sizes
//! in 4, costs and policies in 5), `papers/hybrid-segmentation.txt` (segments).
#![forbid(unsafe_code)]

mod clocks;
pub mod costs;
pub mod counts;
pub mod describe;
pub mod engine;
mod feed;
pub mod job;
mod minimum;
mod pages;
pub mod setup;
pub mod simulate;
pub mod survey;
mod tlb;
pub mod watch;

pub use counts::{Counts, Outcome, Times, Worker};
pub use describe::{Machine, MachineError, Node};
pub use engine::{Engine, Memory, RunError};
pub use setup::{PageMode, Pager, Replacement, Setup, SetupError, Tables};
pub use simulate::{Part, SimulateError, Warm, simulate};
pub use survey::Survey;
pub use watch::{Happening, Watch};
