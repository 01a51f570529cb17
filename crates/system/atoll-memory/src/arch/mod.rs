//! What this crate needs of the processor: system calls, the time stamp counter, and what a signal frame says of a fault or a call.
//!
//! Each file here holds the same items for one kind of processor. The fault path and the start of workers use them through `sys`
//! and the runtime.
//!
//! Rules: no allocation, no locks, no arena access.

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod processor;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod processor;

pub use processor::*;

/// What the kernel wrote into a signal frame about a memory access that it could not complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Whether the access was a store, or an atomic operation that the processor counts as one.
    pub write: bool,
    /// Whether a page was mapped at the address, and only its protection forbade the access.
    pub protection: bool,
}
