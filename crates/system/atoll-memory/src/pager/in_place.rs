//! Pages that leave near memory and stay where they lie: they are unmapped, and neither copied nor taken out of the arena's file.
//!
//! Used by `copy_out` before it moves the rest of a batch, and by `fault`, which maps such a page again. While the machine has memory to
//! spare, far memory is memory of the same machine; to copy a page there and back is work for nothing. `far`'s `auto` says which pages may
//! stay, within the memory that it may take. A page counts as far all the same: nobody maps it, its frame is free for another page, and
//! an access to it is a fault.
//!
//! Who has the page mapped may be writing to it, and loses nothing, as the page stays what it is. Only the page's own lock is needed, under
//! which nobody maps it anew.
//!
//! Rules: no allocation, no locks the program could hold, no arena access, no printing.

use atoll_pages::huge::Why;

use super::evict::{NO_VICTIM, VICTIMS, Victim};
use super::executor::Executor;
use super::frames::CoreMap;
use super::page_word::{self, PageWord, State};
use super::pages::Pages;
use super::unmap::{self, Stretches};
use super::{FaultError, Pager};
use crate::control::{Faults, Figures, Settings};
use crate::far::{AnyFar, FarStore};
use crate::sys;

/// Whether pages may stay where they lie, and what makes an access to them a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InPlace {
    /// No page stays: a node's pages are counted by what is in its files, and huge pages are too few to be left anywhere.
    Never,
    /// The page is in nobody's page table. Each worker has its own one, in which the kernel maps nothing by itself.
    Unmapped,
    /// A guard stands in the page table that all threads share, where the kernel would else map the page without a word (see
    /// `kernel_maps`). An access raises SIGSEGV. To map the page replaces the guard.
    Guarded,
}

impl InPlace {
    /// What a run with this far memory does. `kernel_maps`: the kernel maps what is in the arena's file.
    pub(super) fn of(settings: &Settings, far: &AnyFar, kernel_maps: bool) -> InPlace {
        let is_of_use = settings.near_bytes != u64::MAX && far.leaves_in_place();
        if !is_of_use || settings.page_shift >= 21 || settings.several_nodes() {
            InPlace::Never
        } else if !settings.shared_tables() {
            InPlace::Unmapped
        } else if kernel_maps && settings.faults == Faults::Own as u32 && guards_are_possible() {
            InPlace::Guarded
        } else {
            InPlace::Never
        }
    }
}

/// Far pages between two victims at most over which one stretch goes.
const GAP: usize = 64;
/// The same of all victims of a batch together.
const GAPS: usize = 512;

/// Far pages between victims, locked, with the words they had.
struct Between {
    pages: [(u32, PageWord); GAPS],
    count: usize,
}

impl Between {
    fn new() -> Between {
        Between { pages: [(0, PageWord::ABSENT); GAPS], count: 0 }
    }

    fn push(&mut self, page: u32, seen: PageWord) {
        if let Some(place) = self.pages.get_mut(self.count) {
            *place = (page, seen);
            self.count += 1;
        }
    }

    /// Unlocks all but the first `kept`.
    fn unlock(&mut self, pages: &Pages, kept: usize) {
        for &(page, seen) in self.pages.iter().take(self.count).skip(kept) {
            page_word::unlock(pages.word(page), seen);
        }
        self.count = kept;
    }
}

/// Pages that are packed at once, beside a batch of evictions.
const PACKED: usize = 32;

/// Whether the kernel puts guards into mappings of files: since Linux 6.15. Without them, pages of threads that share a page table never stay
/// where they lie.
pub fn guards_are_possible() -> bool {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping of our own, which ends here.
    unsafe {
        let Ok(at) = sys::mmap(0, 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) else {
            return false;
        };
        let is_possible = sys::syscall(libc::SYS_madvise, [at, 4096, unmap::GUARD as usize, 0, 0, 0]).is_ok();
        let _ = sys::syscall(libc::SYS_munmap, [at, 4096, 0, 0, 0, 0]);
        is_possible
    }
}

