//! Faults as `atoll run` resolves them: with what their stream will want next, for frames the worker has in store.
//!
//! Called by [`fault`](super::fault) and [`access`](super::access) in the place of the paper's kernel. It does what
//! `atoll-memory`'s pager does (`fault.rs`, `around.rs`, `evict.rs` and `room.rs` there): what is decided is decided by the same code
//! of `atoll-pages`, so that counts of both can be compared. Not simulated: waiting for a page that another worker is moving, pages
//! pinned for system calls, and victims that are chosen ahead of need.

use atoll_pages::pacing::{self, LOG};
use atoll_pages::victims::{self, Near};
use atoll_pages::{Event, Guesses, Policy, Prefetcher, Wants, Window, neighbours};

use super::fault::Direction;
use super::{Decider, Engine};
use crate::engine::evict::Victim;
use crate::pages::{FAR, Index, Pages};
use crate::setup::{Pager, Setup, Tables};
use crate::watch::{Happening, Watch};

/// What a worker has for itself.
#[derive(Debug)]
struct Own {
    streams: Prefetcher,
    store: Vec<u32>,
    /// What the policy hears of when it is asked next.
    notes: Vec<Event>,
    guesses: Guesses,
}

/// A page that one fault brings.
#[derive(Debug, Clone, Copy)]
struct Coming {
    id: u32,
    first: u64,
    writable: bool,
}

/// What atoll's pager keeps beside the tables.
#[derive(Debug)]
pub(super) struct State {
    own: Vec<Own>,
    /// Marks the policy has not heard of.
    pub(super) marks: Vec<u32>,
    /// Frames a worker gets at once.
    batch: usize,
    /// Pages that come at once at most, and those for which room has to be made.
    window: usize,
    worth_evicting: usize,
    /// Are pages mapped with their neighbours?
    around: bool,
}

impl State {
    /// For near memory of so many frames, if it is limited; `wants`: what the policy wants of a pager.
    pub(super) fn new(setup: &Setup, frames: Option<u64>, wants: Wants) -> Self {
        let page = setup.page.smallest();
        let window = pacing::window(page.shift());
        let count = if setup.pager == Pager::Atoll { setup.workers } else { 0 };
        let near = setup.near.map_or(u64::MAX, |near| near / page.bytes() as u64);
        let own = || Own {
            streams: Prefetcher::new(window, near),
            store: Vec::new(),
            notes: Vec::new(),
            guesses: Guesses::default(),
        };
        let (frames_or_all, workers) = (frames.unwrap_or(u64::MAX), setup.workers as u64);
        let batch = pacing::batch(page.shift(), frames_or_all, workers);
        Self {
            own: std::iter::repeat_with(own).take(count).collect(),
            marks: Vec::new(),
            batch,
            window: window as usize,
            worth_evicting: pacing::worth_evicting(batch, frames_or_all, workers),
            around: neighbours::are_mapped_together(page.shift(), frames.is_some(), false, wants),
        }
    }
}

