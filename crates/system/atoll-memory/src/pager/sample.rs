//! Sampling by faults: mappings of a few pages, chosen at random, are dropped in one page table, and whoever comes back touched them.
//!
//! What private page tables make possible: dropping costs nobody's data and interrupts one worker only, and the fault that
//! follows says which worker touched the page, when, and whether it wrote. Called by the helper thread of each worker process, as
//! only a process itself can drop its mappings; the fault's handler asks whether a page was one of these.
//!
//! Rules: no allocation, no arena access.

use std::sync::atomic::{AtomicU32, Ordering};

use super::Pager;
use super::page_word;
use crate::control::{Figures, MAX_WORKERS};
use crate::sys;

/// Pages that a page table may have dropped and not met again. One more takes the place of another, which then is none.
const PENDING: usize = 128;
/// Frames looked at for one that can be dropped.
const TRIES: usize = 8;
/// Time between two looks whether pages are to be dropped.
pub const TICK_NS: i64 = 2_000_000;

/// By page table: page numbers plus one; 0: none. Shared, as all of the runtime's data.
static DROPPED: [[AtomicU32; PENDING]; MAX_WORKERS] =
    [const { [const { AtomicU32::new(0) }; PENDING] }; MAX_WORKERS];

/// When pages are to be dropped, and which.
#[derive(Debug)]
pub struct Sampler {
    random: u64,
    /// Nanoseconds that are owed.
    owed: u64,
    last: u64,
}

impl Sampler {
    /// A sampler of page table `table`.
    pub fn new(table: usize) -> Self {
        Self { random: 0x9e37_79b9_7f4a_7c15 ^ (table as u64 + 1), owed: 0, last: now_ns() }
    }

    /// The next number of a row without a rhythm (xorshift64*).
    fn next(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Processor time of this process, all its threads together: one that waits asleep drops nothing.
fn now_ns() -> u64 {
    sys::clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn place(page: u32) -> usize {
    (page.wrapping_mul(0x9e37_79b9) >> 25) as usize % PENDING
}

impl Pager {
    /// Whether pages are sampled.
    pub fn samples(&self) -> bool {
        self.control().settings.sample_period_ns != 0
    }

    /// Drops as many mappings of `table`, which must be the calling process's, as are due.
    pub fn sample_tick(&self, table: usize, sampler: &mut Sampler, figures: &Figures) {
        let (now, period) = (now_ns(), self.control().settings.sample_period_ns.max(1));
        sampler.owed += now.saturating_sub(sampler.last).min(100_000_000);
        sampler.last = now;
        let due = sampler.owed / period;
        sampler.owed %= period;
        let frames = u64::from(self.near.frames_used());
        if frames == 0 {
            return;
        }
        for _ in 0..due.min(PENDING as u64) {
            for _ in 0..TRIES {
                let frame = (sampler.next() % frames) as u32;
                if self.drop_for_sampling(frame, table, figures) {
                    break;
                }
            }
        }
    }

    fn drop_for_sampling(&self, frame: u32, table: usize, figures: &Figures) -> bool {
        if !self.pages.frames.mapped_by(frame, table) {
            return false;
        }
        let page = self.pages.frames.page(frame);
        let Some(seen) = self.pages.try_lock_in(page, frame) else { return false };
        let mut dropped = false;
        if self.pages.frames.mapped_by(frame, table) && !self.pages.frames.pinned(frame) {
            let (at, _) = self.places.address_of(page);
            let advice = libc::MADV_DONTNEED as usize;
            // Before the mapping goes: the fault may come at once.
            DROPPED[table][place(page)].store(page + 1, Ordering::Relaxed);
            // SAFETY: drops this process's mappings of a shared file page; its content stays in the file.
            let done = unsafe { sys::syscall(libc::SYS_madvise, [at, self.page_bytes(), advice, 0, 0, 0]) };
            if done.is_ok() {
                self.pages.frames.remove_mapper(frame, table);
                Figures::add(&figures.scan_unmapped, 1);
                dropped = true;
            }
        }
        page_word::unlock(self.pages.word(page), seen);
        dropped
    }

    /// Whether the page of this address was dropped in `table` to see whether it is used. Says so once.
    pub fn take_sampled(&self, table: usize, address: usize) -> bool {
        let Some(page) = self.page_at(address) else { return false };
        let place = &DROPPED[table][place(page)];
        place.load(Ordering::Relaxed) == page + 1
            && place.compare_exchange(page + 1, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}
