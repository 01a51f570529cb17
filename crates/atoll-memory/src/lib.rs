//! The arena: shared memory in which a program keeps its data, and how its pages come and go.
//!
//! Stands on `atoll-pages` for decisions; the OpenMP runtime and the commands stand on it.

pub mod far;
