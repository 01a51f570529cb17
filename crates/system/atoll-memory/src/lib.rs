//! The arena: shared memory in which a program keeps its data, and how its pages come and go.
//!
//! Stands on `atoll-pages` for decisions; the OpenMP runtime and the commands stand on it.

pub mod arch;
pub mod arena;
pub mod arena_files;
pub mod control;
pub mod ending;
pub mod far;
pub mod futex;
pub mod layout;
pub mod limits;
pub mod managed;
pub mod pager;
pub mod perf_event;
pub mod race_counts;
pub mod region_counts;
pub mod region_spread;
pub mod segment;
pub mod signals;
pub mod spin;
pub mod sys;
pub mod uffd;
mod yields;
