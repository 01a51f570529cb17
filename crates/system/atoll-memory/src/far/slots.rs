//! Room for blobs of any length up to one unit, in shared memory: slots of 64 size classes, cut from chunks.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.
//!
//! A chunk (16 units) serves one class at a time. A class lists its chunks that have both used and free
//! slots; a chunk whose last slot is freed leaves its class and can serve any other, so that memory follows
//! the data when its compressibility changes. Each list has its own spin lock; the pool of empty chunks has
//! one, taken inside at most one list lock. A few empty chunks stay warm, the rest go back to the system.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::FarError;
use super::shared::{Mapping, SharedWord, Spin};

/// Size classes: slots of 1 to 64 granules.
const CLASSES: u32 = 64;
/// Units in a chunk.
const UNITS_PER_CHUNK: u32 = 16;
/// Granules in a chunk, hence the most slots.
const GRANULES: u32 = CLASSES * UNITS_PER_CHUNK;

#[repr(C, align(64))]
struct Pool {
    lock: Spin,
    /// Stacks of empty chunks by `next`, as index + 1: with memory, without.
    warm: AtomicU32,
    cold: AtomicU32,
    warm_count: AtomicU32,
    /// The first chunk never used.
    fresh: AtomicU32,
    /// Chunks that hold memory.
    in_use: AtomicU32,
}

#[repr(C, align(64))]
struct List {
    lock: Spin,
    /// First chunk with free slots, index + 1; 0 for none.
    head: AtomicU32,
}

#[repr(C, align(64))]
struct Chunk {
    /// The list it serves, index + 1; 0 while in the pool. Steady while any of its slots is used.
    list: AtomicU32,
    used: AtomicU32,
    next: AtomicU32,
    prev: AtomicU32,
    map: [AtomicU64; GRANULES as usize / 64],
}

// SAFETY: atomics alone, less than a base page.
unsafe impl SharedWord for Pool {}
// SAFETY: as above.
unsafe impl SharedWord for List {}
// SAFETY: as above.
unsafe impl SharedWord for Chunk {}

/// The allocator. A location is a granule's index; it fits 45 bits.
pub(crate) struct Slots {
    data: Mapping,
    control: Mapping,
    granule: u32,
    shards: u32,
    chunks: u32,
    keep_warm: u32,
}

impl Slots {
    /// Room for `units` blobs of `unit` bytes (a power of two, 4096 at least) at their largest.
    /// `limit`: the most bytes of memory ever held. `shards`: workers with different shard numbers do
    /// not contend for locks.
    pub(crate) fn new(unit: u32, units: u64, shards: u32, limit: Option<u64>) -> Result<Self, FarError> {
        let chunk = u64::from(unit) * u64::from(UNITS_PER_CHUNK);
        let lists = CLASSES * shards;
        // Twice the data: chunks that are part empty need addresses, if not memory.
        let wanted = (units.div_ceil(u64::from(UNITS_PER_CHUNK)) * 2).saturating_add(u64::from(lists));
        let chunks = wanted.min(limit.map_or(u64::MAX, |l| l / chunk)).min(u64::from(u32::MAX - 1)) as u32;
        let data = Mapping::new(u64::from(chunks) * chunk, c"atoll far blobs", false)?;
        let control =
            size_of::<Pool>() + lists as usize * size_of::<List>() + chunks as usize * size_of::<Chunk>();
        let control = Mapping::new(control as u64, c"atoll far slots", false)?;
        let keep_warm = if unit > 4096 { 4 } else { 16 };
        Ok(Self { data, control, granule: unit / CLASSES, shards, chunks, keep_warm })
    }

    fn pool(&self) -> &Pool {
        self.control.get(0)
    }

    fn list(&self, list: u32) -> &List {
        self.control.get(size_of::<Pool>() + list as usize * size_of::<List>())
    }

    fn chunk(&self, chunk: u32) -> &Chunk {
        let lists = (CLASSES * self.shards) as usize;
        self.control.get(size_of::<Pool>() + lists * size_of::<List>() + chunk as usize * size_of::<Chunk>())
    }

