//! What this crate needs of the processor: kinds of relocations, the library's own dynamic section, a system call, and how the
//! choice among a function's variants is asked for.
//!
//! Each file here holds the same items for one kind of processor; `elf` and `object` use them.

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod processor;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod processor;

pub(crate) use processor::*;

/// The kernel's words about the processor (`AT_HWCAP` and `AT_HWCAP2`), which resolvers of variants may be given.
#[derive(Clone, Copy, Default)]
pub(crate) struct Hardware {
    pub(crate) first: usize,
    pub(crate) second: usize,
}
