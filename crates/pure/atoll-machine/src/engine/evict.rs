//! Evictions: the policy names victims, and every worker that may have them in its TLB is interrupted.
//!
//! [`fault`](super::fault) calls this. With private page tables the workers interrupted are the members of the victims' core
//! maps, with a shared one all other workers (`papers/cmcp.txt`, section 2.3). Victims of a batch leave by one interrupt a
//! target.

use atoll_pages::{CoreSet, PageSize, Policy};

use super::Engine;
use super::fault::Direction;
use crate::pages::{FAR, members};
use crate::setup::Tables;
use crate::watch::{Happening, Watch};

/// A page that leaves near memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Victim {
    pub(super) id: u32,
    /// Whether it is to be written back.
    pub(super) dirty: bool,
}

/// The sender of invalidations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    Worker(usize),
    /// One of the hardware threads that share the scan.
    Scanner(usize),
}

impl<W: Watch> Engine<'_, W> {
    /// Evicts until a page of `size` has room, and then up to the batch; returns the bytes to be written back.
    pub(super) fn make_room(&mut self, worker: usize, clock: &mut u64, size: PageSize) -> u64 {
        let need = size.bytes() as u64;
        let lacks = |engine: &Self| engine.room.free.is_empty() || engine.room.bytes < need;
        if self.policy().is_none() || !lacks(self) {
            return 0;
        }
        let mut victims = std::mem::take(&mut self.victims);
        victims.clear();
        while (victims.len() as u32) < self.batch || lacks(self) {
            let Some((frame, token)) =
                self.policy().and_then(|policy| Some((policy.evict()?, policy.token())))
            else {
                break;
            };
            let id = self.room.held[frame as usize];
            self.pages.all[id as usize].token = Some(token);
            victims.push(Victim { id, dirty: self.pages.all[id as usize].dirty });
            self.give_back(id);
        }
        let written = self.leave(worker, clock, &victims);
        self.victims = victims;
        written
    }

    /// Evicts page `id` under MIN. It has left since its last use, at an unknown time, so `worker`, which uses it, pays.
    pub(super) fn lose(&mut self, worker: usize, mut clock: u64, id: u32) -> u64 {
        let dirty = self.pages.all[id as usize].dirty;
        self.pages.all[id as usize].frame = FAR;
        let written = self.leave(worker, &mut clock, &[Victim { id, dirty }]);
        if written > 0 {
            self.transfer(worker, &mut clock, written, Direction::Out);
        }
        clock
    }

    /// Unmaps victims that no longer have a frame; returns the bytes to be written back.
    pub(super) fn leave(&mut self, worker: usize, clock: &mut u64, victims: &[Victim]) -> u64 {
        let mut targets = CoreSet::new();
        let mut written = 0;
        let counts = &mut self.workers[worker].counts;
        counts.evictions += victims.len() as u64;
        for &Victim { id, dirty } in victims {
            let page = &self.pages.all[id as usize];
            self.watch.see(*clock, Happening::Eviction { worker, page: page.first, dirty });
            if dirty {
                self.workers[worker].counts.written_back += 1;
                written += PageSize::ALL[usize::from(page.size)].bytes() as u64;
            }
            self.invalidate(Some(worker), *clock, id, &mut targets, true);
        }
        self.interrupt(Sender::Worker(worker), clock, &targets, victims.len() as u64);
        written
    }

    /// Drops page `id` from the TLBs of all workers that map it, and adds the workers that `by` has to interrupt for that to
    /// `targets`. With `unmap` they no longer map it, either. Without, their accessed bits are cleared, and only those are interrupted
    /// that had it set: no other can have the page in its TLB.
    pub(super) fn invalidate(
        &mut self,
        by: Option<usize>,
        clock: u64,
        id: u32,
        targets: &mut CoreSet,
        unmap: bool,
    ) {
        let mut map = std::mem::take(&mut self.scratch);
        if unmap {
            self.pages.take_map(id, &mut map);
        } else {
            self.pages.take_accessed(id, &mut map);
        }
        let page = &mut self.pages.all[id as usize];
        let (first, class) = (page.first, self.tlbs.class(PageSize::ALL[usize::from(page.size)]));
        page.present &= !unmap;
        for member in members(&map) {
            self.tlbs.invalidate(member, class, first);
        }
        let rounds = self.costs.rounds;
        let mut ask = |worker: usize| {
            if Some(worker) != by {
                targets.insert(worker);
                self.workers[worker].counts.remote_invalidations += rounds;
                self.watch.see(clock, Happening::Invalidation { worker, page: first });
            }
        };
        match self.tables {
            Tables::Private => members(&map).for_each(&mut ask),
            // It is not known which workers have it, and nobody has where the one accessed bit is clear.
            Tables::Shared if !unmap && map.iter().all(|word| *word == 0) => {}
            Tables::Shared => (0..self.at.len()).for_each(&mut ask),
        }
        self.scratch = map;
    }

    /// Interrupts `targets` for `pages` pages and waits for their answers.
    pub(super) fn interrupt(&mut self, by: Sender, clock: &mut u64, targets: &CoreSet, pages: u64) {
        let asked = u64::from(targets.count());
        let begin = *clock;
        let others = if asked == 0 {
            0
        } else {
            let workers = self.at.iter().map(|at| at.sending).enumerate();
            let workers = workers.map(|(worker, until)| (Sender::Worker(worker), until));
            let scanners = self.scan_sending.iter().copied().enumerate();
            let scanners = scanners.map(|(scanner, until)| (Sender::Scanner(scanner), until));
            workers.chain(scanners).filter(|&(sender, until)| sender != by && until > begin).count() as u64
        };
        *clock += self.costs.sending(asked, pages, others);
        match by {
            Sender::Worker(worker) => {
                self.workers[worker].times.invalidation += *clock - begin;
                if asked > 0 {
                    self.at[worker].sending = *clock;
                }
            }
            Sender::Scanner(scanner) => self.scan_sending[scanner] = *clock,
        }
        let cost = self.costs.receiving(pages);
        for target in targets.iter() {
            self.workers[target].counts.interrupts += self.costs.rounds;
            self.at[target].debt += cost;
        }
    }

    /// Frees a page's frame and tells its policy.
    pub(super) fn release(&mut self, id: u32) {
        if self.is_atoll {
            return self.release_as_atoll(id);
        }
        let frame = self.pages.all[id as usize].frame;
        if let Some(policy) = self.policy() {
            policy.remove(frame);
            self.give_back(id);
        }
        self.pages.all[id as usize].frame = FAR;
    }

    fn give_back(&mut self, id: u32) {
        let page = &mut self.pages.all[id as usize];
        self.room.free.push(page.frame);
        self.room.bytes += PageSize::ALL[usize::from(page.size)].bytes() as u64;
        page.frame = FAR;
    }

    /// Unmaps a page that is gone. That costs nothing here, as the program and not paging caused it.
    pub(super) fn unmap_everywhere(&mut self, id: u32) {
        let mut map = std::mem::take(&mut self.scratch);
        self.pages.take_map(id, &mut map);
        let page = &mut self.pages.all[id as usize];
        page.present = false;
        let (first, class) = (page.first, self.tlbs.class(PageSize::ALL[usize::from(page.size)]));
        for member in members(&map) {
            self.tlbs.invalidate(member, class, first);
        }
        self.scratch = map;
    }
}
