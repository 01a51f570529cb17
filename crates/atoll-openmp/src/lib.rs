//! The runtime loaded into an unmodified OpenMP program: the OpenMP ABI, workers and libc wrappers.
//!
//! Stands on `atoll-memory` for pages; the `atoll` command injects it.

mod heap;
mod start;
mod state;
mod futex;
mod hooks;
mod omp;
mod workers;
mod wrap;
