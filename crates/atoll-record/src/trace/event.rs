//! One event of a trace.
//!
//! [`codec`](super::codec) is how it looks on disk.

/// What a worker did, or what happened to the address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A worker touched a 4K page (`page` = virtual address >> 12).
    Access {
        /// Who.
        worker: u16,
        /// The page's number.
        page: u64,
        /// Did it write?
        write: bool,
    },
    /// A worker executed this many instructions between its last event and its next one, that one's own included.
    Compute {
        /// Who.
        worker: u16,
        /// How many.
        instructions: u64,
    },
    /// A parallel region began; `name` is the address of its outlined function.
    RegionBegin {
        /// Who.
        worker: u16,
        /// Address of the outlined function.
        name: u64,
    },
    /// The region ended for this worker.
    RegionEnd {
        /// Who.
        worker: u16,
        /// Address of the outlined function.
        name: u64,
    },
    /// A worker passed a team barrier, named by its return address.
    Barrier {
        /// Who.
        worker: u16,
        /// The address the barrier's call returns to.
        name: u64,
    },
    /// Pages [first, first+pages) came to be.
    Map {
        /// The first page's number.
        first: u64,
        /// How many.
        pages: u64,
    },
    /// Pages [first, first+pages) went away.
    Unmap {
        /// The first page's number.
        first: u64,
        /// How many.
        pages: u64,
    },
}

impl Event {
    /// Whose event it is; `None` for what happens to the address space.
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
