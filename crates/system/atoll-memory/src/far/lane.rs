//! What one worker needs to use a far store: scratch memory, counters, an io_uring.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.
//! (`Lanes::new` and `Lane::attach` are set-up code, called outside the handler.)

use std::sync::Arc;
use std::sync::atomic::{
    AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use rustix::process::Pid;

use super::hosts::Connections;
use super::ring::Ring;
use super::shared::{BASE_PAGE, Mapping, SharedWord};
use super::{FarError, Usage};

/// One worker's counters, in a cache line pair of their own. Differences may be below zero in one lane, never
/// in the sum.
#[repr(C, align(128))]
pub(crate) struct Counters {
    /// The thread that attached the lane; 0 for none.
    owner: AtomicI32,
    pub(crate) bytes_stored: AtomicU64,
    pub(crate) bytes_loaded: AtomicU64,
    pub(crate) writes_avoided: AtomicU64,
    /// Bytes of data after compression, as a difference.
    pub(crate) bytes_after: AtomicI64,
}

/// Stores that a lane may lead to at once: compressed memory, a file behind it, plain memory before it, lenders.
const TIERS: usize = 4;

/// What is counted in one place.
#[repr(C, align(128))]
struct Held {
    /// Pages held in each tier, which a limit is checked against.
    pages: [AtomicU64; TIERS],
    /// Lanes below this number have been attached at some time.
    lanes: AtomicU32,
}

// SAFETY: atomics alone, less than a base page.
unsafe impl SharedWord for Counters {}
// SAFETY: as above.
unsafe impl SharedWord for Held {}

/// How a store readies a lane's scratch memory in the process that will use it.
pub(crate) type Prepare = unsafe fn(scratch: *mut u8, unit: u32) -> Result<(), FarError>;

/// The lanes of a store and their shared memory.
pub(crate) struct Lanes {
    memory: Mapping,
    count: u32,
    scratch_at: usize,
    scratch_bytes: usize,
    unit: u32,
    prepare: Option<Prepare>,
    /// Submission entries of each lane's io_uring; 0 for none.
    ring: u32,
}

impl Lanes {
    pub(crate) fn new(
        count: u32,
        scratch_bytes: usize,
        unit: u32,
        prepare: Option<Prepare>,
        ring: u32,
    ) -> Result<Arc<Self>, FarError> {
        if count == 0 {
            return Err(FarError::Unavailable("a far store needs one lane at least"));
        }
        // Held, then the counters of every lane and of calls without one, then the scratch areas.
        let heads = (count as usize + 2) * size_of::<Counters>();
        let scratch_at = heads.next_multiple_of(BASE_PAGE);
        let scratch_bytes = scratch_bytes.next_multiple_of(BASE_PAGE);
        let bytes = scratch_at + count as usize * scratch_bytes;
        let memory = Mapping::new(bytes as u64, c"atoll far lanes", false)?;
        Ok(Arc::new(Self { memory, count, scratch_at, scratch_bytes, unit, prepare, ring }))
    }

    fn head(&self, index: u32) -> &Counters {
        self.memory.get((index.min(self.count) as usize + 1) * size_of::<Counters>())
    }

    /// Counters for calls that have no lane.
    pub(crate) fn shared(&self) -> &Counters {
        self.head(self.count)
    }

    /// Pages held in `tier`, which is below 4.
    pub(crate) fn held(&self, tier: usize) -> &AtomicU64 {
        &self.memory.get::<Held>(0).pages[tier % TIERS]
    }

    /// The number below which the lanes are that were ever attached.
    fn attached(&self) -> &AtomicU32 {
        &self.memory.get::<Held>(0).lanes
    }

    /// Counts `pages` more in `tier`, unless there were more than `limit` then.
    pub(crate) fn hold(&self, tier: usize, pages: u64, limit: u64) -> Result<(), FarError> {
        if self.held(tier).fetch_add(pages, Relaxed).saturating_add(pages) > limit {
            self.drop_held(tier, pages);
            return Err(FarError::Full);
        }
        Ok(())
    }

    pub(crate) fn drop_held(&self, tier: usize, pages: u64) {
        self.held(tier).fetch_sub(pages, Relaxed);
    }

    /// The scratch area of a lane; also where set-up code finds aligned memory.
    pub(crate) fn scratch(&self, index: u32) -> *mut u8 {
        let offset = self.scratch_at + index.min(self.count - 1) as usize * self.scratch_bytes;
        // SAFETY: within the mapping: count areas follow scratch_at, and the index is clamped.
        unsafe { self.memory.base().add(offset) }
    }

    pub(crate) fn lane(self: &Arc<Self>, index: u32) -> Result<Lane, FarError> {
        if index >= self.count {
            return Err(FarError::Unavailable(
                "the lane's index is not below the number of lanes of the store",
            ));
        }
        Ok(Lane { lanes: Arc::clone(self), index, owner: 0, ring: None, connections: Connections::NONE })
    }

    /// The lane's scratch, after checking that it is one of ours and attached.
    #[inline]
    pub(crate) fn enter(&self, lane: &Lane) -> Result<*mut u8, FarError> {
        if lane.owner == 0 || !std::ptr::eq(self, Arc::as_ptr(&lane.lanes)) {
            return Err(FarError::Unavailable("the lane is not attached, or belongs to another store"));
        }
        Ok(self.scratch(lane.index))
    }

    /// Sums of all lanes; `bytes_before` and `bytes_reserved` are the store's to fill in.
    pub(crate) fn usage(&self, page_size: u64) -> Usage {
        let pages_held = (0..TIERS).map(|tier| self.held(tier).load(Relaxed)).sum();
        let mut usage = Usage { pages_held, bytes_before: pages_held * page_size, ..Usage::default() };
        let mut after = 0_i64;
        let attached = self.attached().load(Relaxed).min(self.count);
        for head in (0..attached).map(|i| self.head(i)).chain([self.shared()]) {
            usage.bytes_stored += head.bytes_stored.load(Relaxed);
            usage.bytes_loaded += head.bytes_loaded.load(Relaxed);
            usage.writes_avoided += head.writes_avoided.load(Relaxed);
            after += head.bytes_after.load(Relaxed);
        }
        usage.bytes_after = after.max(0) as u64;
        usage
    }
}

/// One worker's way into a far store. Made anywhere (making one allocates nothing), attached in the worker,
/// used by one thread at a time and never inside a call that already uses it: the handler blocks signals.
pub struct Lane {
    lanes: Arc<Lanes>,
    index: u32,
    /// The thread that attached it; 0 before.
    owner: i32,
    pub(crate) ring: Option<Ring>,
    /// The connections to lenders, made when they are used.
    pub(crate) connections: Connections,
}

impl Lane {
    /// Readies the lane in this worker: call it in the process (or thread) that will fault, outside the handler,
    /// before its first fault. Makes system calls; a second call does nothing.
    ///
    /// # Errors
    /// `Unavailable` if a living worker has attached the same lane.
    pub fn attach(&mut self) -> Result<(), FarError> {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        if self.owner == own {
            return Ok(());
        }
        let owner = &self.lanes.head(self.index).owner;
        if let Err(other) = owner.compare_exchange(0, own, Acquire, Relaxed)
            && other != own
        {
            let gone = Pid::from_raw(other)
                .is_some_and(|p| rustix::process::test_kill_process(p) == Err(rustix::io::Errno::SRCH));
            // A worker that died attached leaves its lane to the next one.
            if !gone || owner.compare_exchange(other, own, Acquire, Relaxed).is_err() {
                return Err(FarError::Unavailable(
                    "another worker has attached this lane: give each its own",
                ));
            }
        }
        if let Some(prepare) = self.lanes.prepare
            // SAFETY: the scratch area has the bytes the store asked for; the claim above made it ours.
            && let Err(error) = unsafe { prepare(self.lanes.scratch(self.index), self.lanes.unit) }
        {
            owner.store(0, Release);
            return Err(error);
        }
        // Without a ring (seccomp, kernel.io_uring_disabled) the file store makes one call after another.
        if self.lanes.ring > 0 && self.ring.is_none() {
            self.ring = Ring::new(self.index, self.lanes.ring).ok();
        }
        self.lanes.attached().fetch_max(self.index + 1, Relaxed);
        self.owner = own;
        Ok(())
    }

    /// The thread that attached the lane has ended: another thread of the same process may attach it, and takes over its ring.
    pub(crate) fn release(&mut self) {
        let _ = self.lanes.head(self.index).owner.compare_exchange(self.owner, 0, Release, Relaxed);
        self.owner = 0;
    }

    /// The lane's index, below the number of lanes.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Whether an io_uring serves this lane (file store only).
    pub fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    #[inline]
    pub(crate) fn counters(&self) -> &Counters {
        self.lanes.head(self.index)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // A forked copy of an attached lane is not its owner and leaves the claim alone.
        if self.owner != 0 && self.owner == rustix::thread::gettid().as_raw_nonzero().get() {
            let _ = self.lanes.head(self.index).owner.compare_exchange(self.owner, 0, Release, Relaxed);
        }
    }
}