    fn chunk_bytes(&self) -> usize {
        self.granule as usize * GRANULES as usize
    }

    fn list_of(&self, shard: u32, class: u32) -> u32 {
        shard % self.shards * CLASSES + class - 1
    }

    fn class_of_list(list: u32) -> u32 {
        list % CLASSES + 1
    }

    fn class_for(&self, bytes: u32) -> u32 {
        bytes.div_ceil(self.granule).clamp(1, CLASSES)
    }

    /// The largest class that a blob of `class` may take rather than open another chunk: an eighth is wasted
    /// at most.
    fn widest(class: u32) -> u32 {
        (class + class / 8).min(CLASSES)
    }

    /// A slot of `bytes` (at most one unit) or more; None when far memory is full.
    pub(crate) fn alloc(&self, shard: u32, bytes: u32) -> Option<u64> {
        let class = self.class_for(bytes);
        (class..=Self::widest(class))
            .find_map(|c| self.take(self.list_of(shard, c)))
            .or_else(|| self.open(self.list_of(shard, class)))
            // No chunk left: any free slot that is large enough will do.
            .or_else(|| {
                (class..=CLASSES).find_map(|c| (0..self.shards).find_map(|s| self.take(self.list_of(s, c))))
            })
    }

    /// Whether `bytes` should stay in the slot at `location` instead of moving: they fit without waste.
    pub(crate) fn suits(&self, location: u64, bytes: u32) -> bool {
        let has = self.class_at(location);
        let class = self.class_for(bytes);
        class <= has && has <= Self::widest(class)
    }

    fn class_at(&self, location: u64) -> u32 {
        let list = self.chunk((location / u64::from(GRANULES)) as u32).list.load(Relaxed);
        Self::class_of_list(list.saturating_sub(1))
    }

    /// The slot's bytes.
    pub(crate) fn pointer(&self, location: u64) -> *mut u8 {
        let limit = u64::from(self.chunks) * u64::from(GRANULES);
        debug_assert!(location < limit);
        // SAFETY: in bounds of `data`, which holds `limit` granules; a wrong location (never made here) is clamped.
        unsafe {
            self.data.base().add(location.min(limit.saturating_sub(1)) as usize * self.granule as usize)
        }
    }

    /// Gives a slot back. Its bytes must no longer be read.
    pub(crate) fn free(&self, location: u64) {
        let index = (location / u64::from(GRANULES)) as u32;
        let chunk = self.chunk(index);
        let Some(list_index) = chunk.list.load(Relaxed).checked_sub(1) else { return };
        let class = Self::class_of_list(list_index);
        let slot = (location % u64::from(GRANULES)) as u32 / class;
        let list = self.list(list_index);
        let lock = list.lock.lock();
        let Some(word) = chunk.map.get(slot as usize / 64) else { return };
        let (bits, bit) = (word.load(Relaxed), 1 << (slot % 64));
        debug_assert!(bits & bit != 0, "slot freed twice");
        if bits & bit == 0 {
            return;
        }
        word.store(bits & !bit, Relaxed);
        let used = chunk.used.load(Relaxed) - 1;
        chunk.used.store(used, Relaxed);
        if used + 1 == GRANULES / class {
            self.link(list, index, chunk);
        }
        if used == 0 {
            self.unlink(list, chunk);
            chunk.list.store(0, Relaxed);
            drop(lock);
            self.give(index, chunk);
        }
    }

