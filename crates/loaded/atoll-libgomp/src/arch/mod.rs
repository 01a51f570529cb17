//! What the libraries need of the processor: the return address as an argument, calls of any number of arguments, thread-local words.
//!
//! Each file here holds the same items for one kind of processor; [`with_caller`](crate::with_caller) and [`frames`](crate::frames)
//! use them.

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod processor;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod processor;

pub(crate) use processor::*;
