//! One event of a trace.
//!
//! [`codec`](super::codec) defines its form on disk.

/// An action of a worker, or a change of the address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A worker touched a 4K page (`page` = virtual address >> 12).
    Access {
        /// The worker.
        worker: u16,
        /// The page's number.
        page: u64,
        /// Whether it wrote.
        write: bool,
    },
    /// A worker executed this many instructions between its last event and its next one, including the next one's own
    /// instruction.
    Compute {
        /// The worker.
        worker: u16,
        /// The number of instructions.
        instructions: u64,
    },
    /// A parallel region began; `name` is the address of its outlined function.
    RegionBegin {
        /// The worker.
        worker: u16,
        /// The address of the outlined function.
        name: u64,
    },
    /// The region ended for this worker.
    RegionEnd {
        /// The worker.
        worker: u16,
        /// The address of the outlined function.
        name: u64,
    },
    /// A worker passed a team barrier, named by its return address.
    Barrier {
        /// The worker.
        worker: u16,
        /// The address that the barrier's call returns to.
        name: u64,
    },
    /// Pages [first, first+pages) were mapped.
    Map {
        /// The number of the first page.
        first: u64,
        /// The number of pages.
        pages: u64,
    },
    /// Pages [first, first+pages) were unmapped.
    Unmap {
        /// The number of the first page.
        first: u64,
        /// The number of pages.
        pages: u64,
    },
}

impl Event {
    /// Returns the worker of the event; `None` for changes of the address space.
    pub fn worker(&self) -> Option<u16> {
        match *self {
            Self::Access { worker, .. }
            | Self::Compute { worker, .. }
            | Self::RegionBegin { worker, .. }
            | Self::RegionEnd { worker, .. }
            | Self::Barrier { worker, .. } => Some(worker),
            Self::Map { .. } | Self::Unmap { .. } => None,
        }
    }
}
