//! What the runtime needs of the processor: bodies of entry points that Rust cannot express, the thread's pointer, the few system
//! calls that must be made without a stack.
//!
//! Each file here holds the same items for one kind of processor; the modules that use an item say what it is for. `atoll-memory`
//! has system calls and signal frames, `atoll-libgomp` what hooks and runtime share.

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod processor;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod processor;

pub(crate) use processor::*;
