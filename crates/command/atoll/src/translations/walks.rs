//! Counts page walks by the processor's counter: misses of the data TLB by a program and all that it starts.
//!
//! `rounds` counts around each run. Virtual machines often have no such counter.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use atoll_memory::perf_event::{self, EXCLUDE_KERNEL, Event, INHERIT};

/// Counts what this thread's children miss from now on.
pub(crate) struct Walks(OwnedFd);

impl Walks {
    /// Begins counting; `None` where the processor or the kernel has no such counter for this process.
    pub(crate) fn begin() -> Option<Walks> {
        let fd = perf_event::open(Event::DataTlbLoadMisses, INHERIT | EXCLUDE_KERNEL).ok()?;
        // SAFETY: a new descriptor.
        Some(Walks(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Returns the count, once the children are over.
    pub(crate) fn count(&self) -> Option<u64> {
        perf_event::read(self.0.as_raw_fd())
    }
}
