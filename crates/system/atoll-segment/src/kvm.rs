//! What all backends on KVM share: opening it, giving memory to it, and reporting its errors.
//!
//! `kvm64/` and `flat/kvm.rs` make their virtual CPUs with it.

use kvm_bindings::{CpuId, KVM_MAX_CPUID_ENTRIES, kvm_userspace_memory_region};
use kvm_ioctls::{Kvm, VmFd};

use crate::backend::{Kind, SegmentError, machine};
use crate::memory::Memory;

/// The version of KVM's interface; there has been no other.
const API: i32 = 12;

/// Opens KVM for cores of a kind.
///
/// # Errors
/// There is no KVM, or this process may not use it.
pub(crate) fn open(kind: Kind) -> Result<Kvm, SegmentError> {
    let unavailable = |why: String| SegmentError::Unavailable { kind, why };
    let kvm = Kvm::new().map_err(|error| {
        unavailable(format!(
            "/dev/kvm cannot be opened ({error}): load kvm_intel or kvm_amd, or join the group that owns it"
        ))
    })?;
    let version = kvm.get_api_version();
    if version != API {
        return Err(unavailable(format!("KVM's interface has version {version}, and not {API}")));
    }
    Ok(kvm)
}

/// Makes an error for `map_err`, with the part of KVM that failed.
pub(crate) fn failed(what: &'static str) -> impl Fn(kvm_ioctls::Error) -> SegmentError {
    move |error| machine(what)(std::io::Error::from_raw_os_error(error.errno()))
}

/// Returns the features of virtual CPUs: all that both the processor and KVM have.
pub(crate) fn features(kvm: &Kvm) -> Result<CpuId, SegmentError> {
    kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).map_err(failed("the processor's features"))
}

/// Gives `memory` to the virtual machine at guest-physical address `at`.
///
/// # Safety
/// The memory must be kept longer than the machine runs.
pub(crate) unsafe fn give(vm: &VmFd, slot: u32, memory: &Memory, at: u64) -> Result<(), SegmentError> {
    let region = kvm_userspace_memory_region {
        slot,
        flags: 0,
        guest_phys_addr: at,
        memory_size: memory.bytes() as u64,
        userspace_addr: memory.base() as u64,
    };
    // SAFETY: the caller keeps the contract above.
    unsafe { vm.set_user_memory_region(region) }.map_err(failed("giving memory to the virtual machine"))
}
