//! Making room: victims leave near memory in batches.
//!
//! Called by the fault path when a worker's free frames run low. The order is write-protect, copy out, unmap,
//! punch; any other loses writes. The room lock is held only while victims are chosen.
//!
//! Rules: no allocation, no locks the program could hold, no arena access, no printing.

use std::sync::atomic::Ordering;

use atoll_pages::Policy;

use super::executor::{CACHE, Executor};
use super::frames::CoreMap;
use super::page_word::{self, Habit, PageWord, State};
use super::{FaultError, Pager};
use crate::control::Figures;
use crate::far::{Access, FarStore, Transfer};
use crate::spin::Backoff;
use crate::sys;

/// Victims of one batch at most.
const VICTIMS: usize = 64;

#[derive(Clone, Copy)]
struct Victim {
    page: u32,
    frame: u32,
    dirty: bool,
    store: bool,
    token: u32,
    habit: Habit,
}

const NO_VICTIM: Victim =
    Victim { page: 0, frame: 0, dirty: false, store: false, token: 0, habit: Habit::Read };

impl Pager {
    /// Sees to it that `x` has at least `need` free frames.
    ///
    /// # Errors
    /// [`FaultError::NoRoom`] if everything near stays pinned, [`FaultError::Far`] if far memory takes nothing.
    pub(super) fn make_room(&self, x: &mut Executor, need: usize) -> Result<(), FaultError> {
        debug_assert!(need <= CACHE);
        let mut wait = Backoff::new();
        let mut rounds = 0u32;
        while x.cached < need {
            let begin = sys::ticks();
            let got = self.refill(x, need)?;
            Figures::add(&x.figures.evict_ticks, sys::ticks().wrapping_sub(begin));
            if got == 0 {
                rounds += 1;
                if rounds == 1 {
                    Figures::add(&x.figures.waits, 1);
                }
                if rounds > 40_000 {
                    return Err(FaultError::NoRoom);
                }
                wait.pause();
            }
        }
        if x.log_nearly_full()
            && let Some(mut room) = self.room.try_lock()
        {
            self.drain_logs(&mut room);
        }
        Ok(())
    }

    /// One batch of frames into the cache of `x`: unused ones if the limit allows, else by eviction.
    fn refill(&self, x: &mut Executor, need: usize) -> Result<usize, FaultError> {
        let target = self.frame_target();
        if target == self.least_frames() {
            self.check_near()?;
        }
        let mut victims = [NO_VICTIM; VICTIMS];
        let before = x.cached;
        let count = {
            let mut room = self.room.lock();
            self.drain_logs(&mut room);
            self.age(x, &mut room);
            let want = self.batch(target).max(need - x.cached);
            if self.take_unused(x, &mut room, want, target) {
                return Ok(x.cached - before);
            }
            let surplus = self.taken.load(Ordering::Relaxed).saturating_sub(target) as usize;
            let want = (want + surplus).min(VICTIMS).min(CACHE - x.cached);
            self.choose(&mut room, &mut victims[..want])
        };
        let victims = &mut victims[..count];
        victims.sort_unstable_by_key(|v| v.page);
        let mut error = None;
        let mut i = 0;
        while i < victims.len() {
            let mut n = 1;
            let end = self.address_of(victims[i].page).1;
            while i + n < victims.len()
                && victims[i + n].page == victims[i + n - 1].page + 1
                && self.address_of(victims[i + n].page).1 == end
            {
                n += 1;
            }
            if let Err(e) = self.evict_run(x, &victims[i..i + n]) {
                error = Some(e);
            }
            i += n;
        }
        if self.taken.load(Ordering::Relaxed) > target {
            let mut room = self.room.lock();
            self.shrink(x, &mut room, target, need);
        }
        match error {
            Some(e) if x.cached == before => Err(e),
            _ => Ok(x.cached.saturating_sub(before)),
        }
    }

    /// Asks the policy for victims and locks their pages; those in use elsewhere go back.
    fn choose(&self, room: &mut super::room::Room, victims: &mut [Victim]) -> usize {
        let mut count = 0;
        let mut skipped = [0u32; VICTIMS];
        let mut skips = 0;
        while count < victims.len() && skips < VICTIMS {
            let Some(frame) = room.policy.evict() else { break };
            let token = room.policy.token();
            let page = self.frames.page(frame);
            let word = self.word(page);
            let seen = page_word::load(word);
            let ours =
                seen.state() == State::Resident && seen.frame() == frame && page_word::try_lock(word, seen);
            if !ours {
                skipped[skips] = frame;
                skips += 1;
                continue;
            }
            if self.frames.pinned(frame) {
                page_word::unlock(word, seen);
                skipped[skips] = frame;
                skips += 1;
                continue;
            }
            let dirty = self.frames.dirty(frame);
            let store = !self.frames.far_copy(frame);
            victims[count] = Victim { page, frame, dirty, store, token, habit: seen.habit() };
            count += 1;
        }
        for &frame in &skipped[..skips] {
            room.policy.restore(frame, self.frames.count(frame));
        }
        count
    }

