//! LRU's look at which pages are used: every 10 ms mappings are dropped, and whoever comes back was in use.
//!
//! Called by one thread of each worker process that does nothing else (the paper's dedicated hyperthreads,
//! `papers/cmcp.txt` section 5.1), since only a process itself can drop its mappings. The drops are counted as
//! the remote TLB invalidations they are.
//!
//! Rules: no allocation, no arena access.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use atoll_pages::Policy;

use super::Pager;
use super::executor::Executor;
use super::page_word;
use super::room::Room;
use crate::control::Figures;
use crate::sys;

/// Time between two scans.
pub const PERIOD_NS: i64 = 10_000_000;

/// The kernel's clock is asked once in so many ticks of the processor's counter, which is cheaper to read: a millisecond
/// where the counter is as slow as any.
const LOOK_TICKS: u64 = 1_000_000;

const RING: usize = 1 << 14;

/// When pages aged last.
pub(super) struct LastAge {
    looked_ticks: AtomicU64,
    aged_ns: AtomicU64,
}

impl LastAge {
    pub(super) const fn new() -> LastAge {
        LastAge { looked_ticks: AtomicU64::new(0), aged_ns: AtomicU64::new(0) }
    }

    /// Whether [`PERIOD_NS`] have passed since this was last true. Asked under the room lock.
    fn is_due(&self) -> bool {
        let ticks = sys::ticks();
        if ticks.wrapping_sub(self.looked_ticks.load(Ordering::Relaxed)) < LOOK_TICKS {
            return false;
        }
        self.looked_ticks.store(ticks, Ordering::Relaxed);
        let now = sys::clock_ns(libc::CLOCK_MONOTONIC);
        let due = now.saturating_sub(self.aged_ns.load(Ordering::Relaxed)) >= PERIOD_NS as u64;
        if due {
            self.aged_ns.store(now, Ordering::Relaxed);
        }
        due
    }
}

/// Frames whose mappings are to be dropped: written by the scanner, read by the thread of each page table.
pub struct DropRing {
    head: AtomicU32,
    slots: [AtomicU64; RING],
}

impl Pager {
    /// Does what is due once in 10 ms at most: policies without mappings to drop age, and the totals are brought up to date. Called
    /// by whoever makes room.
    pub(super) fn age(&self, x: &mut Executor, room: &mut Room) {
        if !self.near.last_age.is_due() {
            return;
        }
        self.publish_totals();
        if !self.near.wants.dropped_mappings {
            let mut unmapped = 0u64;
            room.policy.scan(&mut |_| unmapped += 1);
            Figures::add(&x.figures.scan_unmapped, unmapped);
        }
    }

    /// Whether the policy needs [`scan_tick`](Self::scan_tick) and [`drop_mappings`](Self::drop_mappings).
    pub fn scans(&self) -> bool {
        self.near.wants.dropped_mappings
    }

    /// The periodic scan; one thread of the whole program calls it every [`PERIOD_NS`]. It does nothing until near memory was
    /// full once: unmapping pages of a program that fits costs a fault each, for an answer that nobody needs.
    pub fn scan_tick(&self) {
        if !self.near.full.load(Ordering::Relaxed) {
            return;
        }
        let mut room = self.near.room.lock();
        self.drain_logs(&mut room);
        let ring = self.drops;
        room.policy.scan(&mut |frame| {
            let head = ring.head.load(Ordering::Relaxed);
            let entry = u64::from(self.pages.frames.page(frame)) << 32 | u64::from(frame);
            ring.slots[head as usize % RING].store(entry, Ordering::Relaxed);
            // Release: pairs with the Acquire in `drop_mappings`.
            ring.head.store(head.wrapping_add(1), Ordering::Release);
        });
    }

    /// Drops the mappings of `table`, which must be the calling process's, that scans since `*tail` asked for.
    pub fn drop_mappings(&self, table: usize, tail: &mut u32, figures: &Figures) {
        let ring = self.drops;
        // Acquire: pairs with the Release in `scan_tick`.
        let head = ring.head.load(Ordering::Acquire);
        if head.wrapping_sub(*tail) as usize > RING {
            *tail = head.wrapping_sub(RING as u32);
        }
        while *tail != head {
            let entry = ring.slots[*tail as usize % RING].load(Ordering::Relaxed);
            *tail = tail.wrapping_add(1);
            let (page, frame) = ((entry >> 32) as u32, entry as u32);
            let Some(seen) = self.pages.try_lock_in(page, frame) else { continue };
            if self.pages.frames.mapped_by(frame, table) && !self.pages.frames.pinned(frame) {
                let (at, _) = self.places.address_of(page);
                let advice = libc::MADV_DONTNEED as usize;
                // SAFETY: drops this process's mappings of a shared file page; its content stays in the file.
                let dropped =
                    unsafe { sys::syscall(libc::SYS_madvise, [at, self.page_bytes(), advice, 0, 0, 0]) };
                if dropped.is_ok() {
                    self.pages.frames.remove_mapper(frame, table);
                    Figures::add(&figures.scan_unmapped, 1);
                    Figures::add(&figures.invalidations, 1);
                }
            }
            page_word::unlock(self.pages.word(page), seen);
        }
    }
}

#[cfg(test)]
mod aging {
    use super::*;

    /// Thirty million ticks were taken for 10 ms, which they are on processors of 3 GHz only.
    #[test]
    fn pages_aged_by_ticks_and_not_by_time() {
        let age = LastAge::new();
        assert!(age.is_due());
        let begin = sys::clock_ns(libc::CLOCK_MONOTONIC);
        while !age.is_due() {
            sys::sleep_ns(100_000);
        }
        let waited = sys::clock_ns(libc::CLOCK_MONOTONIC) - begin;
        assert!(waited >= 9_000_000, "{waited} ns");
    }
}