    /// Bytes of memory held, used or not.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.pool().in_use.load(Relaxed)) * self.chunk_bytes() as u64
    }

    /// A free slot of a chunk that the list has.
    fn take(&self, list_index: u32) -> Option<u64> {
        let list = self.list(list_index);
        if list.head.load(Relaxed) == 0 {
            return None;
        }
        let _lock = list.lock.lock();
        self.take_locked(list_index, list)
    }

    fn take_locked(&self, list_index: u32, list: &List) -> Option<u64> {
        let index = list.head.load(Relaxed).checked_sub(1)?;
        let chunk = self.chunk(index);
        let class = Self::class_of_list(list_index);
        let slots = GRANULES / class;
        let (word, bits) = chunk.map.iter().zip(0_u32..).find_map(|(word, w)| {
            let bits = word.load(Relaxed);
            (bits != u64::MAX).then_some((w, bits))
        })?;
        let slot = word * 64 + bits.trailing_ones();
        if slot >= slots {
            return None;
        }
        chunk.map.get(word as usize)?.store(bits | 1 << (slot % 64), Relaxed);
        let used = chunk.used.load(Relaxed) + 1;
        chunk.used.store(used, Relaxed);
        if used == slots {
            self.unlink(list, chunk);
        }
        Some(u64::from(index) * u64::from(GRANULES) + u64::from(slot * class))
    }

    /// Brings an empty chunk into the list and takes its first slot.
    fn open(&self, list_index: u32) -> Option<u64> {
        let list = self.list(list_index);
        let _lock = list.lock.lock();
        if let Some(location) = self.take_locked(list_index, list) {
            return Some(location);
        }
        let index = self.fetch()?;
        let chunk = self.chunk(index);
        chunk.list.store(list_index + 1, Relaxed);
        self.link(list, index, chunk);
        self.take_locked(list_index, list)
    }

    fn link(&self, list: &List, index: u32, chunk: &Chunk) {
        let head = list.head.load(Relaxed);
        chunk.prev.store(0, Relaxed);
        chunk.next.store(head, Relaxed);
        if let Some(first) = head.checked_sub(1) {
            self.chunk(first).prev.store(index + 1, Relaxed);
        }
        list.head.store(index + 1, Relaxed);
    }

    fn unlink(&self, list: &List, chunk: &Chunk) {
        let (prev, next) = (chunk.prev.load(Relaxed), chunk.next.load(Relaxed));
        match prev.checked_sub(1) {
            Some(before) => self.chunk(before).next.store(next, Relaxed),
            None => list.head.store(next, Relaxed),
        }
        if let Some(after) = next.checked_sub(1) {
            self.chunk(after).prev.store(prev, Relaxed);
        }
    }

    /// An empty chunk from the pool.
    fn fetch(&self) -> Option<u32> {
        let pool = self.pool();
        let _lock = pool.lock.lock();
        let pop = |stack: &AtomicU32| {
            let index = stack.load(Relaxed).checked_sub(1)?;
            stack.store(self.chunk(index).next.load(Relaxed), Relaxed);
            Some(index)
        };
        if let Some(index) = pop(&pool.warm) {
            pool.warm_count.fetch_sub(1, Relaxed);
            return Some(index);
        }
        let index = pop(&pool.cold).or_else(|| {
            let fresh = pool.fresh.load(Relaxed);
            pool.fresh.store((fresh + 1).min(self.chunks), Relaxed);
            (fresh < self.chunks).then_some(fresh)
        })?;
        pool.in_use.fetch_add(1, Relaxed);
        Some(index)
    }

    /// Puts an empty chunk, in no list any more, into the pool.
    fn give(&self, index: u32, chunk: &Chunk) {
        let pool = self.pool();
        let push = |stack: &AtomicU32| {
            chunk.next.store(stack.load(Relaxed), Relaxed);
            stack.store(index + 1, Relaxed);
        };
        {
            let _lock = pool.lock.lock();
            if pool.warm_count.load(Relaxed) < self.keep_warm {
                pool.warm_count.fetch_add(1, Relaxed);
                push(&pool.warm);
                return;
            }
        }
        // A system call, so outside the lock: the chunk is nobody's until it is pushed.
        self.data.release(index as usize * self.chunk_bytes(), self.chunk_bytes());
        let _lock = pool.lock.lock();
        pool.in_use.fetch_sub(1, Relaxed);
        push(&pool.cold);
    }
}

#[cfg(test)]
mod tests;
