//! Opening and reading the kernel's counters of a thread (perf events): page faults, and page walks where there is a PMU.
//!
//! `segment/faults.rs` counts faults of workers with it, the measurements count walks of the programs they start.

use crate::sys::{self, Errno};

/// What can be counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Page faults, counted by the kernel itself.
    PageFaults,
    /// Loads that the data TLB missed, counted by the processor: virtual machines often have no such counter.
    DataTlbLoadMisses,
}

impl Event {
    /// As `perf_event_attr` names it: kind and configuration.
    fn numbers(self) -> (u32, u64) {
        const PERF_TYPE_SOFTWARE: u32 = 1;
        const PERF_COUNT_SW_PAGE_FAULTS: u64 = 2;
        const PERF_TYPE_HW_CACHE: u32 = 3;
        const DATA_TLB_READ_MISS: u64 = 3 | 1 << 16;
        match self {
            Event::PageFaults => (PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS),
            Event::DataTlbLoadMisses => (PERF_TYPE_HW_CACHE, DATA_TLB_READ_MISS),
        }
    }
}

/// Processes and threads that the counted one makes count too, once they are over.
pub const INHERIT: u64 = 1 << 1;
/// What the kernel does for the thread does not count.
pub const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;

/// Bytes of the first published version of the structure.
const ATTRIBUTE_BYTES: u32 = 64;
const PERF_FLAG_FD_CLOEXEC: usize = 8;

/// The beginning of the kernel's `perf_event_attr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    bp_type: u32,
    config1: u64,
}

const _: () = assert!(size_of::<Attributes>() == ATTRIBUTE_BYTES as usize);

/// Counts the calling thread's events from now on, with these flags; gives the counter's descriptor, which is the caller's to close.
///
/// # Errors
/// The kernel's refusal: there is no such counter, or `kernel.perf_event_paranoid` or seccomp forbids it.
pub fn open(event: Event, flags: u64) -> Result<i32, Errno> {
    let (kind, config) = event.numbers();
    let flags = flags | EXCLUDE_HYPERVISOR;
    let attributes = Attributes { kind, size: ATTRIBUTE_BYTES, config, flags, ..Attributes::default() };
    let any_cpu = usize::MAX;
    // SAFETY: the kernel reads `size` bytes of the attributes.
    let fd = unsafe {
        let at = std::ptr::from_ref(&attributes) as usize;
        sys::syscall(libc::SYS_perf_event_open, [at, 0, any_cpu, usize::MAX, PERF_FLAG_FD_CLOEXEC, 0])
    }?;
    Ok(sys::out_of_the_way(fd as i32))
}

/// What a counter has counted; none if it is none.
pub fn read(fd: i32) -> Option<u64> {
    let mut value = [0; 8];
    // SAFETY: valid for eight bytes.
    let n = unsafe { sys::read(fd, value.as_mut_ptr(), 8) };
    (n == Ok(8)).then(|| u64::from_ne_bytes(value))
}