impl<W: Watch> Engine<'_, W> {
    /// Maps page `id` for `worker`, and brings it first if it is far; returns the clock afterwards.
    #[inline(never)]
    pub(super) fn fault_as_atoll(&mut self, worker: usize, begin: u64, id: u32, write: bool) -> u64 {
        let page = &self.pages.all[id as usize];
        let (resident, first, number) = (page.frame != FAR, !page.used, page.first);
        self.watch.see(begin, Happening::Fault { worker, page: number, major: !resident, first });
        let work = self.costs.entry + if resident { self.costs.minor } else { self.costs.major };
        self.workers[worker].times.fault += work;
        let mut clock = begin + work;
        if !resident {
            self.fetch(worker, &mut clock, id, write);
            return clock;
        }
        self.workers[worker].counts.minor_faults += 1;
        let page = &mut self.pages.all[id as usize];
        if write {
            page.dirty = true;
            page.habit = page.habit.written(false);
        }
        let ready = page.ready;
        if ready > clock {
            self.workers[worker].times.transfer += ready - clock;
            clock = ready;
        }
        if self.atoll.around {
            self.map_neighbours(worker, id);
        }
        self.map_again(worker, id);
        clock
    }

    /// The page is mapped read-only, and written; returns the clock afterwards.
    #[inline(never)]
    pub(super) fn allow_writes(&mut self, worker: usize, clock: u64, id: u32) -> u64 {
        let work = self.costs.entry + self.costs.minor;
        let page = &mut self.pages.all[id as usize];
        (page.dirty, page.habit) = (true, page.habit.written(true));
        self.workers[worker].counts.write_faults += 1;
        self.workers[worker].times.fault += work;
        clock + work
    }

    /// Maps a page that is near.
    fn map_again(&mut self, worker: usize, id: u32) {
        self.pages.map(id, worker);
        let page = &mut self.pages.all[id as usize];
        page.present = true;
        let frame = page.frame;
        let event = Event::Mapped(frame, self.mappers(id));
        self.note(worker, event);
    }

    /// Maps the other near pages of the block of `id`.
    fn map_neighbours(&mut self, worker: usize, id: u32) {
        let number = self.pages.all[id as usize].first;
        for neighbour in neighbours::block(number).filter(|&neighbour| neighbour != number) {
            if let Some(id) = self.index.get(neighbour)
                && self.pages.all[id as usize].frame != FAR
                && !self.is_mapped(worker, id)
            {
                self.map_again(worker, id);
            }
        }
    }

    fn note(&mut self, worker: usize, event: Event) {
        if self.policy().is_none() {
            return;
        }
        if self.atoll.own[worker].notes.len() == LOG {
            self.drain_notes();
        }
        self.atoll.own[worker].notes.push(event);
    }

    /// Tells the policy all that workers noted, each worker's in order.
    pub(super) fn drain_notes(&mut self) {
        let Decider::Policy(policy) = &mut self.decider else { return };
        for own in &mut self.atoll.own {
            own.notes.drain(..).for_each(|event| event.tell(policy.as_mut()));
        }
        self.atoll.marks.drain(..).for_each(|mark| policy.mark(mark));
    }

    /// Brings page `id`, and what its stream will want next.
    fn fetch(&mut self, worker: usize, clock: &mut u64, id: u32, write: bool) {
        let used = self.pages.all[id as usize].used;
        let number = self.pages.all[id as usize].first >> self.layout.shift;
        let last = (crate::pages::MAX_PAGE >> self.layout.shift) - 1;
        let within = pacing::worth_fetching(number, !used, last);
        let window = self.atoll.own[worker].streams.fault(number, within);
        self.stock(worker, clock, 1);
        let writable = self.writable(worker, id, write);
        let mut coming = vec![Coming { id, first: self.pages.all[id as usize].first, writable }];
        if window.count > 1 {
            self.choose_window(worker, clock, &window, &mut coming);
        }
        coming.sort_unstable_by_key(|page| page.first);
        let counts = &mut self.workers[worker].counts;
        counts.prefetched += coming.len() as u64 - 1;
        if used {
            counts.major_faults += 1;
            self.transfer(worker, clock, (coming.len() << self.page_shift()) as u64, Direction::In);
        } else {
            counts.first_faults += 1;
        }
        for &Coming { id: came, writable, .. } in &coming {
            let frame = match self.decider {
                Decider::Policy(_) => match self.atoll.own[worker].store.pop() {
                    Some(frame) => frame,
                    // Others have all frames in store: it is fetched again at its next use.
                    None => continue,
                },
                Decider::None | Decider::Min(_) => 0,
            };
            if let Some(held) = self.room.held.get_mut(frame as usize) {
                *held = came;
            }
            self.pages.map(came, worker);
            let page = &mut self.pages.all[came as usize];
            (page.frame, page.present, page.unseen, page.ready) = (frame, true, false, *clock);
            (page.used, page.dirty, page.far_copy) = (true, writable, used);
            if writable {
                page.habit = page.habit.mapped_writable();
            }
            let token = page.token.take().filter(|_| used);
            self.note(worker, Event::arrived(frame, came == id, token));
        }
    }

    fn page_shift(&self) -> u32 {
        self.layout.shift + 12
    }

    /// Is the page mapped writable at once?
    fn writable(&mut self, worker: usize, id: u32, write: bool) -> bool {
        let page = &self.pages.all[id as usize];
        self.atoll.own[worker].guesses.is_writable(write, !page.used, page.habit)
    }

    /// Adds the other pages of the window that are far as the first is, or untouched as it is, as far as there are frames.
    fn choose_window(&mut self, worker: usize, clock: &mut u64, window: &Window, coming: &mut Vec<Coming>) {
        let mut limit = self.atoll.window.min(window.count as usize);
        if self.policy().is_some() {
            if self.atoll.own[worker].store.len() < limit {
                limit = limit.min(self.atoll.worth_evicting);
                self.stock(worker, clock, limit);
            }
            limit = limit.min(self.atoll.own[worker].store.len());
        }
        let used = self.pages.all[coming[0].id as usize].used;
        for candidate in window.pages().skip(1) {
            if coming.len() >= limit {
                break;
            }
            let known = self.index.get(candidate);
            let its = known.map(|id| &self.pages.all[id as usize]);
            if its.is_some_and(|page| page.frame != FAR) || its.is_some_and(|page| page.used) != used {
                continue;
            }
            let id = self.page_id(candidate << self.layout.shift);
            let writable = self.writable(worker, id, false);
            coming.push(Coming { id, first: candidate << self.layout.shift, writable });
        }
    }

    /// Sees to it that `worker` has `need` frames in store, if there are so many.
    fn stock(&mut self, worker: usize, clock: &mut u64, need: usize) {
        if self.policy().is_none() {
            return;
        }
        while self.atoll.own[worker].store.len() < need {
            let had = self.atoll.own[worker].store.len();
            self.lock_policy(worker, clock);
            self.refill(worker, clock, need);
            if self.atoll.own[worker].store.len() == had {
                break;
            }
        }
        if pacing::is_nearly_full(self.atoll.own[worker].notes.len()) {
            self.drain_notes();
        }
    }

    /// A batch of frames for `worker`: unused ones, else by eviction.
    fn refill(&mut self, worker: usize, clock: &mut u64, need: usize) {
        self.drain_notes();
        let had = self.atoll.own[worker].store.len();
        let want = pacing::refill(self.atoll.batch, need, had);
        let unused = self.room.free.len().min(want);
        if unused > 0 {
            let taken = self.room.free.split_off(self.room.free.len() - unused);
            self.atoll.own[worker].store.extend(taken.into_iter().rev());
            return;
        }
        let mut chosen = std::mem::take(&mut self.victims);
        chosen.clear();
        if let Decider::Policy(policy) = &mut self.decider {
            let mut near = Leaving {
                pages: &mut self.pages,
                index: &self.index,
                held: &self.room.held,
                shift: self.layout.shift,
                tables: self.tables,
                victims: &mut chosen,
            };
            let most = pacing::victims(want, 0, had);
            victims::choose(policy.as_mut(), &mut near, most, self.layout.shift == 0);
        }
        chosen.sort_unstable_by_key(|victim| self.pages.all[victim.id as usize].first);
        let written = self.leave(worker, clock, &chosen);
        for victim in &chosen {
            let page = &mut self.pages.all[victim.id as usize];
            self.atoll.own[worker].store.push(page.frame);
            page.frame = FAR;
        }
        self.victims = chosen;
        if written > 0 {
            self.transfer(worker, clock, written, Direction::Out);
        }
    }

    /// The program has given a near page back.
    pub(super) fn release_as_atoll(&mut self, id: u32) {
        self.drain_notes();
        let frame = std::mem::replace(&mut self.pages.all[id as usize].frame, FAR);
        if let Some(policy) = self.policy() {
            policy.remove(frame);
            self.room.free.push(frame);
        }
    }
}

/// The resident pages, as victims are chosen among them. Nobody ever has one in use.
struct Leaving<'e> {
    pages: &'e mut Pages,
    index: &'e Index,
    /// The page in each frame.
    held: &'e [u32],
    shift: u32,
    tables: Tables,
    victims: &'e mut Vec<Victim>,
}

impl Near for Leaving<'_> {
    fn page_in(&self, frame: u32) -> u64 {
        self.pages.all[self.held[frame as usize] as usize].first >> self.shift
    }

    fn frame_of(&self, page: u64) -> Option<u32> {
        let frame = self.pages.all[self.index.get(page)? as usize].frame;
        (frame != FAR).then_some(frame)
    }

    fn take(&mut self, _page: u64, frame: u32, token: u32) -> bool {
        let id = self.held[frame as usize];
        let page = &mut self.pages.all[id as usize];
        page.token = Some(token);
        page.habit = page.habit.leaving(page.dirty);
        self.victims.push(Victim { id, dirty: page.dirty || !page.far_copy });
        true
    }

    fn mappers(&self, frame: u32) -> u32 {
        match self.tables {
            Tables::Private => self.pages.count(self.held[frame as usize]),
            Tables::Shared => 1,
        }
    }
}
