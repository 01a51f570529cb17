//! Samplers of memory accesses, and the recorder that makes a profile of their samples.
//!
//! `atoll profile` starts a program, attaches samplers ([`sampler::Sampler`]) to its threads and lets a [`recorder::Recorder`]
//! write what they find as `atoll-record`'s profile. The design follows Roca Nonell and others, MCHPC'18: periods and buffers
//! are the user's to set, many records share one wake-up, and mappings are kept with their times.

pub mod calibrate;
pub mod clock;
pub mod code;
pub mod control;
pub mod damon;
pub mod faults;
pub mod hardware;
mod images;
pub mod instruction;
mod machine;
pub mod pagemap;
mod paging;
pub mod perf;
pub mod random;
pub mod recorder;
pub mod sampler;
mod software;
pub mod symbols;
pub mod threads;
pub mod timer;
pub mod touches;
pub mod writes;

pub use sampler::{Found, Harvest, Sampler, SamplerError};
