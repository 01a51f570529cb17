//! Faults as `atoll run` resolves them, written a second time with maps and searches.

use atoll_machine::{Happening, PageMode, Replacement, Tables};
use atoll_pages::{PageSize, Policy, Prefetcher};

use super::{SHIFTS, Slow};

#[derive(PartialEq, Clone, Copy, Default)]
pub(super) enum Habit {
    #[default]
    Read,
    Unknown,
    Written,
}

enum Note {
    Arrived(u32, u32, Option<u32>),
    Mapped(u32, u32),
}

/// The state of a worker under atoll's pager.
pub(super) struct Own {
    streams: Prefetcher,
    store: Vec<u32>,
    notes: Vec<Note>,
    looks: u32,
}

impl Own {
    pub(super) fn new(page: PageSize, near: Option<u64>) -> Self {
        let window = match page {
            PageSize::K4 => 64,
            PageSize::K64 => 4,
            PageSize::M2 => 1,
        };
        let frames = near.map_or(u64::MAX, |near| near / page.bytes() as u64);
        Self { streams: Prefetcher::new(window, frames), store: Vec::new(), notes: Vec::new(), looks: 0 }
    }
}

impl Slow<'_> {
    fn size(&self) -> PageSize {
        self.setup.page.smallest()
    }

    /// Returns the number of frames that a worker gets at once.
    fn batch(&self) -> usize {
        let most = match self.size() {
            PageSize::K4 => 64,
            PageSize::K64 => 8,
            PageSize::M2 => 1,
        };
        let frames = self.setup.near.map_or(u64::MAX, |near| near / self.size().bytes() as u64);
        (frames / (8 * self.setup.workers as u64)).clamp(1, most) as usize
    }

    /// Returns the page of this number, counted in pages.
    fn numbered(&self, number: u64) -> Option<usize> {
        let PageMode::One(size) = self.setup.page else { unreachable!() };
        self.owner.get(&(number * (size.bytes() as u64 / 4096))).copied()
    }

    fn number(&self, id: usize) -> u64 {
        self.pages[id].first >> SHIFTS[self.pages[id].size]
    }

    fn is_mapped(&self, worker: usize, id: usize) -> bool {
        match self.setup.tables {
            Tables::Private => self.pages[id].map.contains(&worker),
            Tables::Shared => self.pages[id].present,
        }
    }

    pub(super) fn write(&mut self, worker: usize, id: usize) {
        if self.is_atoll() && !self.pages[id].dirty {
            self.pages[id].habit = Habit::Written;
            self.workers[worker].counts.write_faults += 1;
            self.work(worker, self.costs.entry + self.costs.minor);
        }
        self.pages[id].dirty = true;
    }

    fn work(&mut self, worker: usize, time: u64) {
        self.workers[worker].times.fault += time;
        self.clock[worker] += time;
    }

    pub(super) fn fault_as_atoll(&mut self, worker: usize, id: usize, write: bool) {
        let (first, page) = (!self.pages[id].used, self.pages[id].first);
        let major = self.pages[id].frame.is_none();
        self.log.push((self.clock[worker], Happening::Fault { worker, page, major, first }));
        self.work(worker, self.costs.entry + if major { self.costs.major } else { self.costs.minor });
        if major {
            return self.fetch(worker, id, write);
        }
        self.workers[worker].counts.minor_faults += 1;
        if write {
            self.pages[id].dirty = true;
            if self.pages[id].habit == Habit::Read {
                self.pages[id].habit = Habit::Unknown;
            }
        }
        let wait = self.pages[id].ready.saturating_sub(self.clock[worker]);
        self.workers[worker].times.transfer += wait;
        self.clock[worker] += wait;
        let inexact = matches!(self.setup.policy, Replacement::Policy(p) if ["fifo", "adaptive", "newest"].contains(&p.name()));
        if self.size() == PageSize::K4 && (inexact || self.policy.is_none()) {
            let number = self.number(id);
            for neighbour in (number & !15..=number | 15).filter(|&neighbour| neighbour != number) {
                let known = self.numbered(neighbour);
                if let Some(id) =
                    known.filter(|&id| self.pages[id].frame.is_some() && !self.is_mapped(worker, id))
                {
                    self.map_near(worker, id);
                }
            }
        }
        self.map_near(worker, id);
    }

    fn map_near(&mut self, worker: usize, id: usize) {
        self.pages[id].map.insert(worker);
        self.pages[id].ever.insert(worker);
        self.pages[id].present = true;
        let note = Note::Mapped(self.pages[id].frame.unwrap(), self.mappers(id));
        self.note(worker, note);
    }

    fn note(&mut self, worker: usize, note: Note) {
        if self.policy.is_some() {
            if self.own[worker].notes.len() == 1024 {
                self.drain();
            }
            self.own[worker].notes.push(note);
        }
    }

    pub(super) fn drain(&mut self) {
        let Some(policy) = &mut self.policy else { return };
        for note in self.own.iter_mut().flat_map(|own| own.notes.drain(..)) {
            match note {
                Note::Arrived(frame, mappers, Some(token)) => policy.insert_again(frame, mappers, token),
                Note::Arrived(frame, mappers, None) => policy.insert(frame, mappers),
                Note::Mapped(frame, mappers) => policy.mapped(frame, mappers),
            }
        }
        for mark in self.marks.drain(..) {
            policy.mark(mark);
        }
    }

    fn writable(&mut self, worker: usize, id: usize, write: bool) -> bool {
        if write || !self.pages[id].used {
            return true;
        }
        self.own[worker].looks += 1;
        self.pages[id].habit == Habit::Written && !self.own[worker].looks.is_multiple_of(64)
    }

    fn fetch(&mut self, worker: usize, id: usize, write: bool) {
        let (number, used) = (self.number(id), self.pages[id].used);
        let all = 0..=(1 << 35 >> SHIFTS[self.pages[id].size]) - 1;
        let block = number & !15..=number | 15;
        let window = self.own[worker].streams.fault(number, if used { all } else { block });
        self.stock(worker, 1);
        let mut coming = vec![(number, id, self.writable(worker, id, write))];
        if window.count > 1 {
            let mut limit = window.count as usize;
            if self.policy.is_some() {
                if self.own[worker].store.len() < limit {
                    limit = limit.min(2 * self.batch());
                    self.stock(worker, limit);
                }
                limit = limit.min(self.own[worker].store.len());
            }
            for candidate in window.pages().skip(1) {
                if coming.len() >= limit {
                    break;
                }
                let known = self.numbered(candidate).map(|id| &self.pages[id]);
                if known.is_some_and(|page| page.frame.is_some()) || known.is_some_and(|p| p.used) != used {
                    continue;
                }
                let page = candidate << SHIFTS[self.pages[id].size];
                let other = self.id(page);
                let writable = self.writable(worker, other, false);
                coming.push((candidate, other, writable));
            }
        }
        coming.sort_unstable();
        let counts = &mut self.workers[worker].counts;
        counts.prefetched += coming.len() as u64 - 1;
        counts.major_faults += u64::from(used);
        counts.first_faults += u64::from(!used);
        if used {
            self.transfer(worker, (coming.len() * self.size().bytes()) as u64, 0);
        }
        for (_, came, writable) in coming {
            let mut frame = 0;
            if self.policy.is_some() {
                frame = self.own[worker].store.pop().unwrap();
                self.held.insert(frame, came);
            }
            let ready = self.clock[worker];
            let page = &mut self.pages[came];
            page.map.insert(worker);
            page.ever.insert(worker);
            (page.frame, page.present, page.unseen, page.ready) = (Some(frame), true, false, ready);
            (page.used, page.dirty, page.far_copy) = (true, writable, used);
            if writable && page.habit == Habit::Read {
                page.habit = Habit::Unknown;
            }
            let token = page.token.take();
            let token = if used { token } else { None };
            self.note(worker, Note::Arrived(frame, u32::from(came == id), token));
        }
    }

    fn stock(&mut self, worker: usize, need: usize) {
        if self.policy.is_none() {
            return;
        }
        while self.own[worker].store.len() < need {
            let begin = self.clock[worker];
            self.clock[worker] = begin.max(self.policy_free) + self.costs.policy_lock;
            self.policy_free = self.clock[worker];
            self.workers[worker].times.lock += self.clock[worker] - begin;
            self.refill(worker, need);
        }
        if self.own[worker].notes.len() >= 1024 - 256 {
            self.drain();
        }
    }

    fn refill(&mut self, worker: usize, need: usize) {
        self.drain();
        let had = self.own[worker].store.len();
        let want = self.batch().max(need - had).min(256 - had);
        if !self.free.is_empty() {
            for _ in 0..want {
                self.own[worker].store.extend(self.free.pop());
            }
            return;
        }
        let want = want.min(64);
        let mut victims: Vec<usize> = Vec::new();
        while victims.len() < want {
            let Some(frame) = self.policy.as_mut().unwrap().evict() else { break };
            victims.push(self.send_off(frame));
            if self.size() != PageSize::K4 {
                continue;
            }
            let number = self.number(*victims.last().unwrap());
            let (mut above, mut below) = (number + 1, number);
            while above % 16 != 0 && victims.len() < want && self.goes_too(above, &mut victims) {
                above += 1;
            }
            while below % 16 != 0 && victims.len() < want && self.goes_too(below - 1, &mut victims) {
                below -= 1;
            }
        }
        victims.sort_by_key(|&id| self.pages[id].first);
        let written = self.leave(worker, &victims);
        for id in victims {
            let frame = self.pages[id].frame.take().unwrap();
            self.held.remove(&frame);
            self.own[worker].store.push(frame);
        }
        self.transfer(worker, written, 1);
    }

    fn goes_too(&mut self, number: u64, victims: &mut Vec<usize>) -> bool {
        let frame = self.numbered(number).and_then(|id| self.pages[id].frame);
        let Some(frame) = frame.filter(|&f| self.policy.as_mut().unwrap().evict_also(f)) else {
            return false;
        };
        let id = self.send_off(frame);
        victims.push(id);
        true
    }

    fn send_off(&mut self, frame: u32) -> usize {
        let id = self.held[&frame];
        self.pages[id].token = Some(self.policy.as_ref().unwrap().token());
        if !self.pages[id].dirty {
            self.pages[id].habit = Habit::Read;
        }
        id
    }
}
