//! 32-bit protected mode without paging: the talk's segmentation cores, with base and limit and no page table at all.
//!
//! There is one machine (`machine.rs`, `monitor.rs`) and two processors to run it: KVM's (`kvm.rs`) and QEMU's (`qemu.rs`). The
//! segment begins at physical address 0. Calls go through a ring, whose other end is the paging side's.

mod kvm;
mod machine;
mod monitor;
mod qemu;

pub use kvm::Kvm32Cores;
pub use qemu::QemuCores;
