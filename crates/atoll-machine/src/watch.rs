//! Who wants to see what happens in a simulation, event for event.
//!
//! The tests compare the fast simulator with the slow one through it. Watching nothing costs nothing: `()` does.

/// Something that happened. Pages are named by their first 4K page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Happening {
    /// A page walk.
    Walk {
        /// Who.
        worker: usize,
        /// The 4K page.
        page: u64,
    },
    /// A fault.
    Fault {
        /// Who.
        worker: usize,
        /// Which page.
        page: u64,
        /// Was the page far?
        major: bool,
        /// Had nobody touched it?
        first: bool,
    },
    /// A page left near memory.
    Eviction {
        /// Who evicted.
        worker: usize,
        /// Which page.
        page: u64,
        /// Written back?
        dirty: bool,
    },
    /// A worker was asked to drop a page from its TLB.
    Invalidation {
        /// Who was asked.
        worker: usize,
        /// Which page.
        page: u64,
    },
}

/// Sees happenings in their order.
pub trait Watch {
    /// Something happened when the worker's clock stood at `at`, in picoseconds.
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
