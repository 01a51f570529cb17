//! The runtime loaded into an unmodified OpenMP program: the OpenMP ABI, workers and libc wrappers.
//!
//! Stands on `atoll-memory` for pages and on `atoll-nodes` for programs on several nodes; the `atoll` command injects it.

mod arch;
mod heap;
mod journal;
mod omp;
mod start;
mod state;
mod workers;
mod wrap;

atoll_binding::bind_own_calls!();
