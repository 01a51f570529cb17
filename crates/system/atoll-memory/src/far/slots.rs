//! Room for blobs of any length up to one unit, in shared memory: slots of 64 size classes, cut from chunks.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.
//!
//! A chunk (16 units) serves one class at a time. A class lists its chunks that have both used and free
//! slots; a chunk whose last slot is freed leaves its class and can serve any other, so that memory follows
//! the data when its compressibility changes. Each list has its own spin lock; the pool of empty chunks has
//! one, taken inside at most one list lock. A few empty chunks stay warm, the rest go back to the system.
//!
//! Slots are freed in no order, so that chunks come to be part empty. `denser` finds a blob of such a chunk a slot in one that is fuller;
//! who owns the blob moves it (see `compressed`), and the chunk is empty in the end.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::FarError;
use super::shared::{Mapping, SharedWord, Spin};

/// Size classes: slots of 1 to 64 granules.
const CLASSES: u32 = 64;
/// Units in a chunk.
const UNITS_PER_CHUNK: u32 = 16;
/// Granules in a chunk, hence the most slots.
const GRANULES: u32 = CLASSES * UNITS_PER_CHUNK;
/// The most chunks, so that a granule's index fits 37 bits: 8T of memory in units of 4K.
const MOST_CHUNKS: u64 = 1 << 27;
/// Memory is scattered if so much of what is held is free in chunks in use: one part in this number of it, and so many chunks.
const FREE_PART: u64 = 16;
const FREE_CHUNKS: u64 = 8;
/// Calls between two looks whether memory is scattered.
const LOOK_CALLS: u32 = 16;

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
    /// Calls since the last look whether memory is scattered, and whether it was.
    since_look: AtomicU32,
    scattered: AtomicU32,
    /// Where the owner of the slots looks next for blobs to be moved; the owner's number.
    hand: AtomicU64,
}

#[repr(C, align(64))]
struct List {
    lock: Spin,
    /// First chunk with free slots, index + 1; 0 for none.
    head: AtomicU32,
    /// Slots in use in all of its chunks, the full ones, too.
    used: AtomicU32,
}

#[repr(C, align(64))]
struct Chunk {
    /// The list it serves, index + 1; 0 while in the pool. Steady while any of its slots is used.
    list: AtomicU32,
    used: AtomicU32,
    /// The chunks after it and before it in its list, index + 1. None comes after the last (0); the last is said to come before the first.
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

/// The allocator. A location is a granule's index; it fits 37 bits.
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
        let chunks = wanted.min(limit.map_or(u64::MAX, |l| l / chunk)).min(MOST_CHUNKS) as u32;
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

    /// A slot of `bytes` (at most one unit) or more; None when far memory is full. Only if it `opens` chunks it takes more memory.
    pub(crate) fn alloc(&self, shard: u32, bytes: u32, opens: bool) -> Option<u64> {
        let class = self.class_for(bytes);
        (class..=Self::widest(class))
            .find_map(|c| self.take(self.list_of(shard, c)))
            .or_else(|| if opens { self.open(self.list_of(shard, class)) } else { None })
            // No chunk left: any free slot that is large enough will do.
            .or_else(|| {
                (class..=CLASSES).find_map(|c| (0..self.shards).find_map(|s| self.take(self.list_of(s, c))))
            })
    }

    /// A slot for the blob at `location` in a chunk that is at least as full, if its own has an eighth free or more. The sum of the
    /// squares of what chunks hold grows with each such move, so that moves come to an end.
    pub(crate) fn denser(&self, location: u64) -> Option<u64> {
        let index = (location / u64::from(GRANULES)) as u32;
        let chunk = self.chunk(index);
        if !Self::is_sparse(chunk) {
            return None;
        }
        let list_index = chunk.list.load(Relaxed).checked_sub(1)?;
        let list = self.list(list_index);
        let _lock = list.lock.lock();
        // The chunk serves its list as long as the blob lies in it, and has free slots: so the list has it. What is sparse is filled last.
        if !Self::is_sparse(chunk) {
            return None;
        }
        self.unlink(list, index, chunk);
        self.link_last(list, index, chunk);
        let first = list.head.load(Relaxed).checked_sub(1)?;
        if first == index || self.chunk(first).used.load(Relaxed) < chunk.used.load(Relaxed) {
            return None;
        }
        self.take_locked(list_index, list)
    }

