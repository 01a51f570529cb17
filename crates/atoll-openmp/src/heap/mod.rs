//! The program's heap: small blocks in pinned shared memory, large blocks and anonymous mappings in the arena.
//!
//! `small` is mimalloc on pinned memory, `overflow` the same in the arena when pinned memory takes too much,
//! `large` our extents of whole pages, `bounds` where both end in a segment, `exports` the malloc family that the
//! program's calls are interposed with, `mapping` mmap and its relatives.

pub(crate) mod bounds;
pub(crate) mod exports;
pub(crate) mod large;
pub(crate) mod mapping;
pub(crate) mod os;
pub(crate) mod overflow;
pub(crate) mod small;
