//! Pages the program gave back: their frames and far copies are free, they read as zeros from now on.
//!
//! Called by `free`, `munmap` and `madvise(MADV_DONTNEED)` wrappers, never from a signal handler: signals are
//! blocked by the caller, since a handler of this worker may fault and need the room lock.
//!
//! Rules: no allocation, no arena access.

use std::sync::atomic::Ordering;

use atoll_pages::Policy;

use super::Pager;
use super::page_word::{self, PageWord, State};
use crate::control::Figures;
use crate::far::FarStore;
use crate::spin::Backoff;

const BATCH: usize = 64;

impl Pager {
    /// Makes every whole page in `start..end` (one stretch) absent.
    pub fn release(&self, start: usize, end: usize, figures: &Figures) {
        let bytes = self.page_bytes();
        let Some(first) = self.page_at(start.next_multiple_of(bytes)) else { return };
        let pages = (end & !(bytes - 1)).saturating_sub(start.next_multiple_of(bytes)) >> self.places.shift;
        let mut page = first as usize;
        let last = page + pages;
        while page < last {
            // 512 pages whose summary bit is clear were never touched: their words need not even be read.
            let chunk = page >> 9;
            let chunk_end = ((chunk + 1) << 9).min(last);
            let is_whole_huge = chunk_end - page == self.huge.pages() && self.release_huge(page as u32);
            if !is_whole_huge && self.pages.is_touched_around(page) {
                let mut from = page;
                while from < chunk_end {
                    let to = (from + BATCH).min(chunk_end);
                    self.release_batch(from as u32, to as u32, figures);
                    from = to;
                }
            }
            page = chunk_end;
        }
    }

    /// Whether all pages that `start..end` (one stretch) has a part of are near at this moment.
    pub fn are_near(&self, start: usize, end: usize) -> bool {
        let Some(first) = self.page_at(start) else { return false };
        (first..=self.last_of(first, start, end))
            .all(|page| page_word::load(self.pages.word(page)).state() == State::Resident)
    }

    pub(super) fn release_batch(&self, from: u32, to: u32, figures: &Figures) {
        let mut frames = [0u32; BATCH];
        let mut count = 0;
        let mut held = [PageWord::ABSENT; BATCH];
        for page in from..to {
            let word = self.pages.word(page);
            let mut wait = Backoff::new();
            loop {
                let seen = page_word::load(word);
                match seen.state() {
                    State::Absent => break,
                    State::Resident | State::Far if page_word::try_lock(word, seen) => {
                        held[(page - from) as usize] = seen;
                        break;
                    }
                    _ => wait.pause(),
                }
            }
        }
        if [from, to - 1].iter().any(|page| self.huge.is_huge(*page)) {
            for page in from..to {
                let seen = held[(page - from) as usize];
                if seen.state() != State::Absent {
                    page_word::unlock(self.pages.word(page), seen);
                }
            }
            for page in [from, to - 1] {
                self.split_or_end(page);
            }
            return self.release_batch(from, to, figures);
        }
        let mut page = from;
        let mut freed = 0u64;
        while page < to {
            let kind = held[(page - from) as usize].state();
            let mut end = page + 1;
            while end < to && held[(end - from) as usize].state() == kind {
                end += 1;
            }
            if kind != State::Absent {
                freed += u64::from(end - page);
                let run = &held[(page - from) as usize..(end - from) as usize];
                let is_here = |page| kind == State::Resident || self.far.is_in_place(page);
                if (page..end).any(is_here) {
                    self.punch_or_end(page, (end - page) as usize);
                }
                if kind == State::Resident {
                    for seen in run {
                        frames[count] = seen.frame();
                        count += 1;
                        let mappers = u64::from(self.pages.frames.count(seen.frame()));
                        Figures::add(&figures.invalidations, mappers.saturating_sub(1));
                    }
                }
                // A resident page may have a far copy too.
                self.far.store.discard(u64::from(page), u64::from(end - page));
            }
            page = end;
        }
        self.huge.released(from, to);
        if count > 0 {
            let mut room = self.near.room.lock();
            self.drain_logs(&mut room);
            for &frame in &frames[..count] {
                if self.limited() {
                    room.policy.remove(frame);
                }
                room.give(frame);
            }
            let taken = self.near.taken.load(Ordering::Relaxed) - count as u32;
            self.near.set_taken(taken, self.places.shift, &self.control.totals);
        }
        self.control.totals.touched_bytes.fetch_sub(freed << self.places.shift, Ordering::Relaxed);
        for page in from..to {
            if held[(page - from) as usize].state() != State::Absent {
                page_word::unlock(self.pages.word(page), PageWord::ABSENT);
            }
        }
    }
}