impl Pager {
    /// Lets as many of the victims stay where they lie as may; the frames of these are free for `x`. Victims are all locked, and sorted by
    /// page. Returns how many are still to be moved: those that come first now.
    pub(super) fn leave_in_place(&self, x: &mut Executor, victims: &mut [Victim]) -> usize {
        if self.far.in_place == InPlace::Never {
            return victims.len();
        }
        let mut stays = [false; VICTIMS];
        for (stays, victim) in stays.iter_mut().zip(&*victims) {
            // Only taking the page out of the file unmaps it elsewhere: `copy_out` does so, and puts it back.
            if self.is_mapped_elsewhere(x, victim.frame) {
                continue;
            }
            match self.far.store.leave_in_place(victim.page.into()) {
                Ok(true) => *stays = true,
                // The next ones would hear the same.
                Ok(false) | Err(_) => break,
            }
        }
        self.take_mappings(x, victims, &mut stays);
        let mut rest = 0;
        for index in 0..victims.len() {
            let victim = victims[index];
            if stays[index] {
                Figures::add(&x.figures.bytes_out, u64::from(victim.store) << self.places.shift);
                self.release_frames(x, &[victim]);
            } else {
                victims[rest] = victim;
                rest += 1;
            }
        }
        rest
    }

    /// Whether another page table than that of `x` maps the page in `frame`.
    pub(super) fn is_mapped_elsewhere(&self, x: &Executor, frame: u32) -> bool {
        if self.tables.kernel_maps.is_some() {
            return false;
        }
        let mut mappers = CoreMap::EMPTY;
        self.pages.frames.union_into(frame, &mut mappers);
        mappers.remove(x.table);
        !mappers.is_empty()
    }

    /// How many of the first victims are neighbours that all stay, or all do not.
    pub(super) fn place_end(&self, victims: &[Victim], stays: &[bool]) -> usize {
        let end = self.places.address_of(victims[0].page).1;
        (1..victims.len())
            .find(|&next| {
                stays[next] != stays[0]
                    || victims[next].page != victims[next - 1].page + 1
                    || self.places.address_of(victims[next].page).1 != end
            })
            .unwrap_or(victims.len())
    }

    /// Unmaps the victims that stay, which only the page table of `x` maps, so that an access to them is a fault. Where the kernel refuses,
    /// they do not stay.
    fn take_mappings(&self, x: &Executor, victims: &mut [Victim], stays: &mut [bool]) {
        let is_guarded = self.far.in_place == InPlace::Guarded;
        let mut stretches = Stretches::new();
        // Where the runs of the stretches so far begin and end.
        let mut runs = [(0, 0); VICTIMS];
        let mut count = 0;
        let mut begin = 0;
        let mut between = Between::new();
        while begin < victims.len() {
            let end = self.place_end(&victims[begin..], &stays[begin..]) + begin;
            let run = &victims[begin..end];
            let is_unmapped =
                || !is_guarded && !run.iter().any(|v| self.pages.frames.mapped_by(v.frame, x.table));
            if stays[begin] && !is_unmapped() {
                let (at, len) = (self.places.address_of(run[0].page).0, run.len() << self.places.shift);
                // The kernel would try for ever to put a guard where its mark for a write-protected page is.
                let is_marked = is_guarded && run.iter().any(|victim| !victim.dirty);
                if is_marked && self.tables.uffd(x.table).write_protect(at, len, false).is_err() {
                    self.do_not_stay(&mut victims[begin..end], &mut stays[begin..end]);
                } else if is_guarded
                    && count > 0
                    && let (first, last) = runs[count - 1]
                    && self.lock_between(&mut between, victims[last - 1].page, victims[begin].page)
                {
                    stretches.lengthen(at + len);
                    runs[count - 1] = (first, end);
                } else {
                    stretches.push(at, len);
                    runs[count] = (begin, end);
                    count += 1;
                }
            }
            begin = end;
        }
        let done = stretches.unmap(if is_guarded { unmap::GUARD } else { unmap::DROP });
        between.unlock(&self.pages, 0);
        for &(begin, end) in &runs[done..count] {
            self.do_not_stay(&mut victims[begin..end], &mut stays[begin..end]);
        }
    }

