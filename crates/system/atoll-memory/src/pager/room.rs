//! Room in near memory: the replacement policy and the frames nobody uses, behind the one room lock.
//!
//! Used by `evict` and `release`; a fault comes here once for a batch, not for each page.
//!
//! Rules: no allocation, no arena access, nothing under the lock that waits.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use atoll_pages::{AnyPolicy, Policy, Wants, pacing};

use super::Pager;
use super::executor::Executor;
use super::leaving::Leaving;
use super::page_word::{self, State};
use super::scan::LastAge;
use crate::control::{Figures, Totals};
use crate::far::FarStore;
use crate::spin::Spin;

/// What the room lock guards.
pub struct Room {
    /// The policy, which decides what leaves.
    pub(super) policy: AnyPolicy<'static>,
    /// The victims that the policy has named ahead of need.
    pub(super) leaving: Leaving,
    /// Frames that were used and are free, linked through `next`.
    pub(super) free: &'static mut [u32],
    pub(super) freed: usize,
    /// Frames from here on were never used.
    pub(super) fresh: u32,
}

/// Near memory's frames, and the policy over them.
pub(super) struct Near {
    pub(super) room: Spin<Room>,
    /// Frames in use or in executors' caches. Only changed under the room lock.
    pub(super) taken: AtomicU32,
    /// Frames there are at most: as many as the tables have room for.
    pub(super) frame_limit: u32,
    /// What the policy needs.
    pub(super) wants: Wants,
    pub(super) marks: Marks,
    /// Whether near memory has been full. Before that nothing leaves, and nobody asks which pages are used.
    pub(super) full: AtomicBool,
    pub(super) last_age: LastAge,
}

impl Near {
    /// `frame_limit` frames, none of them used; `free` has an entry for each.
    pub(super) fn new(
        policy: AnyPolicy<'static>,
        leaving: Leaving,
        free: &'static mut [u32],
        frame_limit: u32,
    ) -> Near {
        Near {
            wants: policy.wants(),
            room: Spin::new(Room::new(policy, leaving, free)),
            taken: AtomicU32::new(0),
            frame_limit,
            marks: Marks::new(),
            full: AtomicBool::new(false),
            last_age: LastAge::new(),
        }
    }

    /// Frames that were ever used: those below this number.
    pub(super) fn frames_used(&self) -> u32 {
        self.room.lock().fresh
    }

    /// Sets how many frames are taken; `totals` say it in bytes, and the most that it ever was. Only under the room lock.
    pub(super) fn set_taken(&self, frames: u32, shift: u32, totals: &Totals) {
        self.taken.store(frames, Ordering::Relaxed);
        let bytes = u64::from(frames) << shift;
        totals.resident_bytes.store(bytes, Ordering::Relaxed);
        totals.resident_peak.fetch_max(bytes, Ordering::Relaxed);
    }
}

/// Marks the policy has not heard of yet: written by the program's first worker, read under the room lock.
pub(super) struct Marks {
    head: AtomicU32,
    tail: AtomicU32,
    ids: [AtomicU32; MARKS],
}

/// Marks kept; a power of two. More of them without one eviction between are lost, and the policy its place.
const MARKS: usize = 512;

impl Marks {
    pub(super) const fn new() -> Marks {
        Marks { head: AtomicU32::new(0), tail: AtomicU32::new(0), ids: [const { AtomicU32::new(0) }; MARKS] }
    }

    fn put(&self, id: u32) {
        let head = self.head.load(Ordering::Relaxed);
        // Acquire: pairs with the Release of `tail` in `drain`: the place was read before it is overwritten.
        if head.wrapping_sub(self.tail.load(Ordering::Acquire)) as usize >= MARKS {
            return;
        }
        self.ids[head as usize % MARKS].store(id, Ordering::Relaxed);
        // Release: pairs with the Acquire of `head` in `drain`.
        self.head.store(head.wrapping_add(1), Ordering::Release);
    }

    /// Only under the room lock.
    fn drain(&self, mut each: impl FnMut(u32)) {
        let mut tail = self.tail.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `put`.
        let head = self.head.load(Ordering::Acquire);
        while tail != head {
            each(self.ids[tail as usize % MARKS].load(Ordering::Relaxed));
            tail = tail.wrapping_add(1);
        }
        // Release: pairs with the Acquire in `put`.
        self.tail.store(head, Ordering::Release);
    }
}

impl Room {
    /// A room with no frame used yet; `free` has an entry for each frame.
    pub(crate) fn new(policy: AnyPolicy<'static>, leaving: Leaving, free: &'static mut [u32]) -> Room {
        Room { policy, leaving, free, freed: 0, fresh: 0 }
    }

    /// A frame nobody uses.
    fn take(&mut self) -> Option<u32> {
        if self.freed > 0 {
            self.freed -= 1;
            return Some(self.free[self.freed]);
        }
        if (self.fresh as usize) < self.free.len() {
            self.fresh += 1;
            return Some(self.fresh - 1);
        }
        None
    }

    /// As many frames as `frames` has room for; `false`, and none, if there are not so many.
    pub(super) fn take_all(&mut self, frames: &mut [u32]) -> bool {
        let fits = self.freed + (self.free.len() - self.fresh as usize) >= frames.len();
        if fits {
            frames.fill_with(|| self.take().unwrap_or_default());
        }
        fits
    }

    /// A frame is used no more.
    pub(super) fn give(&mut self, frame: u32) {
        self.free[self.freed] = frame;
        self.freed += 1;
    }
}

impl Pager {
    /// The program passed a point known by `id`: a region began, a barrier opened. Only its first worker calls this.
    #[inline]
    pub fn mark(&self, id: u32) {
        if self.near.wants.marks {
            self.near.marks.put(id);
        }
    }

