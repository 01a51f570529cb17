//! Faults: a worker's walk ended at a page that its page table lacks.
//!
//! Called by [`access`](super::access); [`evict`](super::evict) makes room. With private page tables the worker copies
//! another's entry, and only pages nobody has are fetched; with a shared one it holds the one lock while it looks the page up,
//! chooses the victim, changes the table and goes through the loop of interrupts (`papers/cmcp.txt`, section 2.3). Work that
//! concerns its page alone and transfers are outside of locks: others go on meanwhile.

use atoll_pages::{PageSize, Policy};

use super::{Decider, Engine};
use crate::pages::FAR;
use crate::setup::Tables;
use crate::watch::{Happening, Watch};

/// The direction of a transfer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Direction {
    /// To near memory.
    In = 0,
    /// To far memory.
    Out = 1,
}

impl<W: Watch> Engine<'_, W> {
    /// Brings page `id` and maps it for `worker`; returns the clock afterwards.
    #[inline(never)]
    pub(super) fn fault(&mut self, worker: usize, begin: u64, id: u32, write: bool) -> u64 {
        if self.is_atoll {
            return self.fault_as_atoll(worker, begin, id, write);
        }
        let page = &self.pages.all[id as usize];
        let (resident, first, ready) = (page.frame != FAR, !page.used, page.ready);
        let (number, size) = (page.first, PageSize::ALL[usize::from(page.size)]);
        self.watch.see(begin, Happening::Fault { worker, page: number, major: !resident, first });
        let mut clock = begin + self.costs.entry;
        self.workers[worker].times.fault += self.costs.entry;
        let waiters = self.lock_table(worker, &mut clock);
        let mut written = 0;
        if !resident {
            self.lock_policy(worker, &mut clock);
            written = self.make_room(worker, &mut clock, size);
        }
        self.unlock_table(worker, &mut clock, waiters);
        if resident {
            self.workers[worker].counts.minor_faults += 1;
            self.workers[worker].times.fault += self.costs.minor;
            clock += self.costs.minor;
            if ready > clock {
                self.workers[worker].times.transfer += ready - clock;
                clock = ready;
            }
            self.map(worker, id, false);
            return clock;
        }
        self.workers[worker].times.fault += self.costs.major;
        clock += self.costs.major;
        if written > 0 {
            self.transfer(worker, &mut clock, written, Direction::Out);
        }
        if first {
            self.workers[worker].counts.first_faults += 1;
        } else {
            self.workers[worker].counts.major_faults += 1;
            self.transfer(worker, &mut clock, size.bytes() as u64, Direction::In);
        }
        self.admit(id, size);
        let page = &mut self.pages.all[id as usize];
        (page.used, page.ready, page.dirty, page.unseen) = (true, clock, false, false);
        self.map(worker, id, true);
        clock
    }

    /// Gives page `id` a frame. There must be room.
    fn admit(&mut self, id: u32, size: PageSize) {
        let frame = match &self.decider {
            Decider::Policy(_) => {
                // `make_room` has made room; a page without a frame would only be fetched again.
                let Some(frame) = self.room.free.pop() else { return };
                self.room.held[frame as usize] = id;
                self.room.bytes -= size.bytes() as u64;
                frame
            }
            Decider::None | Decider::Min(_) => 0,
        };
        self.pages.all[id as usize].frame = frame;
    }

    /// Maps a resident page and tells the policy.
    fn map(&mut self, worker: usize, id: u32, arrived: bool) {
        self.pages.map(id, worker);
        let mappers = self.mappers(id);
        let page = &mut self.pages.all[id as usize];
        page.present = true;
        let (frame, token) = (page.frame, page.token.take_if(|_| arrived));
        if let Some(policy) = self.policy() {
            match (arrived, token) {
                (true, Some(token)) => policy.insert_again(frame, mappers, token),
                (true, None) => policy.insert(frame, mappers),
                (false, _) => policy.mapped(frame, mappers),
            }
        }
    }

    /// Whether `worker`'s page table has the page.
    #[inline]
    pub(super) fn is_mapped(&self, worker: usize, id: u32) -> bool {
        match self.tables {
            Tables::Private => self.pages.maps(id, worker),
            Tables::Shared => self.pages.all[id as usize].present,
        }
    }

    /// Returns the core-map count. A shared page table is one mapping, whichever workers use it.
    pub(super) fn mappers(&self, id: u32) -> u32 {
        match self.tables {
            Tables::Private => self.pages.count(id),
            Tables::Shared => 1,
        }
    }

    /// Notes the use of a page whose accessed bit was cleared: the hardware sets it again, and the policy learns of it.
    pub(super) fn seen(&mut self, id: u32) {
        self.pages.all[id as usize].unseen = false;
        let frame = self.pages.all[id as usize].frame;
        let mappers = self.mappers(id);
        if let Some(policy) = self.policy() {
            policy.mapped(frame, mappers);
        }
    }

    /// Takes the lock of a shared page table; returns the number of other workers that want it.
    fn lock_table(&mut self, worker: usize, clock: &mut u64) -> u64 {
        if self.tables == Tables::Private {
            return 0;
        }
        let begin = *clock;
        let waiters = self.at.iter().filter(|at| at.locked > begin).count() as u64;
        *clock = begin.max(self.table_free);
        self.at[worker].locked = *clock;
        self.workers[worker].times.lock += *clock - begin;
        waiters
    }

    fn unlock_table(&mut self, worker: usize, clock: &mut u64, waiters: u64) {
        if self.tables == Tables::Shared {
            let longer = self.costs.lock_waiter * waiters;
            self.workers[worker].times.lock += longer;
            *clock += longer;
            self.table_free = *clock;
        }
    }

    pub(super) fn lock_policy(&mut self, worker: usize, clock: &mut u64) {
        let begin = (*clock).max(self.policy_free);
        self.policy_free = begin + self.costs.policy_lock;
        self.workers[worker].times.lock += self.policy_free - *clock;
        *clock = self.policy_free;
    }

    /// Moves bytes over the channel that is free first.
    pub(super) fn transfer(&mut self, worker: usize, clock: &mut u64, bytes: u64, direction: Direction) {
        let set = if self.costs.duplex { direction as usize } else { 0 };
        let channels = &mut self.channels[set];
        let Some(free) = channels.iter_mut().min() else { return };
        // Setting up a transfer keeps the worker busy, and no channel.
        let end = (*clock + self.costs.setup).max(*free) + self.costs.moving(bytes);
        *free = end;
        self.workers[worker].times.transfer += end + self.costs.latency - *clock;
        *clock = end + self.costs.latency;
    }
}