    /// Whether the blob at `location` lies in a chunk that has an eighth free or more.
    pub(crate) fn lies_sparsely(&self, location: u64) -> bool {
        Self::is_sparse(self.chunk((location / u64::from(GRANULES)) as u32))
    }

    fn is_sparse(chunk: &Chunk) -> bool {
        let list = chunk.list.load(Relaxed).saturating_sub(1);
        let slots = GRANULES / Self::class_of_list(list);
        chunk.used.load(Relaxed) * 8 <= slots * 7
    }

    /// Whether much of the memory held is free, here and there. It looks once for some calls.
    pub(crate) fn is_scattered(&self) -> bool {
        let pool = self.pool();
        // Racing workers may look once more or less: no harm.
        let calls = pool.since_look.load(Relaxed) + 1;
        pool.since_look.store(calls % LOOK_CALLS, Relaxed);
        if calls >= LOOK_CALLS {
            let lists = 0..CLASSES * self.shards;
            let granules =
                |list| u64::from(self.list(list).used.load(Relaxed)) * u64::from(Self::class_of_list(list));
            let used = lists.map(granules).sum::<u64>() * u64::from(self.granule);
            let chunk = self.chunk_bytes() as u64;
            let in_use = pool.in_use.load(Relaxed).saturating_sub(pool.warm_count.load(Relaxed));
            let held = u64::from(in_use) * chunk;
            let most = held / FREE_PART + FREE_CHUNKS * chunk;
            pool.scattered.store(u32::from(held.saturating_sub(used) > most), Relaxed);
        }
        self.was_scattered()
    }

    /// A number for the owner's use, zero at first, which all workers share.
    pub(crate) fn hand(&self) -> &AtomicU64 {
        &self.pool().hand
    }

    /// What the last look of [`is_scattered`](Self::is_scattered) saw.
    pub(crate) fn was_scattered(&self) -> bool {
        self.pool().scattered.load(Relaxed) != 0
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
        list.used.store(list.used.load(Relaxed) - 1, Relaxed);
        if used + 1 == GRANULES / class {
            self.link(list, index, chunk);
        }
        if used == 0 {
            self.unlink(list, index, chunk);
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
        list.used.store(list.used.load(Relaxed) + 1, Relaxed);
        if used == slots {
            self.unlink(list, index, chunk);
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
        let last = match head.checked_sub(1) {
            Some(first) => self.chunk(first).prev.swap(index + 1, Relaxed),
            None => index + 1,
        };
        chunk.prev.store(last, Relaxed);
        chunk.next.store(head, Relaxed);
        list.head.store(index + 1, Relaxed);
    }

    fn link_last(&self, list: &List, index: u32, chunk: &Chunk) {
        let head = list.head.load(Relaxed);
        self.link(list, index, chunk);
        // The list is a circle but for the last one's `next`: what is before the first is behind the last.
        if let (Some(_), Some(last)) = (head.checked_sub(1), chunk.prev.load(Relaxed).checked_sub(1)) {
            self.chunk(last).next.store(index + 1, Relaxed);
            chunk.next.store(0, Relaxed);
            list.head.store(head, Relaxed);
        }
    }

    fn unlink(&self, list: &List, index: u32, chunk: &Chunk) {
        let (prev, next) = (chunk.prev.load(Relaxed), chunk.next.load(Relaxed));
        if list.head.load(Relaxed) == index + 1 {
            list.head.store(next, Relaxed);
        } else if let Some(before) = prev.checked_sub(1) {
            self.chunk(before).next.store(next, Relaxed);
        }
        // Before the first comes the last.
        let after = if next == 0 { list.head.load(Relaxed) } else { next };
        if let Some(after) = after.checked_sub(1) {
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
