//! Segmentation cores: programs run with no paging of their own, their system calls delegated to the paging side.
//!
//! `atoll segment run` uses it. `backend.rs` has what all kinds of cores have in common. `ldt/`, `kvm64/` and `flat/` (KVM and
//! QEMU) are the kinds. `calls/` is the paging side, which serves all of them. The 64-bit direct segment of unmodified programs
//! is in `atoll-memory`.
//!
//! All kinds of cores execute the processor's own segments or x86 code in a virtual CPU, so on another processor than x86-64 this
//! crate is empty, and the command says so.
//!
//! Source: Soma, Gerofi, Ishikawa, "Revisiting Virtual Memory for High Performance Computing on Manycore Architectures: A Hybrid
//! Segmentation Kernel Approach" (talk, 2014).

#![cfg(target_arch = "x86_64")]

mod backend;
mod calls;
mod errno;
mod flat;
mod image;
mod kvm;
mod kvm64;
mod ldt;
mod memory;
mod plan;
mod shared_object;
mod space;
mod stage;
mod start;
mod violation;
mod window;

pub use backend::{Cores, End, Kind, Program, SegmentError};
pub use errno::Errno;
pub use flat::{Kvm32Cores, QemuCores};
pub use image::{Image, ImageError, Width};
pub use kvm64::Kvm64Cores;
pub use ldt::{LdtCores, ProcessCores};
pub use space::Space;
pub use start::Start;
pub use violation::{Registers, Violation, explain};
pub use window::Window;