    /// Locks the pages between `last` and `next` if there are few, and all of them are far and stayed where they lie: a guard stands for each
    /// already, so that the stretch which ends with `last` may go on to `next`. That saves an interruption of the other threads' CPUs.
    fn lock_between(&self, between: &mut Between, last: u32, next: u32) -> bool {
        let gap = (next - last - 1) as usize;
        let is_near = gap <= GAP && between.count + gap <= GAPS;
        if !is_near || self.places.address_of(last).1 != self.places.address_of(next).1 {
            return false;
        }
        let before = between.count;
        for page in last + 1..next {
            let word = self.pages.word(page);
            let seen = page_word::load(word);
            if seen.state() == State::Far && page_word::try_lock(word, seen) {
                between.push(page, seen);
                if self.far.is_in_place(page) && !self.huge.is_huge(page) {
                    continue;
                }
            }
            between.unlock(&self.pages, before);
            return false;
        }
        true
    }

    /// A run of victims is to be moved after all. Far memory has forgotten what it held of them.
    fn do_not_stay(&self, run: &mut [Victim], stays: &mut [bool]) {
        for victim in run {
            self.far.store.take_from_place(victim.page.into(), 1);
            self.pages.frames.set_dirty(victim.frame);
            (victim.dirty, victim.store) = (true, true);
        }
        stays.fill(false);
    }

    /// Moves some of the pages that stayed where they lie, if the machine needs the memory: they come into free frames of `x` and leave
    /// again. What cannot be moved is near then.
    ///
    /// # Errors
    /// As for [`evict_all`](Self::evict_all).
    pub(super) fn pack_some(&self, x: &mut Executor) -> Result<(), FaultError> {
        let mut victims = [NO_VICTIM; PACKED];
        let mut count = 0;
        for _ in 0..PACKED.min(x.cached) {
            let Some(page) = self.far.store.next_to_pack().map(|page| page as u32) else { break };
            self.split(page, Why::PartNeeded)?;
            let word = self.pages.word(page);
            let seen = page_word::load(word);
            if seen.state() != State::Far || !page_word::try_lock(word, seen) {
                break;
            }
            if !self.far.is_in_place(page) || self.huge.is_huge(page) {
                page_word::unlock(word, seen);
                break;
            }
            self.far.store.take_from_place(page.into(), 1);
            x.cached -= 1;
            let (frame, token) = (x.cache[x.cached], seen.token());
            self.pages.frames.fill(frame, page, true, false);
            victims[count] =
                Victim { page, frame, dirty: true, store: true, token, habit: seen.habit(), count: 0 };
            count += 1;
        }
        if count == 0 {
            return Ok(());
        }
        let victims = &mut victims[..count];
        victims.sort_unstable_by_key(|victim| victim.page);
        self.evict_all(x, victims)
    }

    /// Whether an access to a far page may raise SIGSEGV.
    pub fn guards_far_pages(&self) -> bool {
        self.far.in_place == InPlace::Guarded
    }

    /// Whether SIGSEGV for an access to an address where nothing is mapped was raised by a guard, or by one that another thread has
    /// taken away meanwhile. Else the address is none of the program's.
    pub fn is_guarded(&self, address: usize) -> bool {
        let Some(page) = self.page_at(address).filter(|_| self.guards_far_pages()) else { return false };
        let mut is_resident = 0_u8;
        let words = [address & !4095, 4096, (&raw mut is_resident).addr(), 0, 0, 0];
        // SAFETY: the kernel writes one byte, for one page. It fails where no mapping is.
        self.far.is_in_place(page) || unsafe { sys::syscall(libc::SYS_mincore, words) }.is_ok()
    }
}
