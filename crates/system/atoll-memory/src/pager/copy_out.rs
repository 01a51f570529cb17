//! Moving victims out: their content goes to far memory, their mappings and their memory go.
//!
//! Called by `evict` with runs of neighbouring pages, all locked, so that nobody maps them meanwhile; but who has them
//! mapped may be writing to them. No write may be lost, which allows two orders:
//!
//! * write-protect in every table, copy, punch the hole (which unmaps);
//! * where others map the pages, so that both steps on their tables would interrupt their CPUs: take references to
//!   the pages into a pipe, punch the hole, then read them. On a virtual machine this is 10 µs less for a run.
//!
//! Rules: no allocation, no locks the program could hold, no arena access, no printing.

use std::ops::Range;
use std::sync::atomic::Ordering;

use atoll_pages::Policy;

use super::evict::{VICTIMS, Victim};
use super::executor::Executor;
use super::frames::CoreMap;
use super::in_place::InPlace;
use super::page_word::{self, PageWord};
use super::{FaultError, Pager, unmap};
use crate::control::Figures;
use crate::far::{FarStore, Transfer};
use crate::sys::{self, Errno};

/// Stretches of neighbours in `group`, which is sorted by page: positions.
fn runs<'a>(group: &'a [Victim], end: impl Fn(u32) -> usize + 'a) -> impl Iterator<Item = Range<usize>> + 'a {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at;
        let first = group.get(start)?;
        at += group[start..]
            .iter()
            .zip(first.page..)
            .take_while(|(v, page)| v.page == *page && end(v.page) == end(first.page))
            .count();
        Some(start..at)
    })
}

/// Parts of a run that far memory does not hold yet: positions in the run.
fn parts(run: &[Victim]) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        at += run[at..].iter().position(|v| v.store)?;
        let start = at;
        at += run[at..].iter().take_while(|v| v.store).count();
        Some(start..at)
    })
}

/// How far a victim is on its way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The victim stays near.
    Kept,
    /// The victim is copied, and still in the arena's file, write-protected.
    Copied,
    /// The victim is copied, and out of the arena's file.
    Unmapped,
}

impl Pager {
    /// Evicts victims, all locked, sorted by page; the slice is used up. On failure those that are not far are near as before, though
    /// perhaps mapped by nobody; an error says why some are.
    pub(super) fn evict_all(&self, x: &mut Executor, victims: &mut [Victim]) -> Result<(), FaultError> {
        let most = self.scratch_pages(x).min(VICTIMS);
        let mut result = Ok(());
        let moved = self.leave_in_place(x, victims);
        for group in victims[..moved].chunks(most) {
            match self.evict_group(x, group) {
                Err(e @ FaultError::Lost(_)) => return Err(e),
                Err(e) => result = Err(e),
                Ok(()) => {}
            }
        }
        result
    }

    /// Evicts as many victims as may lie in the scratch: far memory gets them in one call, as a disk is fastest then.
    fn evict_group(&self, x: &mut Executor, group: &[Victim]) -> Result<(), FaultError> {
        let mut stage = [Stage::Kept; VICTIMS];
        let mut copies = [std::ptr::null_mut(); VICTIMS];
        let mut result = Ok(());
        let end = |page| self.places.address_of(page).1;
        for run in runs(group, end) {
            match self.copy_run(x, &group[run.clone()], run.start, &mut copies[run.clone()]) {
                Ok(now) => stage[run].fill(now),
                Err(e @ FaultError::Lost(_)) => return Err(e),
                Err(e) => {
                    self.keep(&group[run]);
                    result = Err(e);
                }
            }
        }
        let stored = self.store(x, group, &stage, &copies);
        for run in runs(group, end) {
            let pages = &group[run.clone()];
            let gone = match stage[run.start] {
                Stage::Kept => continue,
                Stage::Copied => stored.and_then(|()| self.punch(pages)),
                Stage::Unmapped => stored,
            };
            match gone {
                Ok(()) => self.release_frames(x, pages),
                // What was to leave the file is there, but cleared.
                Err(FaultError::Lost(e)) => {
                    result = Err(FaultError::Kernel(e));
                    self.put_back(x, pages, &copies[run])?;
                    self.unprotect(x, pages);
                }
                Err(e) => {
                    result = Err(e);
                    if stage[run.start] == Stage::Unmapped {
                        self.put_back(x, pages, &copies[run])?;
                    } else {
                        self.unprotect(x, pages);
                        self.keep(pages);
                    }
                }
            }
        }
        result
    }

