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
use super::page_word::{self, Habit, PageWord};
use super::{FaultError, Pager};
use crate::control::Figures;
use crate::far::{Access, FarStore, Transfer};
use crate::sys;

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

impl Pager {
    /// Evicts neighbouring pages, all locked. On failure those that are not far are near as before, though perhaps
    /// mapped by nobody.
    pub(super) fn evict_run(&self, x: &mut Executor, run: &[Victim]) -> Result<(), FaultError> {
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
        let len = run.len() << self.shift;
        let pipes = self.shift < 21 && len <= x.scratch_bytes;
        if pipes && !mappers.is_empty() && len <= x.pipe.capacity(x.scratch_bytes.min(VICTIMS << self.shift))
        {
            self.unmap_and_copy(x, run)
        } else {
            self.protect_and_copy(x, run, &mappers)
        }
    }

    /// The order for pages that few can write to.
    fn protect_and_copy(
        &self,
        x: &mut Executor,
        run: &[Victim],
        mappers: &CoreMap,
    ) -> Result<(), FaultError> {
        let (at, _) = self.address_of(run[0].page);
        mappers.for_each(|table| {
            let _ = self.uffd(table).write_protect(at, run.len() << self.shift, true);
        });
        let most = (x.scratch_bytes >> self.shift).clamp(1, VICTIMS);
        let stored = parts(run).try_for_each(|part| {
            run[part].chunks(most).try_for_each(|pages| {
                let to = self.destination(x, pages)?;
                let (len, offset) = (pages.len() << self.shift, self.offset(pages[0].page));
                // Read through the file, not through a mapping: the pages may be mapped in other tables only.
                // SAFETY: `destination` has room for `pages`.
                unsafe { sys::pread_exact(self.arena_fd, to, len, offset) }.map_err(FaultError::Kernel)?;
                self.store(x, pages, to)
            })
        });
        if let Err(e) = stored.and_then(|()| self.punch(run)) {
            // Pages that were read-only stay so through their dirty flag: a later write fault clears the rest.
            mappers.for_each(|table| {
                for v in run.iter().filter(|v| v.dirty && self.frames.mapped_by(v.frame, table)) {
                    let (at, _) = self.address_of(v.page);
                    let _ = self.uffd(table).write_protect(at, self.page_bytes(), false);
                }
            });
            self.keep(run);
            return Err(e);
        }
        self.release_frames(x, run);
        Ok(())
    }

    /// The order for pages that others may be writing to. All of the run fits in the scratch.
    fn unmap_and_copy(&self, x: &mut Executor, run: &[Victim]) -> Result<(), FaultError> {
        let mut to = [std::ptr::null_mut(); VICTIMS];
        let taken = parts(run).try_for_each(|part| {
            let (len, offset) = (part.len() << self.shift, self.offset(run[part.start].page));
            // SAFETY: all of the run has its place in the scratch.
            let scratch = unsafe { x.scratch.add(part.start << self.shift) };
            let direct = self.ram_direct.then(|| self.destination(x, &run[part.clone()])).transpose()?;
            to[part.start] = direct.unwrap_or(scratch);
            x.pipe.take(self.arena_fd, offset, len).map_err(FaultError::Kernel)
        });
        if let Err(e) = taken.and_then(|()| self.punch(run)) {
            x.pipe.drop_pages();
            self.keep(run);
            return Err(e);
        }
        for part in parts(run) {
            // SAFETY: as above; the pipe has exactly these pages, in this order.
            unsafe { x.pipe.read(to[part.start], part.len() << self.shift) }.map_err(FaultError::Lost)?;
        }
        let mut settled = 0;
        let mut result = Ok(());
        for part in parts(run) {
            if let Err(e) = self.store(x, &run[part.clone()], to[part.start]) {
                self.release_frames(x, &run[settled..part.start]);
                self.put_back(&run[part.clone()], to[part.start])?;
                settled = part.end;
                result = Err(e);
            }
        }
        self.release_frames(x, &run[settled..]);
        result
    }

    /// Where the content of `pages` is to be copied: their places in far memory, else the scratch.
    fn destination(&self, x: &Executor, pages: &[Victim]) -> Result<*mut u8, FaultError> {
        let mut to = x.scratch;
        if self.ram_direct {
            // Marks every page as held; they lie one after the other.
            for v in pages.iter().rev() {
                if let Some(at) =
                    self.far.direct(u64::from(v.page), Access::Store).map_err(FaultError::Far)?
                {
                    to = at;
                }
            }
        }
        Ok(to)
    }

    /// Far memory takes `pages` from where their content was copied.
    fn store(&self, x: &mut Executor, pages: &[Victim], from: *mut u8) -> Result<(), FaultError> {
        if !self.ram_direct {
            let mut transfers = [const { Transfer { page: 0, memory: std::ptr::null_mut() } }; VICTIMS];
            for (k, (transfer, v)) in transfers.iter_mut().zip(pages).enumerate() {
                // SAFETY: the copy has all the pages, one after the other.
                let memory = unsafe { from.add(k << self.shift) };
                *transfer = Transfer { page: u64::from(v.page), memory };
            }
            self.far.store(&mut x.lane, &transfers[..pages.len()]).map_err(FaultError::Far)?;
        }
        Figures::add(&x.figures.bytes_out, (pages.len() as u64) << self.shift);
        Ok(())
    }

    fn punch(&self, run: &[Victim]) -> Result<(), FaultError> {
        let len = (run.len() << self.shift) as u64;
        sys::punch_hole(self.arena_fd, self.offset(run[0].page), len).map_err(FaultError::Kernel)
    }

    /// The victims' pages are far: their frames are free for `x`.
    fn release_frames(&self, x: &mut Executor, run: &[Victim]) {
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
    }

    /// Pages that are out of the arena's file and that far memory does not take go back into it.
    fn put_back(&self, pages: &[Victim], from: *const u8) -> Result<(), FaultError> {
        let (len, offset) = (pages.len() << self.shift, self.offset(pages[0].page));
        // SAFETY: the copy has all the pages.
        unsafe { sys::pwrite_exact(self.arena_fd, from, len, offset) }.map_err(FaultError::Lost)?;
        for v in pages {
            self.frames.fill(v.frame, v.page, true, false);
        }
        self.keep(pages);
        Ok(())
    }

    /// A run stays: the policy has its pages back.
    fn keep(&self, run: &[Victim]) {
        let mut room = self.room.lock();
        for v in run {
            room.policy.restore(v.frame, self.frames.count(v.frame));
            page_word::unlock(self.word(v.page), PageWord::resident(v.frame, v.habit));
        }
    }
}