    /// Evicts neighbouring pages, all locked. On failure they are near as before.
    fn evict_run(&self, x: &mut Executor, run: &[Victim]) -> Result<(), FaultError> {
        let (at, _) = self.address_of(run[0].page);
        let len = run.len() << self.shift;
        let mut mappers = CoreMap::EMPTY;
        for v in run {
            if v.dirty {
                self.frames.union_into(v.frame, &mut mappers);
            }
        }
        // Nobody but the thread that waits for this fault runs on this page table: it cannot write meanwhile.
        if !self.threads_share_tables() {
            mappers.remove(x.table);
        }
        mappers.for_each(|table| {
            let _ = self.uffd(table).write_protect(at, len, true);
        });
        let stored = self.copy_out(x, run);
        let punched = stored.and_then(|()| {
            sys::punch_hole(self.arena_fd, self.offset(run[0].page), len as u64).map_err(FaultError::Kernel)
        });
        if let Err(e) = punched {
            self.keep(run, at, len, &mappers);
            return Err(e);
        }
        let f = x.figures;
        for v in run {
            let count = self.frames.count(v.frame);
            Figures::add(&self.control.totals.by_count[count as usize], 1);
            // In one shared page table nobody knows who maps a page: every other worker is interrupted.
            let remote = if self.control.settings.shared_tables() {
                self.control.workers.load(Ordering::Relaxed).saturating_sub(1)
            } else {
                count - u32::from(self.frames.mapped_by(v.frame, x.table))
            };
            Figures::add(&f.invalidations, u64::from(remote));
            Figures::add(if v.store { &f.evictions_dirty } else { &f.evictions_clean }, 1);
            x.cache[x.cached] = v.frame;
            x.cached += 1;
            page_word::unlock(
                self.word(v.page),
                PageWord::far(if v.dirty { v.habit } else { Habit::Read }, v.token),
            );
        }
        Ok(())
    }

    /// Writes those pages of the run to far memory that it does not hold already.
    fn copy_out(&self, x: &mut Executor, run: &[Victim]) -> Result<(), FaultError> {
        let most = (x.scratch_bytes >> self.shift).clamp(1, VICTIMS);
        let mut i = 0;
        while i < run.len() {
            if !run[i].store {
                i += 1;
                continue;
            }
            let mut n = 1;
            while i + n < run.len() && run[i + n].store && n < most {
                n += 1;
            }
            let len = n << self.shift;
            let first = u64::from(run[i].page);
            let mut to = x.scratch;
            if self.ram_direct {
                // Marks every page of the run as held; they lie one after the other.
                for k in (0..n as u64).rev() {
                    if let Some(at) = self.far.direct(first + k, Access::Store).map_err(FaultError::Far)? {
                        to = at;
                    }
                }
            }
            // Read through the file, not through a mapping: the pages may be mapped in other tables only.
            // SAFETY: the scratch holds `most` pages; direct far memory is contiguous by page number.
            unsafe { sys::pread_exact(self.arena_fd, to, len, self.offset(run[i].page)) }
                .map_err(FaultError::Kernel)?;
            if !self.ram_direct {
                let mut pages = [const { Transfer { page: 0, memory: std::ptr::null_mut() } }; VICTIMS];
                for (k, p) in pages[..n].iter_mut().enumerate() {
                    // SAFETY: within the scratch, as above.
                    *p = Transfer { page: first + k as u64, memory: unsafe { to.add(k << self.shift) } };
                }
                self.far.store(&mut x.lane, &pages[..n]).map_err(FaultError::Far)?;
            }
            Figures::add(&x.figures.bytes_out, len as u64);
            i += n;
        }
        Ok(())
    }

    /// A run could not be evicted: allow writes again and give the pages back to the policy.
    fn keep(&self, run: &[Victim], at: usize, len: usize, mappers: &CoreMap) {
        // Pages that were read-only stay so through their dirty flag: a later write fault clears the rest.
        mappers.for_each(|table| {
            for v in run.iter().filter(|v| v.dirty && self.frames.mapped_by(v.frame, table)) {
                let (page_at, _) = self.address_of(v.page);
                let _ = self.uffd(table).write_protect(page_at, self.page_bytes(), false);
            }
            debug_assert!(len >= self.page_bytes() && at != 0);
        });
        let mut room = self.room.lock();
        for v in run {
            room.policy.restore(v.frame, self.frames.count(v.frame));
            page_word::unlock(self.word(v.page), PageWord::resident(v.frame, v.habit));
        }
    }
}