    /// Copies what far memory lacks of a run, the `index`-th page of its group first. On failure the run is near as
    /// before.
    fn copy_run(
        &self,
        x: &mut Executor,
        run: &[Victim],
        index: usize,
        copies: &mut [*mut u8],
    ) -> Result<Stage, FaultError> {
        for part in parts(run) {
            // SAFETY: the scratch holds as many pages as a group has.
            let scratch = unsafe { x.scratch.add((index + part.start) << self.places.shift) };
            let pages = run[part.start].page..=run[part.end - 1].page;
            let to = self.far.destination(&x.lane, pages, scratch).map_err(FaultError::Far)?;
            for (k, place) in part.enumerate() {
                // SAFETY: `destination` has room for the part.
                copies[place] = unsafe { to.add(k << self.places.shift) };
            }
        }
        let writers = self.writers(x, run);
        let len = run.len() << self.places.shift;
        let may_be_parts = self.may_be_parts(run);
        let is_for_pipe = !writers.is_empty() && self.places.shift < 21 && !may_be_parts;
        if is_for_pipe && len <= x.pipe.capacity(x.scratch_bytes) {
            return self.unmap_and_copy(x, run, copies);
        }
        let (at, _) = self.places.address_of(run[0].page);
        let kept_out = if may_be_parts && self.guards_far_pages() {
            self.guard(x, run, at, len)
        } else {
            self.tables.protect(&writers, at, len)
        };
        if let Err(e) = kept_out {
            self.unprotect(x, run);
            return Err(FaultError::Kernel(e));
        }
        for part in parts(run) {
            let (len, offset) = (part.len() << self.places.shift, self.places.offset(run[part.start].page));
            // Read through the file, not through a mapping: the pages may be mapped in other tables only.
            let file = self.places.files.file(offset);
            // SAFETY: `destination` has room for the part.
            if let Err(e) = unsafe { sys::pread_exact(file, copies[part.start], len, offset) } {
                self.unprotect(x, run);
                return Err(FaultError::Kernel(e));
            }
        }
        Ok(Stage::Copied)
    }

    fn may_be_parts(&self, run: &[Victim]) -> bool {
        run.iter().any(|victim| self.huge.may_be_part(victim.page))
    }

    /// Puts guards in the place of a run's mappings. Pages that may be parts of a large page need these: while the hole is punched the kernel may have
    /// cleared them and still map them.
    fn guard(&self, x: &Executor, run: &[Victim], at: usize, len: usize) -> Result<(), Errno> {
        if run.iter().any(|victim| !victim.dirty) {
            // The kernel would try for ever to put a guard where its mark for a write-protected page is.
            self.tables.uffd(x.table).write_protect(at, len, false)?;
        }
        unmap::advise(at, len, unmap::GUARD as usize)
    }

    /// Unmaps a run of pages that others may be writing to, and then copies it.
    fn unmap_and_copy(
        &self,
        x: &mut Executor,
        run: &[Victim],
        copies: &[*mut u8],
    ) -> Result<Stage, FaultError> {
        let taken = parts(run).try_for_each(|part| {
            let (len, offset) = (part.len() << self.places.shift, self.places.offset(run[part.start].page));
            x.pipe.take(self.places.files.file(offset), offset, len).map_err(FaultError::Kernel)
        });
        if let Err(e) = taken.and_then(|()| self.punch(run)) {
            x.pipe.drop_pages();
            return Err(e);
        }
        for part in parts(run) {
            // SAFETY: `destination` has room for the part; the pipe has exactly these pages, in this order.
            unsafe { x.pipe.read(copies[part.start], part.len() << self.places.shift) }
                .map_err(FaultError::Lost)?;
        }
        Ok(Stage::Unmapped)
    }

    /// The tables in which somebody may be writing to the run now.
    fn writers(&self, x: &Executor, run: &[Victim]) -> CoreMap {
        let mut mappers = CoreMap::EMPTY;
        for v in run {
            if v.dirty {
                self.pages.frames.union_into(v.frame, &mut mappers);
                if self.tables.kernel_maps.is_some() {
                    // Nobody tells of who maps the page.
                    mappers.insert(0);
                }
            }
        }
        // Only the thread that waits for this fault runs on that page table: it cannot write meanwhile.
        if x.is_alone && !self.tables.are_shared() {
            mappers.remove(x.table);
        }
        mappers
    }

    /// Allows writes to a run again. Pages that were read-only stay so through their dirty flag: a later write fault
    /// clears the rest.
    fn unprotect(&self, x: &Executor, run: &[Victim]) {
        if self.guards_far_pages() && self.may_be_parts(run) {
            let (at, _) = self.places.address_of(run[0].page);
            let _ = unmap::advise(at, run.len() << self.places.shift, unmap::UNGUARD);
        }
        self.writers(x, run).for_each(|table| {
            for v in run.iter().filter(|v| v.dirty && self.may_map(v.frame, table)) {
                let (at, _) = self.places.address_of(v.page);
                let _ = self.tables.uffd(table).write_protect(at, self.page_bytes(), false);
            }
        });
    }

