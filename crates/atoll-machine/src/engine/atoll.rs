//! Faults as `atoll run` resolves them: with the pages that their stream will want next, into frames that the worker keeps
//! ready.
//!
//! [`fault`](super::fault) and [`access`](super::access) call this in the place of the paper's kernel. It does what
//! `atoll-memory`'s pager does (`fault.rs`, `around.rs`, `evict.rs` and `room.rs` there), with the very same streams, policies
//! and numbers (`atoll_pages::pacing`), so that counts of both can be compared. Waiting for a page that another worker is
//! moving, and pages pinned for system calls, are not simulated.

use atoll_pages::pacing::{self, LOG, LOOK, STORE, VICTIMS};
use atoll_pages::{PageSize, Policy, Prefetcher, Window};

use super::fault::Way;
use super::{Decider, Engine};
use crate::engine::evict::Victim;
use crate::pages::{FAR, Habit};
use crate::setup::{Pager, Replacement, Setup};
use crate::watch::{Happening, Watch};

/// The pages of a block, in the type of pages' numbers.
const BLOCK: u64 = pacing::BLOCK as u64;

/// A note for the policy, which gets it when it is asked next.
#[derive(Debug, Clone, Copy)]
enum Note {
    /// A page arrived: its frame, its mappers, and the token with which it had left, if it had been there.
    Arrived(u32, u32, Option<u32>),
    /// One more worker maps a page: its frame and its mappers now.
    Mapped(u32, u32),
}

/// The state of a worker under atoll's pager.
#[derive(Debug)]
struct Own {
    streams: Prefetcher,
    store: Vec<u32>,
    notes: Vec<Note>,
    looks: u32,
}

/// A page that a fault brings.
#[derive(Debug, Clone, Copy)]
struct Coming {
    id: u32,
    first: u64,
    writable: bool,
}

/// The state of atoll's pager beside the page tables.
#[derive(Debug)]
pub(super) struct State {
    own: Vec<Own>,
    /// Marks that the policy has not heard of.
    pub(super) marks: Vec<u32>,
    /// The number of frames that a worker gets at once.
    batch: usize,
    /// The most pages that come at once.
    window: usize,
    /// Whether pages are mapped with their neighbours.
    around: bool,
}

impl State {
    pub(super) fn new(setup: &Setup, frames: Option<u64>) -> Self {
        let page = setup.page.smallest();
        let window = pacing::window(page.shift());
        let count = if setup.pager == Pager::Atoll { setup.workers } else { 0 };
        let own = || Own { streams: Prefetcher::new(window), store: Vec::new(), notes: Vec::new(), looks: 0 };
        // The paper's policies count exactly which workers use a page.
        let exact =
            matches!(setup.policy, Replacement::Policy(spec) if !matches!(spec.name(), "fifo" | "adaptive"));
        Self {
            own: std::iter::repeat_with(own).take(count).collect(),
            marks: Vec::new(),
            batch: pacing::batch(page.shift(), frames.unwrap_or(u64::MAX), setup.workers as u64),
            window: window as usize,
            around: page == PageSize::K4 && (frames.is_none() || !exact),
        }
    }
}

