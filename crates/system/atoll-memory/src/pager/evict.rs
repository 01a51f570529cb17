//! Making room: victims are chosen in batches.
//!
//! Called by the fault path when a worker's free frames run low; `copy_out` moves what is chosen. The room lock is held
//! only while victims are chosen.
//!
//! Rules: no allocation, no locks the program could hold, no arena access, no printing.

use std::sync::atomic::Ordering;

use atoll_pages::victims::{self, Near};
use atoll_pages::{Habit, pacing};

use super::executor::{CACHE, Executor, Lately};
use super::huge::HugePages;
use super::pages::Pages;
use super::room::Room;
use super::{FaultError, Pager};
use crate::control::Figures;
use crate::spin::Backoff;
use crate::sys;

/// Victims of one batch at most.
pub(super) const VICTIMS: usize = pacing::VICTIMS;

/// A page that is to leave; its lock is held.
#[derive(Clone, Copy)]
pub(super) struct Victim {
    pub(super) page: u32,
    pub(super) frame: u32,
    /// Whether somebody may have mapped the page writable.
    pub(super) dirty: bool,
    /// Whether far memory lacks the page's content, so that it must be stored.
    pub(super) store: bool,
    pub(super) token: u32,
    pub(super) habit: Habit,
    /// The page's core-map count when it was chosen.
    pub(super) count: u32,
}

pub(super) const NO_VICTIM: Victim =
    Victim { page: 0, frame: 0, dirty: false, store: false, token: 0, habit: Habit::Read, count: 0 };

/// How many batches of victims the kernel may refuse before a search for room fails. After a refusal the next batch has other victims.
const REFUSALS: u32 = 3;

/// Everything near that stayed pinned for so long stays pinned: whoever waits for room gives up.
const NO_ROOM_NS: u64 = 4_000_000_000;

impl Pager {
    /// Sees to it that `x` has at least `need` free frames.
    ///
    /// # Errors
    /// [`FaultError::NoRoom`] if everything near stays pinned, [`FaultError::Far`] if far memory takes nothing.
    pub(super) fn make_room(&self, x: &mut Executor, need: usize) -> Result<(), FaultError> {
        debug_assert!(need <= CACHE);
        let mut wait = Backoff::new();
        let mut since = None;
        let mut refusals = 0;
        while x.cached < need {
            let begin = sys::ticks();
            let got = match self.refill(x, need) {
                Err(FaultError::Kernel(_)) if refusals < REFUSALS => {
                    refusals += 1;
                    continue;
                }
                result => result?,
            };
            Figures::add(&x.figures.evict_ticks, sys::ticks().wrapping_sub(begin));
            if got == 0 {
                let now = sys::clock_ns(libc::CLOCK_MONOTONIC);
                let since = *since.get_or_insert_with(|| {
                    Figures::add(&x.figures.waits, 1);
                    now
                });
                if now.saturating_sub(since) > NO_ROOM_NS {
                    return Err(FaultError::NoRoom);
                }
                wait.pause();
            }
        }
        if x.log_nearly_full()
            && let Some(mut room) = self.near.room.try_lock()
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
        x.lately.set_frames(target);
        let mut victims = [NO_VICTIM; VICTIMS];
        let before = x.cached;
        let (count, huge) = {
            let mut room = self.near.room.lock();
            self.drain_logs(&mut room);
            self.age(x, &mut room);
            let want = pacing::refill(self.batch(target), need, x.cached);
            if self.take_unused(x, &mut room, want, target) {
                return Ok(x.cached - before);
            }
            if !self.near.full.load(Ordering::Relaxed) {
                self.near.full.store(true, Ordering::Relaxed);
            }
            let surplus = self.near.taken.load(Ordering::Relaxed).saturating_sub(target) as usize;
            let want = if self.guards_far_pages() { want.max(self.batch_of_stretches(target)) } else { want };
            let want = pacing::victims(want, surplus, x.cached);
            room.leaving.makers.note(std::ptr::from_ref(x).addr());
            let count = self.choose(&mut room, x, &mut victims[..want], target);
            (count, room.leaving.huge.take())
        };
        let (result, huge_left) = self.evict_chosen(x, &mut victims[..count], huge);
        if huge_left {
            let mut room = self.near.room.lock();
            let want = pacing::refill(self.batch(target), need, x.cached);
            self.take_unused(x, &mut room, want, target);
        }
        if self.near.taken.load(Ordering::Relaxed) > target {
            let mut room = self.near.room.lock();
            self.shrink(x, &mut room, target, need);
        }
        match result {
            Err(e) if x.cached == before || matches!(e, FaultError::Lost(_)) => Err(e),
            _ => Ok(x.cached.saturating_sub(before)),
        }
    }

    /// Evicts what was chosen, single pages and the huge page whose first page is `huge`. Packs some of the pages that stayed where they lie, and moves
    /// some packed pages behind memory where they take too much of it. Frames of single pages are for `x` then, those of the huge page are free. Says
    /// whether the huge page left.
    pub(super) fn evict_chosen(
        &self,
        x: &mut Executor,
        victims: &mut [Victim],
        huge: Option<Victim>,
    ) -> (Result<(), FaultError>, bool) {
        victims.sort_unstable_by_key(|v| v.page);
        let result = self.evict_all(x, victims).and_then(|()| self.pack_some(x));
        self.move_some(x);
        (result, huge.is_some_and(|first| self.evict_huge(x, first)))
    }

    /// Asks the policy for victims and locks their pages; those in use elsewhere, and those of the last faults, go back.
    pub(super) fn choose_now(&self, room: &mut Room, lately: &Lately, victims: &mut [Victim]) -> usize {
        let most = victims.len();
        let mut near = Lockable::new(self, lately, victims);
        victims::choose(&mut room.policy, &mut near, most, self.places.shift == 12)
    }
}

/// The resident pages, as victims are chosen among them: each is locked when it is taken.
pub(super) struct Lockable<'a> {
    pages: &'a Pages,
    huge: &'a HugePages,
    lately: &'a Lately,
    victims: &'a mut [Victim],
    count: usize,
}

impl<'a> Lockable<'a> {
    /// The resident pages with none taken yet. The caller takes no more than `victims` has room for.
    pub(super) fn new(pager: &'a Pager, lately: &'a Lately, victims: &'a mut [Victim]) -> Lockable<'a> {
        Lockable { pages: &pager.pages, huge: &pager.huge, lately, victims, count: 0 }
    }
}

impl Near for Lockable<'_> {
    fn page_in(&self, frame: u32) -> u64 {
        self.pages.frames.page(frame).into()
    }

    fn frame_of(&self, page: u64) -> Option<u32> {
        self.pages.frame_of(page as u32)
    }

    fn take(&mut self, page: u64, frame: u32, token: u32) -> bool {
        if self.huge.is_kept(page as u32, self.lately) {
            return false;
        }
        let Some(victim) = self.pages.lock_victim(page as u32, frame, token) else { return false };
        self.victims[self.count] = victim;
        self.count += 1;
        true
    }

    fn set_aside(&mut self, page: u64, frame: u32) -> bool {
        self.pages.set_aside_if_pinned(page as u32, frame)
    }

    fn mappers(&self, frame: u32) -> u32 {
        self.pages.frames.count(frame)
    }
}