    /// Puts pages of the group that were unmapped by taking them out of the arena's file back there, as far as they may stay where they
    /// lay. Returns which.
    fn return_to_place(
        &self,
        group: &[Victim],
        stage: &[Stage],
        copies: &[*mut u8],
    ) -> Result<[bool; VICTIMS], FaultError> {
        let mut returned = [false; VICTIMS];
        if self.far.in_place == InPlace::Never {
            return Ok(returned);
        }
        for index in 0..group.len() {
            if group[index].store && stage[index] == Stage::Unmapped {
                let stays = self.far.store.leave_in_place(group[index].page.into());
                returned[index] = stays.map_err(FaultError::Far)?;
            }
        }
        let mut index = 0;
        while index < group.len() {
            let run = self.place_end(&group[index..], &returned[index..]);
            if returned[index] {
                let (len, offset) = (run << self.places.shift, self.places.offset(group[index].page));
                // SAFETY: neighbours of a group are neighbours in the scratch.
                let written =
                    unsafe { sys::pwrite_exact(self.places.files.file(offset), copies[index], len, offset) };
                if written.is_err() {
                    // What is there of them already is as good as their copies, and goes with the hole that is punched here.
                    let _ = self.punch(&group[index..index + run]);
                    for place in index..index + run {
                        self.far.store.take_from_place(group[place].page.into(), 1);
                        returned[place] = false;
                    }
                }
            }
            index += run;
        }
        Ok(returned)
    }

    /// Far memory takes the pages of the group that were copied.
    fn store(
        &self,
        x: &mut Executor,
        group: &[Victim],
        stage: &[Stage],
        copies: &[*mut u8],
    ) -> Result<(), FaultError> {
        let mut transfers = [Transfer::NONE; VICTIMS];
        let mut count = 0;
        let mut direct = 0;
        let returned = self.return_to_place(group, stage, copies)?;
        for (index, ((v, stage), copy)) in group.iter().zip(stage).zip(copies).enumerate() {
            if !v.store || *stage == Stage::Kept {
                continue;
            }
            if returned[index] {
                direct += 1;
                continue;
            }
            // What is not in the scratch was copied to its place in far memory.
            if copy.addr().wrapping_sub(x.scratch.addr()) >= x.scratch_bytes {
                direct += 1;
            } else {
                transfers[count] = Transfer { page: u64::from(v.page), memory: *copy };
                count += 1;
            }
        }
        if count > 0 {
            // SAFETY: the copies hold whole pages.
            unsafe { self.far.probe.offer(transfers[0].memory, self.page_bytes(), &self.control.totals) };
            self.far.store.store(&mut x.lane, &transfers[..count]).map_err(FaultError::Far)?;
        }
        Figures::add(&x.figures.bytes_out, (count as u64 + direct) << self.places.shift);
        Ok(())
    }

    fn punch(&self, run: &[Victim]) -> Result<(), FaultError> {
        self.punch_pages(run[0].page, run.len())
    }

    /// Enters a run of victims as far; their frames are free for `x`.
    pub(super) fn release_frames(&self, x: &mut Executor, run: &[Victim]) {
        let f = x.figures;
        for v in run {
            let count = self.pages.frames.count(v.frame);
            Figures::add(&self.control.totals.by_count[v.count as usize], 1);
            // In one shared page table nobody knows who maps a page: every other worker is interrupted.
            let remote = if self.control.settings.shared_tables() {
                self.control.workers.load(Ordering::Relaxed).saturating_sub(1)
            } else {
                count - u32::from(x.is_alone && self.pages.frames.mapped_by(v.frame, x.table))
            };
            Figures::add(&f.invalidations, u64::from(remote));
            Figures::add(if v.store { &f.evictions_dirty } else { &f.evictions_clean }, 1);
            x.cache[x.cached] = v.frame;
            x.cached += 1;
            page_word::unlock(self.pages.word(v.page), PageWord::far(v.habit.leaving(v.dirty), v.token));
        }
    }

    /// Puts the copies of a run back into the arena's file, mapped by nobody: the run is out of the file, and far memory does not
    /// take its copies. Pages that far memory held before are far.
    fn put_back(&self, x: &mut Executor, run: &[Victim], copies: &[*mut u8]) -> Result<(), FaultError> {
        for v in run.iter().filter(|v| !v.store) {
            self.release_frames(x, std::slice::from_ref(v));
        }
        run.iter().for_each(|v| self.far.store.take_from_place(v.page.into(), 1));
        for part in parts(run) {
            let (pages, from) = (&run[part.clone()], copies[part.start]);
            let (len, offset) = (pages.len() << self.places.shift, self.places.offset(pages[0].page));
            // SAFETY: the copy has all pages of the part.
            unsafe { sys::pwrite_exact(self.places.files.file(offset), from, len, offset) }
                .map_err(FaultError::Lost)?;
            for v in pages {
                self.pages.frames.fill(v.frame, v.page, true, false);
            }
            self.keep(pages);
        }
        Ok(())
    }

    /// Leaves a run near: the policy has its pages back.
    fn keep(&self, run: &[Victim]) {
        let mut room = self.near.room.lock();
        for v in run {
            room.policy.restore(v.frame, self.pages.frames.count(v.frame));
            page_word::unlock(self.pages.word(v.page), PageWord::resident(v.frame, v.habit));
        }
    }
}
