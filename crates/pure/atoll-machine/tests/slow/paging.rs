//! Faults, evictions, invalidations and the scan of the slow simulator.

use std::collections::BTreeSet;

use atoll_machine::{Happening, Pager, Tables};
use atoll_pages::{PageSize, Policy};

use super::{Page, SHIFTS, Slow};

impl Slow<'_> {
    pub(super) fn fault(&mut self, worker: usize, id: usize, write: bool) {
        if self.is_atoll() {
            return self.fault_as_atoll(worker, id, write);
        }
        let (first, number) = (!self.pages[id].used, self.pages[id].first);
        let major = self.pages[id].frame.is_none();
        self.log.push((self.clock[worker], Happening::Fault { worker, page: number, major, first }));
        self.clock[worker] += self.costs.entry;
        self.workers[worker].times.fault += self.costs.entry;
        let begin = self.clock[worker];
        let shared = self.setup.tables == Tables::Shared;
        let waiters = self.locked.iter().filter(|&&locked| locked > begin).count() as u64;
        if shared {
            self.clock[worker] = begin.max(self.table_free);
            self.locked[worker] = self.clock[worker];
        }
        if major {
            self.clock[worker] = self.clock[worker].max(self.policy_free) + self.costs.policy_lock;
            self.policy_free = self.clock[worker];
        }
        self.workers[worker].times.lock += self.clock[worker] - begin;
        let mut written = 0;
        if major {
            written = self.make_room(worker, PageSize::ALL[self.pages[id].size].bytes() as u64);
        }
        if shared {
            self.workers[worker].times.lock += self.costs.lock_waiter * waiters;
            self.clock[worker] += self.costs.lock_waiter * waiters;
            self.table_free = self.clock[worker];
        }
        let work = if major { self.costs.major } else { self.costs.minor };
        self.workers[worker].times.fault += work;
        self.clock[worker] += work;
        let counts = &mut self.workers[worker].counts;
        if !major {
            counts.minor_faults += 1;
            let wait = self.pages[id].ready.saturating_sub(self.clock[worker]);
            self.workers[worker].times.transfer += wait;
            self.clock[worker] += wait;
        } else {
            counts.first_faults += u64::from(first);
            counts.major_faults += u64::from(!first);
            self.transfer(worker, written, 1);
            let size = PageSize::ALL[self.pages[id].size].bytes() as u64;
            if !first {
                self.transfer(worker, size, 0);
            }
            self.pages[id].frame = Some(0);
            if self.policy.is_some() {
                let frame = self.free.pop().unwrap();
                self.held.insert(frame, id);
                self.bytes -= size;
                self.pages[id].frame = Some(frame);
            }
            self.pages[id].ready = self.clock[worker];
            self.pages[id].used = true;
            self.pages[id].dirty = false;
            self.pages[id].unseen = false;
        }
        self.pages[id].map.insert(worker);
        self.pages[id].present = true;
        let (frame, mappers) = (self.pages[id].frame.unwrap(), self.mappers(id));
        let token = if major { self.pages[id].token.take() } else { None };
        if let Some(policy) = &mut self.policy {
            match token {
                Some(token) => policy.insert_again(frame, mappers, token),
                None if major => policy.insert(frame, mappers),
                None => policy.mapped(frame, mappers),
            }
        }
    }

    pub(super) fn transfer(&mut self, worker: usize, bytes: u64, way: usize) {
        if bytes == 0 {
            return;
        }
        let set = &mut self.channels[if self.costs.duplex { way } else { 0 }];
        let channel = (0..set.len()).min_by_key(|&channel| set[channel]).unwrap();
        let end =
            set[channel].max(self.clock[worker] + self.costs.setup) + bytes * self.costs.kilobyte / 1024;
        set[channel] = end;
        self.workers[worker].times.transfer += end + self.costs.latency - self.clock[worker];
        self.clock[worker] = end + self.costs.latency;
    }

    pub(super) fn make_room(&mut self, worker: usize, need: u64) -> u64 {
        if self.policy.is_none() || (!self.free.is_empty() && self.bytes >= need) {
            return 0;
        }
        let Pager::Kernel { batch } = self.setup.pager else { unreachable!() };
        let mut victims = Vec::new();
        while victims.len() < batch as usize || self.free.is_empty() || self.bytes < need {
            let Some(frame) = self.policy.as_mut().unwrap().evict() else { break };
            let id = self.held.remove(&frame).unwrap();
            self.pages[id].token = Some(self.policy.as_ref().unwrap().token());
            self.pages[id].frame = None;
            self.free.push(frame);
            self.bytes += PageSize::ALL[self.pages[id].size].bytes() as u64;
            victims.push(id);
        }
        self.leave(worker, &victims)
    }

    pub(super) fn leave(&mut self, worker: usize, victims: &[usize]) -> u64 {
        let (mut written, mut targets) = (0, BTreeSet::new());
        for &id in victims {
            let (page, mut dirty) = (self.pages[id].first, self.pages[id].dirty);
            // Far memory never had the pages that atoll's pager made itself.
            dirty |= self.is_atoll() && !self.pages[id].far_copy;
            self.log.push((self.clock[worker], Happening::Eviction { worker, page, dirty }));
            self.workers[worker].counts.evictions += 1;
            if dirty {
                self.workers[worker].counts.written_back += 1;
                written += PageSize::ALL[self.pages[id].size].bytes() as u64;
            }
            let map = self.pages[id].map.clone();
            targets.extend(self.invalidate(Some(worker), self.clock[worker], (id, &map, true)));
            self.pages[id].map.clear();
            self.pages[id].present = false;
        }
        let (begin, asked) = (self.clock[worker], targets.len() as u64);
        let others = (0..self.setup.workers).filter(|&w| w != worker && self.sending[w] > begin).count();
        let others = (others + self.scan_sending.iter().filter(|&&until| until > begin).count()) as u64;
        let spent = self.sent(asked, victims.len() as u64, others);
        self.clock[worker] += spent;
        self.workers[worker].times.invalidation += spent;
        if asked > 0 {
            self.sending[worker] = self.clock[worker];
        }
        self.interrupt(&targets, victims.len() as u64);
        written
    }

    pub(super) fn sent(&self, targets: u64, pages: u64, others: u64) -> u64 {
        let c = &self.costs;
        let loops = if targets == 0 { 0 } else { c.rounds * (c.send + targets * c.per_target) };
        loops + loops * others * c.per_sender / 1024 + pages * c.page
    }

    pub(super) fn interrupt(&mut self, targets: &BTreeSet<usize>, pages: u64) {
        for &target in targets {
            self.workers[target].counts.interrupts += self.costs.rounds;
            self.debt[target] += self.costs.rounds * (self.costs.receive + pages * self.costs.page);
        }
    }

    /// Drops a page from TLBs; returns the workers that have to be interrupted.
    pub(super) fn invalidate(
        &mut self,
        by: Option<usize>,
        clock: u64,
        (id, of, unmaps): (usize, &BTreeSet<usize>, bool),
    ) -> BTreeSet<usize> {
        let first = self.pages[id].first;
        self.tlb_drop(id);
        self.pages[id].accessed.clear();
        let asked: BTreeSet<usize> = match self.setup.tables {
            Tables::Private => of.iter().copied().filter(|&w| Some(w) != by).collect(),
            Tables::Shared if !unmaps && of.is_empty() => BTreeSet::new(),
            Tables::Shared => (0..self.setup.workers).filter(|&w| Some(w) != by).collect(),
        };
        for &worker in &asked {
            self.workers[worker].counts.remote_invalidations += self.costs.rounds;
            self.log.push((clock, Happening::Invalidation { worker, page: first }));
        }
        asked
    }

    pub(super) fn tlb_drop(&mut self, id: usize) {
        let (first, size) = (self.pages[id].first, self.pages[id].size);
        let (list, hardware, _) = self.tlb_entry(size, first);
        let numbers = first >> SHIFTS[hardware]..(first + (1 << SHIFTS[size])) >> SHIFTS[hardware];
        for worker in self.pages[id].map.clone() {
            for &t in &list {
                for set in self.tlbs[worker][t].sets.values_mut() {
                    set.retain(|(h, n, _)| *h != hardware || !numbers.contains(n));
                }
            }
        }
    }

    pub(super) fn tick(&mut self) {
        let mut frames = Vec::new();
        self.drain();
        self.policy.as_mut().unwrap().scan(&mut |frame| frames.push(frame));
        let mut clocks = vec![self.next_tick; self.costs.scanners];
        for (turn, frame) in frames.into_iter().enumerate() {
            let scanner = turn % clocks.len();
            let mut clock = clocks[scanner];
            let id = self.held[&frame];
            if self.setup.tables == Tables::Shared {
                clock = clock.max(self.table_free);
            }
            let looks = self.costs.accessed_bit && !self.is_atoll();
            let of = if looks { &self.pages[id].accessed } else { &self.pages[id].map }.clone();
            let targets = self.invalidate(None, clock, (id, &of, !looks));
            if looks {
                self.pages[id].unseen = true;
            } else {
                self.pages[id].map.clear();
                self.pages[id].present = false;
            }
            let mut others = self.sending.iter().filter(|&&sending| sending > clock).count() as u64;
            for other in 0..clocks.len() {
                others += u64::from(other != scanner && self.scan_sending[other] > clock);
            }
            clock += self.sent(targets.len() as u64, 1, others);
            self.scan_sending[scanner] = clock;
            self.interrupt(&targets, 1);
            clocks[scanner] = clock;
        }
        let last = clocks.into_iter().max().unwrap();
        self.next_tick = (self.next_tick + self.costs.period).max(last);
    }

    pub(super) fn unmap(&mut self, first: u64, pages: u64) {
        self.mapped.remove(&first);
        let inside =
            |page: &Page| page.first >= first && page.first + (1 << SHIFTS[page.size]) <= first + pages;
        for id in 0..self.pages.len() {
            // A page that lost all its addresses to a larger one cannot be reached any more.
            if !inside(&self.pages[id]) || !self.owner.values().any(|&owner| owner == id) {
                continue;
            }
            self.tlb_drop(id);
            if self.is_atoll() && self.pages[id].frame.is_some() {
                self.drain();
            }
            self.pages[id].map.clear();
            self.pages[id].accessed.clear();
            let page = &mut self.pages[id];
            (page.present, page.used, page.dirty, page.token, page.last) = (false, false, false, None, None);
            (page.far_copy, page.habit) = (false, super::atoll::Habit::Read);
            if let (Some(frame), Some(policy)) = (page.frame.take(), &mut self.policy) {
                policy.remove(frame);
                self.held.remove(&frame);
                self.free.push(frame);
                self.bytes += PageSize::ALL[page.size].bytes() as u64;
            }
        }
    }

    pub(crate) fn distribution(&self) -> Vec<u64> {
        let most = self.pages.iter().map(|page| page.ever.len() + 1).max().unwrap_or(0);
        (0..most).map(|n| self.pages.iter().filter(|page| page.ever.len() == n).count() as u64).collect()
    }
}
