//! The memory pools of allocators: how much of each is in use, and which blocks count against it.
//!
//! `alloc` asks; on several nodes the origin's agent keeps the pools for all (`nodes::pools`).

use std::collections::BTreeMap;

/// The bytes that a pool's blocks may take together, and those that they take.
#[derive(Clone, Copy, Debug, Default)]
struct Pool {
    limit: usize,
    used: usize,
}

/// All pools, by the handles of their allocators.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    pools: BTreeMap<usize, Pool>,
    /// The handle and the bytes that each block counts against it, by the block's address.
    blocks: BTreeMap<usize, (usize, usize)>,
}

impl Pools {
    pub(crate) const fn new() -> Pools {
        Pools { pools: BTreeMap::new(), blocks: BTreeMap::new() }
    }

    /// Adds the pool of a new allocator.
    pub(crate) fn make(&mut self, handle: usize, limit: usize) {
        self.pools.insert(handle, Pool { limit, used: 0 });
    }

    /// Removes the pool of an allocator; its blocks stay the program's.
    pub(crate) fn forget(&mut self, handle: usize) {
        self.pools.remove(&handle);
        self.blocks.retain(|_, (of, _)| *of != handle);
    }

    /// Counts `bytes` of a block against the pool, if there is room for them; returns whether there is.
    pub(crate) fn take(&mut self, handle: usize, block: usize, bytes: usize) -> bool {
        let Some(pool) = self.pools.get_mut(&handle) else { return false };
        let used = pool.used.saturating_add(bytes);
        if used > pool.limit {
            return false;
        }
        pool.used = used;
        self.blocks.insert(block, (handle, bytes));
        true
    }

    /// Counts `bytes` of a block against the pool of the block `old`, which no longer counts; returns whether there is room.
    pub(crate) fn replace(&mut self, old: usize, block: usize, bytes: usize) -> bool {
        let Some((handle, before)) = self.blocks.get(&old).copied() else { return false };
        let Some(pool) = self.pools.get_mut(&handle) else { return false };
        let used = (pool.used - before).saturating_add(bytes);
        if used > pool.limit {
            return false;
        }
        pool.used = used;
        self.blocks.remove(&old);
        self.blocks.insert(block, (handle, bytes));
        true
    }

    /// Removes a block that was freed; returns the handle of the allocator it counted against, if any.
    pub(crate) fn give(&mut self, block: usize) -> Option<usize> {
        let (handle, bytes) = self.blocks.remove(&block)?;
        if let Some(pool) = self.pools.get_mut(&handle) {
            pool.used -= bytes;
        }
        Some(handle)
    }

    /// The handle of the allocator that a block counts against, if any.
    pub(crate) fn of(&self, block: usize) -> Option<usize> {
        self.blocks.get(&block).map(|(handle, _)| *handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_had_again() {
        let mut pools = Pools::new();
        pools.make(100, 64);
        assert!(pools.take(100, 1, 40) && !pools.take(100, 2, 40) && pools.take(100, 3, 24));
        assert_eq!((pools.of(1), pools.of(2)), (Some(100), None));
        assert_eq!((pools.give(1), pools.give(1)), (Some(100), None));
        assert!(pools.take(100, 2, 40));
        pools.forget(100);
        assert!(pools.of(2).is_none() && !pools.take(100, 4, 1));
    }

    #[test]
    fn a_block_that_replaces_another_needs_no_room_beside_it() {
        let mut pools = Pools::new();
        pools.make(100, 64);
        assert!(pools.take(100, 1, 40) && pools.replace(1, 2, 64));
        assert_eq!((pools.of(1), pools.of(2)), (None, Some(100)));
        // What has no room changes nothing, and what counts against no pool is not replaced.
        assert!(!pools.replace(2, 3, 65) && !pools.replace(1, 3, 1));
        assert_eq!((pools.of(2), pools.of(3)), (Some(100), None));
        assert!(pools.replace(2, 3, 24) && pools.take(100, 4, 40) && !pools.take(100, 5, 1));
        assert_eq!(pools.give(3), Some(100));
        assert!(pools.take(100, 5, 24));
    }
}
