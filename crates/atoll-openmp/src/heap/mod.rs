//! The program's heap: small blocks in pinned shared memory, large blocks and anonymous mappings in the arena.
//!
//! `small` is mimalloc on pinned memory, `overflow` the same in the arena when pinned memory takes too much,
//! `large` our extents of whole pages, `bounds` where both end in a segment, `exports` the malloc family that the
//! program's calls are interposed with, `mapping` mmap and its relatives, which put stacks
//! and code to `unpaged` and keep in `mapped_over` where files lie in the arena. `place` says which addresses are this
//! node's where there are several, `foreign` gives other nodes' blocks back, `streams` holds the standard streams.

pub(crate) mod bounds;
pub(crate) mod exports;
pub(crate) mod foreign;
pub(crate) mod large;
pub(crate) mod mapped_over;
pub(crate) mod mapping;
pub(crate) mod os;
pub(crate) mod overflow;
pub(crate) mod place;
pub(crate) mod small;
pub(crate) mod streams;
mod unpaged;
