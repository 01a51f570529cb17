//! The pages of a run and the frames that hold those that are near: locking a page, and choosing what may leave.
//!
//! Used by all of the pager. `page_word` is one page's entry and its lock, `frames` what is known of a resident page; together they are
//! the shared page table. `model` tries every order of what workers do with them.
//!
//! Rules: no allocation, no locks but pages', no arena access.

use std::sync::atomic::{AtomicU64, Ordering};

use super::evict::Victim;
use super::frames::Frames;
use super::page_word::{self, PageWord, State, Word};
use super::sync::Backoff;
use crate::control::Totals;

/// The entries of all pages and of all frames.
pub(super) struct Pages {
    words: &'static [Word],
    /// A bit for each 512 pages: whether one of them was ever used.
    touched: &'static [AtomicU64],
    pub(super) frames: Frames,
}

impl Pages {
    pub(super) fn new(words: &'static [Word], touched: &'static [AtomicU64], frames: Frames) -> Pages {
        Pages { words, touched, frames }
    }

    /// Numbers of pages are below this one.
    pub(super) fn count(&self) -> usize {
        self.words.len()
    }

    /// The page's entry.
    #[inline]
    pub(super) fn word(&self, page: u32) -> &'static Word {
        &self.words[page as usize]
    }

    /// Takes the page's lock, waiting for it.
    pub(super) fn hold(&self, page: u32) -> PageWord {
        let word = self.word(page);
        let mut wait = Backoff::new();
        loop {
            let seen = page_word::load(word);
            if seen.state() != State::Busy && page_word::try_lock(word, seen) {
                return seen;
            }
            wait.pause();
        }
    }

    /// Takes the page's lock if the page is in `frame` and nobody has it locked.
    #[inline]
    pub(super) fn try_lock_in(&self, page: u32, frame: u32) -> Option<PageWord> {
        let word = self.word(page);
        let seen = page_word::load(word);
        let is_there = seen.state() == State::Resident && seen.frame() == frame;
        (is_there && page_word::try_lock(word, seen)).then_some(seen)
    }

    /// Locks `page` for leaving if it is in `frame`, and not pinned.
    pub(super) fn lock_victim(&self, page: u32, frame: u32, token: u32) -> Option<Victim> {
        let seen = self.try_lock_in(page, frame)?;
        if self.frames.pinned(frame) {
            page_word::unlock(self.word(page), seen);
            return None;
        }
        let (dirty, store) = (self.frames.dirty(frame), !self.frames.far_copy(frame));
        let count = self.frames.count(frame);
        Some(Victim { page, frame, dirty, store, token, habit: seen.habit(), count })
    }

    /// Notes of `page`, if it is in `frame` and pinned, that the policy, which has given it up, does not hold it. Returns whether that is so.
    pub(super) fn set_aside_if_pinned(&self, page: u32, frame: u32) -> bool {
        let Some(seen) = self.try_lock_in(page, frame) else { return false };
        let pinned = self.frames.pinned(frame);
        if pinned {
            self.frames.set_aside(frame);
        }
        page_word::unlock(self.word(page), seen);
        pinned
    }

    /// The frame that holds `page` now, which is not locked: it may leave its frame and come into another one at any time.
    pub(super) fn frame_of(&self, page: u32) -> Option<u32> {
        let seen = page_word::load(self.word(page));
        let is_near = seen.state() == State::Resident && self.frames.page(seen.frame()) == page;
        is_near.then(|| seen.frame())
    }

    /// The page, of `1 << shift` bytes, is part of the footprint from now on.
    pub(super) fn touch(&self, page: u32, shift: u32, totals: &Totals) {
        let chunk = page as usize >> 9;
        let (word, bit) = (&self.touched[chunk / 64], 1u64 << (chunk % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        self.count_touched(1 << shift, totals);
    }

    /// The same of `count` pages from `first` on, all of them of the same 512.
    pub(super) fn touch_all(&self, first: u32, count: u32, shift: u32, totals: &Totals) {
        let chunk = first as usize >> 9;
        self.touched[chunk / 64].fetch_or(1u64 << (chunk % 64), Ordering::Relaxed);
        self.count_touched(u64::from(count) << shift, totals);
    }

    fn count_touched(&self, bytes: u64, totals: &Totals) {
        let now = totals.touched_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if now > totals.touched_peak.load(Ordering::Relaxed) {
            totals.touched_peak.fetch_max(now, Ordering::Relaxed);
        }
    }

    /// Whether one of the 512 pages around `page` was ever used. Where none was, their entries need not even be read.
    #[inline]
    pub(super) fn is_touched_around(&self, page: usize) -> bool {
        let chunk = page >> 9;
        self.touched[chunk / 64].load(Ordering::Relaxed) >> (chunk % 64) & 1 != 0
    }

    /// The first page at or behind `page` whose neighbourhood of 512 was ever used, below `end`.
    pub(super) fn next_touched(&self, page: usize, end: usize) -> Option<usize> {
        let mut chunk = page >> 9;
        while chunk << 9 < end {
            let word = self.touched.get(chunk / 64)?.load(Ordering::Relaxed) >> (chunk % 64);
            if word != 0 {
                let found = (chunk + word.trailing_zeros() as usize) << 9;
                return (found < end).then_some(found.max(page));
            }
            chunk = (chunk / 64 + 1) * 64;
        }
        None
    }
}
