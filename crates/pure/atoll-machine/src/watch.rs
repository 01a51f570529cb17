//! The trait of observers that see a simulation event by event.
//!
//! The tests compare the fast simulator with the slow one through it. The observer `()` sees nothing and costs nothing.

/// A happening in a simulation. Pages are named by their first 4K page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Happening {
    /// A page walk.
    Walk {
        /// The worker.
        worker: usize,
        /// The 4K page.
        page: u64,
    },
    /// A fault.
    Fault {
        /// The worker.
        worker: usize,
        /// The page.
        page: u64,
        /// Whether the page was far.
        major: bool,
        /// Whether no worker had touched the page.
        first: bool,
    },
    /// A page left near memory.
    Eviction {
        /// The worker that evicted.
        worker: usize,
        /// The page.
        page: u64,
        /// Whether it was written back.
        dirty: bool,
    },
    /// A worker was asked to drop a page from its TLB.
    Invalidation {
        /// The worker that was asked.
        worker: usize,
        /// The page.
        page: u64,
    },
}

/// An observer, which sees happenings in their order.
pub trait Watch {
    /// Sees a happening when the worker's clock stood at `at`, in picoseconds.
    fn see(&mut self, at: u64, what: Happening);
}

impl Watch for () {
    #[inline(always)]
    fn see(&mut self, _at: u64, _what: Happening) {}
}

impl Watch for Vec<(u64, Happening)> {
    fn see(&mut self, at: u64, what: Happening) {
        self.push((at, what));
    }
}
