//! Page walks counted by the processor: misses of the data TLB by a program and all it starts.
//!
//! `rounds` counts around each run. Virtual machines often have no such counter.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const PERF_TYPE_HW_CACHE: u32 = 3;
/// The data TLB's loads that missed.
const DTLB_LOAD_MISSES: u64 = 3 | 1 << 16;
const ATTRIBUTE_BYTES: u32 = 64;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// The beginning of the kernel's `perf_event_attr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    unused: [u64; 3],
    flags: u64,
    rest: [u64; 2],
}

const _: () = assert!(size_of::<Attributes>() == ATTRIBUTE_BYTES as usize);

/// Counts what this thread's children miss from now on.
pub(crate) struct Walks(OwnedFd);

impl Walks {
    /// Begins; none where the processor or the kernel has no such counter for us.
    pub(crate) fn begin() -> Option<Walks> {
        let attributes = Attributes {
            kind: PERF_TYPE_HW_CACHE,
            size: ATTRIBUTE_BYTES,
            config: DTLB_LOAD_MISSES,
            flags: INHERIT | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR,
            ..Attributes::default()
        };
        // SAFETY: the kernel reads as many bytes as the structure says it has; the descriptor is new.
        unsafe {
            let fd = libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                0,
                -1,
                -1,
                PERF_FLAG_FD_CLOEXEC,
            );
            (fd >= 0).then(|| Walks(OwnedFd::from_raw_fd(fd as i32)))
        }
    }

    /// What was counted, once the children are over.
    pub(crate) fn count(&self) -> Option<u64> {
        let mut value = [0; 8];
        // SAFETY: valid for eight bytes.
        let n = unsafe { libc::read(self.0.as_raw_fd(), value.as_mut_ptr().cast(), 8) };
        (n == 8).then(|| u64::from_ne_bytes(value))
    }
}