impl<W: Watch> Engine<'_, W> {
    /// Maps page `id` for `worker`, after bringing it if it is far; returns the clock afterwards.
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
            if page.habit == Habit::Read {
                page.habit = Habit::Unknown;
            }
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

    /// Makes a page writable that is mapped read-only and written; returns the clock afterwards.
    #[inline(never)]
    pub(super) fn allow_writes(&mut self, worker: usize, clock: u64, id: u32) -> u64 {
        let work = self.costs.entry + self.costs.minor;
        let page = &mut self.pages.all[id as usize];
        (page.dirty, page.habit) = (true, Habit::Written);
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
        let note = Note::Mapped(frame, self.mappers(id));
        self.note(worker, note);
    }

    /// Maps the near pages on both sides of `id` in its block that are equally clean or dirty.
    fn map_neighbours(&mut self, worker: usize, id: u32) {
        let page = &self.pages.all[id as usize];
        let (number, dirty) = (page.first, page.dirty);
        let block = number / BLOCK * BLOCK;
        let fits = |engine: &Self, number: u64| {
            let id = engine.index.get(number)?;
            let page = &engine.pages.all[id as usize];
            (page.frame != FAR && page.dirty == dirty && !engine.is_mapped(worker, id)).then_some(id)
        };
        let above = (number + 1..block + BLOCK).take_while(|&n| fits(self, n).is_some()).count() as u64;
        let below = (block..number).rev().take_while(|&n| fits(self, n).is_some()).count() as u64;
        for neighbour in (number + 1..=number + above).chain(number - below..number) {
            if let Some(id) = self.index.get(neighbour) {
                self.map_again(worker, id);
            }
        }
    }

    fn note(&mut self, worker: usize, note: Note) {
        if self.policy().is_none() {
            return;
        }
        if self.atoll.own[worker].notes.len() == LOG {
            self.drain_notes();
        }
        self.atoll.own[worker].notes.push(note);
    }

    /// Passes all notes of workers to the policy, each worker's in order.
    pub(super) fn drain_notes(&mut self) {
        let Decider::Policy(policy) = &mut self.decider else { return };
        for own in &mut self.atoll.own {
            for note in own.notes.drain(..) {
                match note {
                    Note::Arrived(frame, mappers, Some(token)) => policy.insert_again(frame, mappers, token),
                    Note::Arrived(frame, mappers, None) => policy.insert(frame, mappers),
                    Note::Mapped(frame, mappers) => policy.mapped(frame, mappers),
                }
            }
        }
        self.atoll.marks.drain(..).for_each(|mark| policy.mark(mark));
    }

    /// Brings page `id`, and the pages that its stream will want next.
    fn fetch(&mut self, worker: usize, clock: &mut u64, id: u32, write: bool) {
        let used = self.pages.all[id as usize].used;
        let number = self.pages.all[id as usize].first >> self.layout.shift;
        // Untouched pages are made ahead only within their block, as the rest may never be wanted.
        let within = match used {
            true => 0..=(crate::pages::MAX_PAGE >> self.layout.shift) - 1,
            false => number / BLOCK * BLOCK..=number / BLOCK * BLOCK + BLOCK - 1,
        };
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
            self.transfer(worker, clock, (coming.len() << self.page_shift()) as u64, Way::In);
        } else {
            counts.first_faults += 1;
        }
        for &Coming { id: came, writable, .. } in &coming {
            let frame = match self.decider {
                Decider::Policy(_) => match self.atoll.own[worker].store.pop() {
                    Some(frame) => frame,
                    // Other workers keep all frames ready: this page is fetched again at its next use.
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
            if writable && page.habit == Habit::Read {
                page.habit = Habit::Unknown;
            }
            let token = page.token.take().filter(|_| used);
            self.note(worker, Note::Arrived(frame, u32::from(came == id), token));
        }
    }

    fn page_shift(&self) -> u32 {
        self.layout.shift + 12
    }

    /// Whether the page is mapped writable at once.
    fn writable(&mut self, worker: usize, id: u32, write: bool) -> bool {
        let page = &self.pages.all[id as usize];
        if write || !page.used {
            return true;
        }
        let own = &mut self.atoll.own[worker];
        own.looks = own.looks.wrapping_add(1);
        page.habit == Habit::Written && !own.looks.is_multiple_of(LOOK)
    }

    /// Adds the other pages of the window that are far or untouched as the first one is, as far as there are frames.
    fn choose_window(&mut self, worker: usize, clock: &mut u64, window: &Window, coming: &mut Vec<Coming>) {
        let mut limit = self.atoll.window.min(window.count as usize);
        if self.policy().is_some() {
            if self.atoll.own[worker].store.len() < limit {
                limit = limit.min(2 * self.atoll.batch);
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

    /// Makes sure that `worker` has `need` frames ready, if there are that many.
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
        if self.atoll.own[worker].notes.len() >= LOG - STORE {
            self.drain_notes();
        }
    }

    /// Gets a batch of frames for `worker`: unused ones, else by eviction.
    fn refill(&mut self, worker: usize, clock: &mut u64, need: usize) {
        self.drain_notes();
        let had = self.atoll.own[worker].store.len();
        let want = self.atoll.batch.max(need - had).min(STORE - had);
        let unused = self.room.free.len().min(want);
        if unused > 0 {
            let taken = self.room.free.split_off(self.room.free.len() - unused);
            self.atoll.own[worker].store.extend(taken.into_iter().rev());
            return;
        }
        let mut victims = std::mem::take(&mut self.victims);
        victims.clear();
        while victims.len() < want.min(VICTIMS) {
            let Some(frame) = self.policy().and_then(Policy::evict) else { break };
            self.send_off(frame, &mut victims);
            if self.layout.shift == 0 {
                self.choose_neighbours(frame, want.min(VICTIMS), &mut victims);
            }
        }
        victims.sort_unstable_by_key(|victim| self.pages.all[victim.id as usize].first);
        let written = self.leave(worker, clock, &victims);
        for victim in &victims {
            let page = &mut self.pages.all[victim.id as usize];
            self.atoll.own[worker].store.push(page.frame);
            page.frame = FAR;
        }
        self.victims = victims;
        if written > 0 {
            self.transfer(worker, clock, written, Way::Out);
        }
    }

    /// Removes the page of `frame`, which the policy has given up.
    fn send_off(&mut self, frame: u32, victims: &mut Vec<Victim>) {
        let id = self.room.held[frame as usize];
        let token = self.policy().map(|policy| policy.token());
        let page = &mut self.pages.all[id as usize];
        page.token = token;
        if !page.dirty {
            page.habit = Habit::Read;
        }
        victims.push(Victim { id, dirty: page.dirty || !page.far_copy });
    }

    /// Adds the victim's neighbours in its block that the policy gives up as well.
    fn choose_neighbours(&mut self, frame: u32, most: usize, victims: &mut Vec<Victim>) {
        let number = self.pages.all[self.room.held[frame as usize] as usize].first;
        let block = number / BLOCK * BLOCK;
        let mut add = |neighbour: u64| -> bool {
            if victims.len() == most {
                return false;
            }
            let Some(id) = self.index.get(neighbour) else { return false };
            let frame = self.pages.all[id as usize].frame;
            if frame == FAR || !self.policy().is_some_and(|policy| policy.evict_also(frame)) {
                return false;
            }
            self.send_off(frame, victims);
            true
        };
        let _ = (number + 1..block + BLOCK).all(&mut add);
        let _ = (block..number).rev().all(&mut add);
    }

    /// Frees a near page that the program has given back.
    pub(super) fn release_as_atoll(&mut self, id: u32) {
        self.drain_notes();
        let frame = std::mem::replace(&mut self.pages.all[id as usize].frame, FAR);
        if let Some(policy) = self.policy() {
            policy.remove(frame);
            self.room.free.push(frame);
        }
    }
}
