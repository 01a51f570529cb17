//! LRU's look at which pages are used: every 10 ms mappings are dropped, and whoever comes back was in use.
//!
//! Called by one thread of each worker process that does nothing else (the paper's dedicated hyperthreads,
//! `papers/cmcp.txt` section 5.1), since only a process itself can drop its mappings. The drops are counted as
//! the remote TLB invalidations they are.
//!
//! Rules: no allocation, no arena access.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use atoll_pages::{AnyPolicy, Policy};

use super::Pager;
use super::executor::Executor;
use super::page_word::{self, State};
use super::room::Room;
use crate::control::Figures;
use crate::sys;

/// Time between two scans.
pub const PERIOD_NS: i64 = 10_000_000;

const RING: usize = 1 << 14;

/// Frames whose mappings are to be dropped: written by the scanner, read by the thread of each page table.
pub struct DropRing {
    head: AtomicU32,
    slots: [AtomicU64; RING],
}

impl Pager {
    /// What is done once in 10 ms at most, by whoever makes room: policies without mappings to drop age, the totals
    /// are brought up to date.
    pub(super) fn age(&self, x: &mut Executor, room: &mut Room) {
        let now = sys::ticks();
        let last = self.last_age.load(Ordering::Relaxed);
        if now.wrapping_sub(last) <= self.age_ticks {
            return;
        }
        self.last_age.store(now, Ordering::Relaxed);
        self.publish_totals();
        if !matches!(room.policy, AnyPolicy::Lru(_)) {
            let mut unmapped = 0u64;
            room.policy.scan(&mut |_| unmapped += 1);
            Figures::add(&x.figures.scan_unmapped, unmapped);
        }
    }

    /// Does the policy need [`scan_tick`](Self::scan_tick) and [`drop_mappings`](Self::drop_mappings)?
    pub fn scans(&self) -> bool {
        self.scanning
    }

    /// The periodic scan; one thread of the whole program calls it every [`PERIOD_NS`].
    pub fn scan_tick(&self) {
        let mut room = self.room.lock();
        self.drain_logs(&mut room);
        let ring = self.drops;
        room.policy.scan(&mut |frame| {
            let head = ring.head.load(Ordering::Relaxed);
            let entry = u64::from(self.frames.page(frame)) << 32 | u64::from(frame);
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
            let word = self.word(page);
            let seen = page_word::load(word);
            if seen.state() != State::Resident || seen.frame() != frame || !page_word::try_lock(word, seen) {
                continue;
            }
            if self.frames.mapped_by(frame, table) && !self.frames.pinned(frame) {
                let (at, _) = self.address_of(page);
                let advice = libc::MADV_DONTNEED as usize;
                // SAFETY: drops this process's mappings of a shared file page; its content stays in the file.
                let dropped =
                    unsafe { sys::syscall(libc::SYS_madvise, [at, self.page_bytes(), advice, 0, 0, 0]) };
                if dropped.is_ok() {
                    self.frames.remove_mapper(frame, table);
                    Figures::add(&figures.scan_unmapped, 1);
                    Figures::add(&figures.invalidations, 1);
                }
            }
            page_word::unlock(word, seen);
        }
    }
}
