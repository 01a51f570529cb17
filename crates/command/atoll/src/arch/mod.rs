//! What the command needs of the processor: which programs and libraries are this machine's, which kernels will do, and for
//! `atoll bench` its caches, TLBs and clock.
//!
//! Each file here holds the same items for one kind of processor; `run::check`, `doctor` and `bench` use them. `atoll-memory` has the processor's name.

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod processor;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod processor;

pub(crate) use atoll_memory::arch::NAME;
pub(crate) use processor::*;

/// A version of Linux, and the package by which Debian brings a new one.
pub(crate) struct Kernel {
    pub(crate) version: (u32, u32),
    pub(crate) package: &'static str,
}
