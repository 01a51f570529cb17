//! The memory of a simulated node. It holds no data, but counts what is done to it.
//!
//! All pages of a trace have content from the beginning, as it does not tell what was used before.

use atoll_coherence::agent::Memory;
use atoll_coherence::nodes::Node;

/// What was done since this was last read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moved {
    pub(super) pages: u64,
    /// The number of copies taken from the workers.
    pub(super) removed: u64,
    pub(super) twins: u64,
    pub(super) diffs: u64,
}

/// The memory of one node.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    pub(super) counts: Moved,
}

impl Memory for Shadow {
    type Data = ();
    type Diff = ();

    fn install(&mut self, _: u64, _: Node, (): &(), _: bool) {
        self.counts.pages += 1;
    }

    fn protect(&mut self, _: u64, _: bool) {}

    fn remove(&mut self, _: u64) {
        self.counts.removed += 1;
    }

    fn read(&mut self, _: u64) {}

    fn read_twin(&mut self, _: u64) {}

    fn make_twin(&mut self, _: u64) {
        self.counts.twins += 1;
    }

    fn drop_twin(&mut self, _: u64) {}

    fn diff(&mut self, _: u64) {
        self.counts.diffs += 1;
    }

    fn apply(&mut self, _: u64, _: Node, (): &()) {}

    fn resume(&mut self, _: u64) {}
}
