//! The program's heap: small blocks in pinned shared memory, large blocks and anonymous mappings in the arena.
//!
//! `small` is mimalloc on pinned memory, `overflow` the same in the arena when pinned memory takes too much, `large` allocates
//! extents of whole pages, of which `kept` notes what stays when they are freed, `parked` has those that are allocated and freed in turn,
//! `sizes` tells their sizes without a lock, and `bounds` says where both end in a segment. `exports` is the malloc family that the program's
//! calls reach, and `operators` C++'s. `mapping` is mmap and its relatives, which send stacks and code to `unpaged` and note in `mapped_over` where
//! files lie over the arena; `protections` is mprotect, `protected_elsewhere` what other workers learn of it; `locking` is mlock and its relatives. `place` says which addresses are this node's where there are several, `foreign` sends other nodes'
//! blocks home, `scratch` is for work of ours that allocates much for a moment, `streams` holds the standard streams, and `linker` serves the dynamic linker in the midst of a fault.

/// Extents of large blocks are whole multiples of so many bytes, whatever the page size, and begin at one.
const GRANULE: usize = 4096;

pub(crate) mod bounds;
mod early;
pub(crate) mod exports;
pub(crate) mod foreign;
mod kept;
pub(crate) mod large;
pub(crate) mod linker;
mod locking;
pub(crate) mod mapped_over;
pub(crate) mod mapping;
mod moving;
mod operators;
pub(crate) mod os;
pub(crate) mod overflow;
mod parked;
pub(crate) mod place;
pub(crate) mod protected_elsewhere;
pub(crate) mod protections;
pub(crate) mod scratch;
pub(crate) mod shared;
mod sizes;
pub(crate) mod small;
pub(crate) mod streams;
mod unpaged;
