//! A team that is one node's part of a larger one.
//!
//! `spread` makes such teams; work sharing and `single` look here which part this one is.

use super::super::spread::division::Share;

/// A team that is one node's part of a larger one, whose other parts are on other nodes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Span {
    /// The number that this part's first thread has in the whole team.
    pub(crate) first: u32,
    /// The number of threads of the whole team; 0 if this team is the whole.
    pub(crate) threads: u32,
    /// This part's share where the runtime deals out blocks of iterations.
    pub(crate) iterations: Share,
    /// Whether the first thread of any node that comes to a `single` executes it, instead of the origin's first.
    pub(crate) first_come: bool,
    /// Whether tasks of this part may be executed by other nodes, and theirs here.
    pub(crate) tasks: bool,
    /// Whether the region is being measured.
    pub(crate) measured: bool,
}

impl Span {
    /// One node's part of a region.
    pub(crate) fn part(threads: Share, iterations: Share, first_come: bool, tasks: bool) -> Span {
        Span { first: threads.first, threads: threads.of, iterations, first_come, tasks, measured: true }
    }
}