    /// Tells the policy all that executors noted. Call it before asking the policy anything.
    pub(super) fn drain_logs(&self, room: &mut Room) {
        let workers = (self.control.workers.load(Ordering::Relaxed) as usize).max(1);
        for index in (0..workers).chain(self.executors.threads.numbers()) {
            // SAFETY: only the log is used, which is made for this (the room lock is held).
            let executor: &Executor = unsafe { &*self.executors.at.add(index) };
            executor.drain(|event| event.tell(&mut room.policy));
        }
        // Faults behind a mark may be among the above: the policy hears of a mark up to a batch late.
        self.near.marks.drain(|id| room.policy.mark(id));
    }

    /// Tells the pager how many bytes a node's twins take now: near memory holds so much less of the program's.
    pub fn set_twin_bytes(&self, bytes: u64) {
        self.pinned.set_twin_bytes(bytes);
    }

    /// Bytes of pinned memory now.
    pub fn pinned_bytes(&self) -> u64 {
        let pinned = self.pinned.bytes();
        let totals = &self.control.totals;
        totals.pinned_bytes.store(pinned, Ordering::Relaxed);
        totals.pinned_peak.fetch_max(pinned, Ordering::Relaxed);
        pinned
    }

    /// How many frames may be in use now, given what pinned memory and tables take of the near limit. What these grow by before the next
    /// batch of frames is taken, near memory is beyond its limit until then: at most the scratch memory of workers that evict for the
    /// first time, and what the program pins meanwhile.
    pub(super) fn frame_target(&self) -> u32 {
        let pinned = self.pinned_bytes();
        let totals = &self.control.totals;
        if !self.limited() {
            return self.near.frame_limit;
        }
        let tables = crate::arena::table_bytes();
        totals.table_bytes.store(tables, Ordering::Relaxed);
        let mut others = pinned + tables;
        if self.control.settings.near_automatic != 0 {
            let far = self.far.store.memory_bytes();
            totals.far_memory_bytes.store(far, Ordering::Relaxed);
            others += far;
        }
        let frames = self.control.near().saturating_sub(others) >> self.places.shift;
        (frames.min(u64::from(self.near.frame_limit)) as u32).max(self.least_frames())
    }

    /// The fewest frames with which every instruction can make progress.
    pub(super) fn least_frames(&self) -> u32 {
        let workers = self.control.workers.load(Ordering::Relaxed).max(1);
        pacing::least_frames(self.places.shift, workers)
    }

    /// Frames one batch takes: 256K, or an eighth of what each worker, and each thread of the program, may have if that is less.
    pub(super) fn batch(&self, target: u32) -> usize {
        pacing::batch(self.places.shift, target.into(), self.executors_at_work())
    }

    /// Frames one batch takes where stretches leave as a whole: 1 MiB, or a 32nd of what each worker, and each thread of the program, may have
    /// if that is less.
    pub(super) fn batch_of_stretches(&self, target: u32) -> usize {
        pacing::batch_of_stretches(self.places.shift, target.into(), self.executors_at_work())
    }

    /// Pages that are fetched together at most where room has to be made for them.
    pub(super) fn worth_evicting(&self) -> usize {
        let target = self.frame_target();
        pacing::worth_evicting(self.batch(target), target.into(), self.executors_at_work())
    }

    /// How many pages may lie in the scratch memory of `x` at once: two batches. Scratch memory that was ever used counts against near memory from then on,
    /// which makes more pages leave: all of it, for each of several workers, would be half of a small near memory.
    pub(super) fn scratch_pages(&self, x: &Executor) -> usize {
        let frames = match x.lately.frames() {
            0 => self.frame_target(),
            frames => frames,
        };
        (2 * self.batch(frames)).clamp(1, (x.scratch_bytes >> self.places.shift).max(1))
    }

    /// Workers, and threads of the program's own that are managed.
    pub(super) fn executors_at_work(&self) -> u64 {
        let workers = self.control.workers.load(Ordering::Relaxed).max(1);
        u64::from(workers) + self.executors.threads.numbers().len() as u64
    }

    /// Takes up to `want` unused frames for `x` if the target allows; `true` if it got at least one.
    pub(super) fn take_unused(&self, x: &mut Executor, room: &mut Room, want: usize, target: u32) -> bool {
        let taken = self.near.taken.load(Ordering::Relaxed);
        let allowed = (target.saturating_sub(taken) as usize).min(want);
        let mut got = 0;
        while got < allowed && x.cached < super::executor::CACHE {
            let Some(frame) = room.take() else { break };
            x.cache[x.cached] = frame;
            x.cached += 1;
            got += 1;
        }
        self.near.set_taken(taken + got as u32, self.places.shift, &self.control.totals);
        got > 0
    }

    /// Gives frames of `x`'s cache back while more are taken than `target` allows, but the `keep` it is about to use.
    pub(super) fn shrink(&self, x: &mut Executor, room: &mut Room, target: u32, keep: usize) {
        let mut taken = self.near.taken.load(Ordering::Relaxed);
        while taken > target && x.cached > keep {
            x.cached -= 1;
            room.give(x.cache[x.cached]);
            taken -= 1;
        }
        self.near.set_taken(taken, self.places.shift, &self.control.totals);
    }

    /// Counts the pages that are resident now by core-map count, and what the program would have needed, once, when it ends.
    pub fn publish_distribution(&self) {
        self.publish_footprint();
        for frame in 0..self.near.frames_used() {
            let seen = page_word::load(self.pages.word(self.pages.frames.page(frame)));
            if seen.state() == State::Resident && seen.frame() == frame {
                let count = self.pages.frames.count(frame) as usize;
                Figures::add(&self.control.totals.by_count[count], 1);
            }
        }
    }
}
