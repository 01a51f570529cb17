//! What this crate needs of the processor: calls of functions on other stacks.
//!
//! Each file here holds the same items for one kind of processor; `stack` uses them.

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod processor;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod processor;

pub(crate) use processor::*;
