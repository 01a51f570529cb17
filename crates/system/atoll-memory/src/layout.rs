//! Where everything lies: the fixed address ranges that are the same in every worker.
//!
//! Used by the arena's set-up and by whoever asks "is this address ours?". The ranges lie far below where Linux
//! puts libraries and stacks (0x7f..) and below position-independent executables (0x55..), so that nothing else
//! is there; set-up uses MAP_FIXED_NOREPLACE and says so if it is not true.

/// Paged memory: large blocks and anonymous mappings. Page 0 is here. Where the size of the stack is unlimited Linux maps libraries up to
/// a sixth of the address space, 0x1555_5555_5555, and downwards from there.
pub const ARENA: usize = 0x1800_0000_0000;
/// Bytes of [`ARENA`]: 8 TiB.
pub const ARENA_BYTES: usize = 8 << 40;
/// Bytes of page numbers kept, after the arena's, for globals and other memory that is paged where it lies.
pub const GLOBALS_BYTES: usize = 256 << 30;

/// Pinned memory that every worker shares: small blocks, runtime state.
pub const PINNED: usize = 0x2000_0000_0000;
/// Bytes of [`PINNED`]: 1 TiB.
pub const PINNED_BYTES: usize = 1 << 40;

/// Stacks of workers, one slot each.
pub const STACKS: usize = 0x2400_0000_0000;
/// Bytes of [`STACKS`].
pub const STACKS_BYTES: usize = 4 << 40;

/// Files that the program maps wherever there is room: a worker that maps one must not take an address at which
/// another worker has something else, as the mapping is repeated there.
pub const FILES: usize = 0x2800_0000_0000;
/// Bytes of [`FILES`].
pub const FILES_BYTES: usize = 4 << 40;

/// Workers' io_urings: each is its worker's own, so nobody else's mapping may ever be repeated there. One slot an
/// executor.
pub const RINGS: usize = 0x2c00_0000_0000;
/// Bytes of a slot of [`RINGS`].
pub const RING_BYTES: usize = 2 << 20;

/// The pager's tables.
pub const TABLES: usize = 0x3000_0000_0000;
/// Bytes of [`TABLES`]: 1 TiB, of which what is used takes memory.
pub const TABLES_BYTES: usize = 1 << 40;

/// Where a node's agent sees all pages, past userfaultfd: mapped only in runs on several nodes, of pages outside the arena
/// those that are given out.
pub const ALIAS: usize = 0x4000_0000_0000;

/// What must be free for a program to be managed: start and bytes of each part.
pub const ALL: [(usize, usize); 4] =
    [(ARENA, ARENA_BYTES), (PINNED, PINNED_BYTES), (STACKS, STACKS_BYTES), (TABLES, TABLES_BYTES)];

/// Nodes of a run at most.
pub const MAX_NODES: usize = 64;

/// The part of a stretch of `bytes` bytes that is node `node`'s, one of `nodes`: offset and bytes, whole multiples of 32 MiB.
pub const fn part(bytes: usize, node: u32, nodes: u32) -> (usize, usize) {
    if nodes <= 1 {
        return (0, bytes);
    }
    let each = (bytes / nodes as usize) & !((32 << 20) - 1);
    (each * node as usize, each)
}

/// Whether the address is in the arena proper (not a paged global).
#[inline]
pub const fn in_arena(address: usize) -> bool {
    address.wrapping_sub(ARENA) < ARENA_BYTES
}

/// Whether the address is in pinned shared memory.
#[inline]
pub const fn in_pinned(address: usize) -> bool {
    address.wrapping_sub(PINNED) < PINNED_BYTES
}
