//! What the command needs of the processor: which programs and libraries are this machine's.
//!
//! Each file here holds the same items for one kind of processor; `run::check` uses them. `atoll-memory` has the processor's name.

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod processor;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod processor;

pub(crate) use atoll_memory::arch::NAME;
pub(crate) use processor::*;
