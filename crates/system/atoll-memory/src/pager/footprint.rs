//! The footprint: the least near limit under which this program would have had nothing evicted.
//!
//! `publish_distribution` enters it in the totals when the program ends; what it has to cover is what `room` counts against the
//! limit: frames, pinned memory and the pager's tables. It is the same number whatever limit the program ran under, so tables are
//! counted as a run with everything near and a limit would need them.

use std::sync::atomic::Ordering;

use atoll_pages::pacing::{self, LOG, STORE};

use super::Pager;
use super::executor::Executor;

/// Bytes of a table's entry for each frame that a policy keeps order in, with a tag: the most that any policy takes.
const ORDER_BYTES: u64 = 12;
/// Bytes of the list of frames that were used and are free, for each frame.
const FREE_BYTES: u64 = 4;
/// What is the same for all programs: the policy's lists, LRU's ring of pages to drop, ends of tables.
const FIXED_BYTES: u64 = 192 << 10;
/// One part in so many is what pinned memory may differ by from run to run, as threads come to its allocator in another order.
const PINNED_SLACK: u64 = 64;

/// Bytes that a thread's heap of paged small blocks takes beside its blocks.
const SECOND_HEAP: u64 = 512 << 10;

impl Pager {
    /// Enters the footprint in the totals. Only when the program ends: tables are measured by walking over their file.
    pub(super) fn publish_footprint(&self) {
        let totals = &self.control.totals;
        let data = totals.touched_peak.load(Ordering::Relaxed);
        let pinned = totals.pinned_peak.load(Ordering::Relaxed);
        let frames = data >> self.places.shift;
        let workers = u64::from(self.control.workers.load(Ordering::Relaxed).max(1));
        let users = workers + self.executors.threads.numbers().count() as u64;
        // Each keeps some frames for its next faults, while others need theirs. Beside that, pages are first filled together with their
        // neighbours, some of which the program never uses: how many differs from run to run, by about as much.
        let idle = 2 * users * pacing::batch(self.places.shift, frames, users) as u64;
        let kept = (frames + idle) << self.places.shift;
        let tables = self.table_bytes_with(frames + idle, users);
        let always = pinned + pinned / PINNED_SLACK + tables;
        // With a limit small blocks are paged if they take more than an eighth of it (`heap/overflow.rs` in the runtime). That takes
        // more room: each thread has a second heap then, and both have pages that are not full.
        let much = always > (kept + always) / 8;
        let paged = if much { users * SECOND_HEAP.max(2 << self.places.shift) + pinned / 8 } else { 0 };
        let bytes = (kept + always + paged).next_multiple_of(4096);
        totals.footprint_peak.store(bytes, Ordering::Relaxed);
    }

    /// What tables would take if `frames` frames were in use, a limit was set and nothing was ever evicted.
    fn table_bytes_with(&self, frames: u64, users: u64) -> u64 {
        let measured = crate::arena::table_bytes().saturating_sub(crate::arena::table_bytes_by_limit());
        let more = frames.saturating_sub(u64::from(self.near.frames_used()));
        let entry = 8 + 8 * users.div_ceil(64) + FREE_BYTES;
        // Without a limit executors keep no log.
        let logs = if self.limited() { 0 } else { users * size_of::<Executor>() as u64 };
        measured + more * entry + frames * ORDER_BYTES + logs + FIXED_BYTES
    }
}

// A log lies in its executor.
const _: () = assert!(size_of::<Executor>() >= 8 * LOG + 4 * STORE);
