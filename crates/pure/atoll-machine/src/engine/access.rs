//! A worker's turn: its next event, and computing up to the one after it.
//!
//! [`Engine::run`] calls this for every event, so the path of a TLB hit is short: it looks up the entry in the worker's own
//! TLB. An access that needs a walk goes to the page tables, and a page that these lack goes to [`fault`](super::fault).

use atoll_pages::{Habit, PageSize};

use super::{Decider, Engine};
use crate::clocks::{self, NEVER};
use crate::feed::{self, Range, WRITE};
use crate::minimum::Use;
use crate::pages::{FAR, MAX_PAGE};
use crate::setup::{PageMode, Tables};
use crate::tlb::{Class, Lookup};
use crate::watch::{Happening, Watch};

impl<W: Watch> Engine<'_, W> {
    /// Carries out the next event of `worker`, which is due first.
    #[inline]
    pub(super) fn turn(&mut self, worker: usize) {
        let now = self.at[worker].clock;
        if now >= self.next_tick {
            return self.tick();
        }
        if self.at[worker].debt > 0 {
            let debt = std::mem::take(&mut self.at[worker].debt);
            self.workers[worker].times.interrupted += debt;
            self.at[worker].clock += debt;
            return self.clocks.set(worker, clocks::key(now + debt, worker));
        }
        let queue = &mut self.feed.queues[worker];
        let entry = queue.entries[queue.gone];
        queue.gone += 1;
        self.feed.held -= 1;
        if feed::kind(entry) == feed::ACCESS {
            self.at[worker].clock = self.access(worker, now, feed::page(entry), entry & WRITE != 0);
        } else if self.waits_after(worker, entry) {
            return;
        }
        self.go_on(worker);
    }

    /// Carries out an event that is no access; returns whether the worker then waits.
    #[inline(never)]
    fn waits_after(&mut self, worker: usize, entry: u64) -> bool {
        let what = feed::payload(entry);
        match feed::kind(entry) {
            feed::MEET => {
                self.at[worker].meeting = what;
                self.clocks.set(worker, NEVER);
                self.feed.arrive(what, self.at[worker].clock);
                self.meet(what);
                return true;
            }
            feed::MARK => self.mark(what as u32),
            _ => self.range(what as usize),
        }
        false
    }

    /// Computes up to the worker's next event, so that it takes its turn when that is due.
    #[inline]
    pub(super) fn go_on(&mut self, worker: usize) {
        let at = &mut self.at[worker];
        let queue = &mut self.feed.queues[worker];
        while let Some(entry) = queue.entries.get_mut(queue.gone) {
            let alone = feed::kind(*entry) == feed::COMPUTE;
            let instructions = if alone {
                queue.gone += 1;
                self.feed.held -= 1;
                feed::payload(*entry)
            } else if feed::kind(*entry) == feed::ACCESS {
                let instructions = feed::instructions(*entry);
                *entry = feed::alone(*entry);
                instructions
            } else {
                0
            };
            let time = instructions * self.costs.instructions / 1024;
            self.workers[worker].times.compute += time;
            at.clock += time;
            if !alone {
                return self.clocks.set(worker, clocks::key(at.clock, worker));
            }
        }
        self.starving += 1;
        self.clocks.set(worker, NEVER);
    }

    /// Carries out an access to 4K page `page` at time `clock`; returns the clock when the access is done.
    #[inline(always)]
    fn access(&mut self, worker: usize, clock: u64, page: u64, write: bool) -> u64 {
        self.workers[worker].counts.accesses += 1;
        // Addresses beyond user space are not paged.
        if page >= MAX_PAGE {
            return clock;
        }
        let PageMode::One(_) = self.layout.mode else {
            return self.access_otherwise(worker, clock, page, write);
        };
        if matches!(self.decider, Decider::Min(_)) {
            return self.access_foreseen(worker, clock, page, write);
        }
        self.translate(worker, clock, page, write, self.layout.class)
    }

    #[inline(always)]
    fn translate(&mut self, worker: usize, clock: u64, page: u64, write: bool, class: Class) -> u64 {
        match self.tlbs.look_up(worker, class, page, write) {
            Lookup::Hit => clock,
            Lookup::Found { after, clean } => {
                self.workers[worker].times.walk += after;
                if clean {
                    let id = self.page_id(page);
                    return self.write(worker, clock + after, id);
                }
                clock + after
            }
            Lookup::Miss => self.walk(worker, clock, page, write, class),
        }
    }

    /// Carries out an access in the other modes: segments translate without tables, and of mixed pages the size is looked up
    /// first.
    #[inline(never)]
    fn access_otherwise(&mut self, worker: usize, clock: u64, page: u64, write: bool) -> u64 {
        let id = self.page_id(page);
        if self.layout.mode == PageMode::Segment {
            self.pages.map(id, worker);
            return clock;
        }
        let size = PageSize::ALL[usize::from(self.pages.all[id as usize].size)];
        let class = self.tlbs.class(size);
        self.translate(worker, clock, page, write, class)
    }

    /// Carries out an access under MIN, where every access is a use, mapped or not.
    #[inline(never)]
    fn access_foreseen(&mut self, worker: usize, mut clock: u64, page: u64, write: bool) -> u64 {
        let id = self.page_id(page);
        if let Decider::Min(minimum) = &mut self.decider
            && minimum.touch(id) == Use::Lost
        {
            clock = self.lose(worker, clock, id);
        }
        self.translate(worker, clock, page, write, self.layout.class)
    }

    #[inline(never)]
    fn walk(&mut self, worker: usize, mut clock: u64, page: u64, write: bool, class: Class) -> u64 {
        self.workers[worker].counts.tlb_misses += 1;
        self.watch.see(clock, Happening::Walk { worker, page });
        let cost = self.costs.walk[if self.tlbs.is_native(class) { class.size } else { 0 }];
        self.workers[worker].times.walk += cost;
        clock += cost;
        let id = self.page_id(page);
        if !self.is_mapped(worker, id) {
            clock = self.fault(worker, clock, id, write);
        } else if self.pages.all[id as usize].unseen {
            self.seen(id);
        }
        if self.tables == Tables::Shared {
            // A worker that has walked to a page may have it in its TLB.
            self.pages.map(id, worker);
        }
        self.pages.access(id, worker);
        if write {
            clock = self.write(worker, clock, id);
        }
        self.tlbs.fill(worker, class, page, write);
        clock
    }

    /// Writes to a page; returns the clock afterwards.
    #[inline]
    fn write(&mut self, worker: usize, clock: u64, id: u32) -> u64 {
        let page = &mut self.pages.all[id as usize];
        if page.dirty || !self.is_atoll {
            page.dirty = true;
            return clock;
        }
        self.allow_writes(worker, clock, id)
    }

    /// Returns the page that 4K page `page` lies in; makes one that was never touched.
    #[inline]
    pub(super) fn page_id(&mut self, page: u64) -> u32 {
        if let Some(id) = self.index.get(page >> self.layout.shift) {
            return id;
        }
        self.new_page(page)
    }

    #[inline(never)]
    fn new_page(&mut self, page: u64) -> u32 {
        let unit = page >> self.layout.shift;
        let size = match self.layout.mode {
            PageMode::One(size) => size,
            PageMode::Segment => PageSize::K4,
            PageMode::Mixed => self.largest_at(page),
        };
        let first = page >> (size.shift() - 12) << (size.shift() - 12);
        let index = PageSize::ALL.iter().position(|&known| known == size).unwrap_or(0);
        let head = first >> self.layout.shift;
        // Another of its 4K pages may already have made the mixed page known.
        let id = match self.index.get(head).filter(|&id| self.pages.all[id as usize].size == index as u8) {
            Some(id) => id,
            None => self.pages.add(first, index as u8),
        };
        self.index.set(head, id);
        self.index.set(unit, id);
        id
    }

    /// Returns the size of the largest page around 4K page `page` that lies within one mapping.
    fn largest_at(&self, page: u64) -> PageSize {
        let within = |size: &PageSize| {
            let pages = 1_u64 << (size.shift() - 12);
            let first = page / pages * pages;
            let mapping = self.layout.mapped.range(..=first).next_back();
            mapping.is_some_and(|(begin, len)| begin + len >= first + pages)
        };
        PageSize::ALL.iter().rev().find(|size| within(size)).copied().unwrap_or(PageSize::K4)
    }

    fn range(&mut self, index: usize) {
        let Range { first, pages, map } = self.feed.ranges[index];
        let end = first.saturating_add(pages).min(MAX_PAGE);
        if first >= end {
            return;
        }
        if map {
            if self.layout.mode == PageMode::Mixed {
                self.layout.mapped.insert(first, end - first);
            }
            return;
        }
        self.layout.mapped.remove(&first);
        let shift = self.layout.shift;
        let mut ids = self.index.within(first >> shift..end.div_ceil(1 << shift));
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            let page = &self.pages.all[id as usize];
            let len = 1_u64 << (PageSize::ALL[usize::from(page.size)].shift() - 12);
            if page.first >= first && page.first + len <= end {
                self.free(id);
            }
        }
    }

    /// Frees a page that the program gives back: its data is gone.
    fn free(&mut self, id: u32) {
        self.unmap_everywhere(id);
        let page = &mut self.pages.all[id as usize];
        (page.used, page.dirty, page.token) = (false, false, None);
        (page.far_copy, page.habit) = (false, Habit::Read);
        if page.frame != FAR {
            self.release(id);
        }
        if let Decider::Min(minimum) = &mut self.decider {
            minimum.forget(id);
        }
    }
}
