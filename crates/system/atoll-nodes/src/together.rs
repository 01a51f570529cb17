//! Work on pages that may be done later in a round, so that neighbours are done at once: one system call for a run of pages costs
//! little more than for one of them.
//!
//! `memory` puts it off, and settles it before anything else is done to pages, before a word of it leaves the node (`agent`) and
//! before a worker goes on that waits for it.

use std::ops::Range;

use atoll_coherence::nodes::Node;
use atoll_memory::pager::node_runs::TOGETHER;

/// Pages that workers are not to write any more, and pages to be read where they lie.
#[derive(Default)]
pub(crate) struct Together {
    protect: Vec<u32>,
    read: Vec<Read>,
}

/// A page that lies in the files of node `from`; workers may write it then if `writable`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Read {
    from: Node,
    writable: bool,
    page: u32,
}

/// Neighbours that lie in the files of node `from`.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Reads {
    pub(crate) from: Node,
    pub(crate) writable: bool,
    pub(crate) pages: Range<u32>,
}

impl Together {
    pub(crate) fn is_empty(&self) -> bool {
        self.protect.is_empty() && self.read.is_empty()
    }

    /// Notes that workers are not to write `page` any more.
    pub(crate) fn protect(&mut self, page: u32) {
        self.protect.push(page);
    }

    /// Notes that `page` is to be read from the files of node `from`.
    pub(crate) fn read(&mut self, page: u32, from: Node, writable: bool) {
        self.read.push(Read { from, writable, page });
    }

    /// All that is to be read, in runs of [`TOGETHER`] pages at most: before what is to be protected, as a page that has come may go
    /// on to others at once.
    pub(crate) fn take_reads(&mut self) -> Vec<Reads> {
        self.read.sort_unstable();
        let next = |a: &Read, b: &Read| *b == Read { page: a.page + 1, ..*a };
        let runs = self.read.chunk_by(next).flat_map(|run| run.chunks(TOGETHER));
        let reads = runs.map(|run| Reads {
            from: run[0].from,
            writable: run[0].writable,
            pages: run[0].page..run[0].page + run.len() as u32,
        });
        let reads = reads.collect();
        self.read.clear();
        reads
    }

    /// All that is to be protected, in runs of `most` pages at most.
    pub(crate) fn take_protected(&mut self, most: usize) -> Vec<Range<u32>> {
        self.protect.sort_unstable();
        self.protect.dedup();
        let runs = self.protect.chunk_by(|a, b| a + 1 == *b).flat_map(|run| run.chunks(most));
        let runs = runs.map(|run| run[0]..run[0] + run.len() as u32).collect();
        self.protect.clear();
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_done_at_once_as_many_as_may_be() {
        let mut together = Together::default();
        [9, 3, 4, 2, 4, 7].into_iter().for_each(|page| together.protect(page));
        assert_eq!(together.take_protected(2), [2..4, 4..5, 7..8, 9..10]);
        assert!(together.is_empty() && together.take_protected(2).is_empty());
    }

    #[test]
    fn pages_of_different_nodes_are_read_apart() {
        let mut together = Together::default();
        for (page, from, writable) in
            [(5, 1, false), (4, 1, false), (6, 1, true), (7, 2, false), (8, 2, false)]
        {
            together.read(page, from, writable);
        }
        let reads = |from, writable, pages| Reads { from, writable, pages };
        let expected = [reads(1, false, 4..6), reads(1, true, 6..7), reads(2, false, 7..9)];
        assert_eq!(together.take_reads(), expected);
        (0..100).for_each(|page| together.read(page, 0, false));
        assert_eq!(together.take_reads(), [reads(0, false, 0..64), reads(0, false, 64..100)]);
        assert!(together.is_empty());
    }
}
