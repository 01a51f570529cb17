//! The simulator: workers with virtual clocks, each with TLBs of its own, over one near memory.
//!
//! The engine takes events from `feed` in the order of the workers' clocks, asks `tlb` and `pages`, and drives a policy of
//! `atoll-pages` as `atoll-memory` does with real faults. `access` handles every event, `fault` pages that are not mapped, and
//! `evict` makes room. `atoll` does both as `atoll run` does them. `tick` is the policy's scan. Source: `papers/cmcp.txt`,
//! sections 2.3 and 5.
//!
//! Rules of time, all in whole picoseconds:
//! * The worker whose next event is due first goes next; of equal ones that with the lower number. Computing concerns
//!   nobody else, so it is done before a worker is asked when its next event is due.
//! * A fault takes effect on tables and near memory when it begins; its time passes after that. A page whose transfer is
//!   still under way is waited for.
//! * An interrupt's time is added to its target before the target goes on; at a barrier it costs nothing.
//! * Locks and channels are granted in the order of faults.

mod access;
mod atoll;
mod evict;
mod fault;
mod tick;

use atoll_pages::{AnyPolicy, OwnedStorage, Policy, Wants};
use atoll_record::trace::Event;

use crate::clocks::{self, Clocks, NEVER};
use crate::costs::Costs;
use crate::counts::{Outcome, Worker};
use crate::describe::Node;
use crate::feed::{Feed, UnknownWorker, WINDOW};
use crate::minimum::Minimum;
use crate::pages::{Index, Pages};
use crate::setup::{PageMode, Pager, Replacement, Setup, SetupError, Tables};
use crate::tlb::{Class, Tlbs};
use crate::watch::Watch;

/// The number of events taken into the queues at once: few enough that these stay in the host's nearest cache.
const PIECE: usize = 1024;

/// The reason why a trace cannot be simulated.
#[derive(thiserror::Error, Debug)]
pub enum RunError<E> {
    /// The trace cannot be read.
    #[error("{0}")]
    Source(E),
    /// The trace has more workers than its header says.
    #[error("the trace has an event of worker {worker}, but only {workers} workers")]
    Worker {
        /// The event's worker.
        worker: u16,
        /// The number of workers.
        workers: usize,
    },
    /// Five hours of simulated time are over.
    #[error("the simulated time is longer than five hours: simulate fewer iterations")]
    TooLong,
}

/// What decides which page leaves, with its state.
#[derive(Debug)]
enum Decider<'a> {
    Policy(Box<AnyPolicy<'a>>),
    None,
    Min(Box<Minimum>),
}

/// The frames of near memory.
#[derive(Debug)]
struct Room {
    /// The page in each frame.
    held: Vec<u32>,
    free: Vec<u32>,
    /// The number of bytes that no page takes.
    bytes: u64,
    /// The number of all frames; `None` without a limit.
    frames: Option<u64>,
}

/// The state of a worker.
#[derive(Debug, Clone, Copy, Default)]
struct At {
    clock: u64,
    /// The time of interrupts that was not yet added.
    debt: u64,
    /// The meeting that the worker waits at; 0 for none.
    meeting: u64,
    /// The time until which it sends invalidations.
    sending: u64,
    /// The time at which it gets, or got, the table lock.
    locked: u64,
}

/// How pages are found.
#[derive(Debug)]
struct Layout {
    mode: PageMode,
    /// The TLB class for pages of one size.
    class: Class,
    shift: u32,
    /// In mixed mode: mapped ranges of 4K pages, by their beginning.
    mapped: std::collections::BTreeMap<u64, u64>,
}

/// The memory a policy keeps its order in; lives longer than the engine.
#[derive(Debug)]
pub struct Memory {
    storage: Option<OwnedStorage>,
    frames: Option<u64>,
}

impl Memory {
    /// Makes the memory for one simulation of `setup`.
    ///
    /// # Errors
    /// The setup cannot be simulated.
    pub fn new(setup: &Setup) -> Result<Self, SetupError> {
        let workers = setup.workers;
        if !(1..=atoll_pages::MAX_WORKERS).contains(&workers) {
            return Err(SetupError::Workers(workers));
        }
        if setup.pager == (Pager::Kernel { batch: 0 }) {
            return Err(SetupError::Batch);
        }
        if setup.pager == Pager::Atoll
            && (setup.policy == Replacement::Min || !matches!(setup.page, PageMode::One(_)))
        {
            return Err(SetupError::Pager);
        }
        if setup.policy == Replacement::Min && setup.page == PageMode::Mixed {
            return Err(SetupError::MinMixed);
        }
        let near = if setup.page == PageMode::Segment || setup.policy == Replacement::None {
            None
        } else {
            setup.near
        };
        if let Some(near) = near
            && near < setup.page.largest().bytes() as u64
        {
            return Err(SetupError::Near { near, page: setup.page.largest().bytes() as u64 });
        }
        let frames = near.map(|near| near >> setup.page.smallest().shift());
        if let (Pager::Atoll, PageMode::One(page), Some(near), Some(frames)) =
            (setup.pager, setup.page, near, frames)
        {
            let least = u64::from(atoll_pages::pacing::least_frames(page.shift(), workers as u32));
            if frames < least {
                return Err(SetupError::Least { near, least: least << page.shift(), workers });
            }
        }
        let storage = match (setup.policy, frames) {
            (Replacement::Policy(spec), Some(frames)) => {
                let most = u64::from(u32::MAX - 4096);
                let frames = u32::try_from(frames).ok().filter(|&n| u64::from(n) < most);
                let frames = frames.ok_or(SetupError::Frames(near.unwrap_or(0)))?;
                Some(OwnedStorage::new(spec, frames))
            }
            _ => None,
        };
        Ok(Self { storage, frames })
    }
}

/// A simulation in progress.
#[derive(Debug)]
pub struct Engine<'a, W> {
    watch: W,
    costs: Costs,
    tables: Tables,
    /// The number of pages that the kernel's pager evicts at once.
    batch: u32,
    is_atoll: bool,
    /// The state of atoll's pager; without workers under the kernel's.
    atoll: atoll::State,
    layout: Layout,
    tlbs: Tlbs,
    index: Index,
    pages: Pages,
    room: Room,
    decider: Decider<'a>,
    feed: Feed,
    clocks: Clocks,
    at: Vec<At>,
    workers: Vec<Worker>,
    /// The time at which each channel is free: those to near memory, then those to far memory.
    channels: [Vec<u64>; 2],
    policy_free: u64,
    table_free: u64,
    next_tick: u64,
    /// The time until which each thread that shares the scan sends invalidations.
    scan_sending: Vec<u64>,
    scanned: u64,
    /// The number of workers that could go on, but have an empty queue.
    starving: usize,
    scratch: Vec<u64>,
    victims: Vec<evict::Victim>,
}

impl<'a, W: Watch> Engine<'a, W> {
    /// Makes a simulation of `setup` on `node` that has not begun. `memory` must be made for the same setup.
    ///
    /// # Errors
    /// The node cannot run the setup.
    pub fn new(node: &Node, setup: &Setup, memory: &'a mut Memory, watch: W) -> Result<Self, SetupError> {
        let costs = Costs::new(node, setup)?;
        let frames = memory.frames;
        let decider = match (setup.policy, &mut memory.storage) {
            (Replacement::Policy(_), Some(storage)) => Decider::Policy(Box::new(storage.policy())),
            (Replacement::Min, _) if frames.is_some() => {
                Decider::Min(Box::new(Minimum::new(frames.unwrap_or(1))))
            }
            _ => Decider::None,
        };
        let wants = match &decider {
            Decider::Policy(policy) => policy.wants(),
            Decider::None | Decider::Min(_) => Wants::NOTHING,
        };
        let limited = if matches!(decider, Decider::Policy(_)) { frames.unwrap_or(0) } else { 0 };
        let smallest = setup.page.smallest();
        let tlbs = Tlbs::new(node, setup.workers);
        let layout = Layout {
            mode: setup.page,
            class: tlbs.class(smallest),
            shift: smallest.shift() - 12,
            mapped: std::collections::BTreeMap::new(),
        };
        let pages = Pages::new(setup.workers);
        let scratch = vec![0; pages.words()];
        let channels = vec![0; costs.channels];
        let first_tick = if matches!(decider, Decider::Policy(_)) { costs.period } else { u64::MAX };
        Ok(Self {
            watch,
            tables: setup.tables,
            batch: if let Pager::Kernel { batch } = setup.pager { batch } else { 0 },
            is_atoll: setup.pager == Pager::Atoll,
            atoll: atoll::State::new(setup, frames, wants),
            layout,
            tlbs,
            index: Index::default(),
            pages,
            room: Room {
                held: vec![0; limited as usize],
                free: (0..limited as u32).rev().collect(),
                bytes: limited << smallest.shift(),
                frames,
            },
            decider,
            feed: Feed::new(setup.workers),
            clocks: Clocks::new(setup.workers),
            at: vec![At::default(); setup.workers],
            workers: vec![Worker::default(); setup.workers],
            channels: [channels.clone(), channels],
            policy_free: 0,
            table_free: 0,
            next_tick: first_tick,
            scan_sending: vec![0; costs.scanners],
            scanned: 0,
            starving: setup.workers,
            scratch,
            victims: Vec::new(),
            costs,
        })
    }

    /// Simulates a trace, or one more, up to its end. `next` adds the next events and says whether there were any.
    ///
    /// # Errors
    /// `next` fails, or the trace does not fit this setup.
    pub fn run<E>(
        &mut self,
        mut next: impl FnMut(&mut Vec<Event>) -> Result<bool, E>,
    ) -> Result<(), RunError<E>> {
        let (mut events, mut taken) = (Vec::new(), 0);
        let mut over = false;
        loop {
            while !over && self.feed.held < WINDOW && (self.starving > 0 || self.feed.is_undecided()) {
                if taken == events.len() {
                    events.clear();
                    taken = 0;
                    over = !next(&mut events).map_err(RunError::Source)?;
                }
                let piece = taken..(taken + PIECE).min(events.len());
                taken = piece.end;
                self.take(&events[piece])?;
                if over {
                    self.finish();
                }
            }
            match self.clocks.least() {
                Some(worker) => self.turn(worker),
                // The window is full, and everything in it is behind a meeting, which has lasted long enough.
                None => match self.feed.close() {
                    Some(number) => self.meet(number),
                    None => break,
                },
            }
        }
        match self.at.iter().any(|at| at.clock > clocks::LATEST) {
            true => Err(RunError::TooLong),
            false => Ok(()),
        }
    }

    fn take<E>(&mut self, events: &[Event]) -> Result<(), RunError<E>> {
        for event in events {
            let (worker, closed) = self
                .feed
                .push(event)
                .map_err(|UnknownWorker(worker)| RunError::Worker { worker, workers: self.workers.len() })?;
            if self.clocks.get(worker) == NEVER {
                self.ready_if_fed(worker);
            }
            if let Some(number) = closed {
                self.meet(number);
            }
        }
        Ok(())
    }

    /// Ends the trace: no other worker comes to the open meeting, and nothing is put off any more.
    fn finish(&mut self) {
        self.feed.finish();
        for worker in 0..self.at.len() {
            self.ready_if_fed(worker);
        }
        if let Some(number) = self.feed.close() {
            self.meet(number);
        }
    }

    /// Lets a worker go on if it has something to do and waits for nothing.
    fn ready_if_fed(&mut self, worker: usize) {
        let at = &self.at[worker];
        if at.meeting == 0 && self.feed.queues[worker].left() > 0 && self.clocks.get(worker) == NEVER {
            self.starving -= 1;
            self.go_on(worker);
        }
    }

    /// Lets all workers go on if all have come to a meeting.
    fn meet(&mut self, number: u64) {
        let Some(latest) = self.feed.over(number) else { return };
        for worker in 0..self.at.len() {
            let at = &mut self.at[worker];
            if at.meeting != number {
                continue;
            }
            at.meeting = 0;
            self.workers[worker].times.idle += latest - at.clock;
            at.clock = latest;
            // Interrupts while it waited cost it nothing.
            at.debt = 0;
            self.starving += 1;
            self.ready_if_fed(worker);
        }
    }

    /// Returns the counts so far.
    pub fn outcome(&self) -> Outcome {
        Outcome {
            workers: self.workers.clone(),
            elapsed: self.at.iter().map(|at| at.clock).max().unwrap_or(0),
            scanned: self.scanned,
            distribution: self.pages.distribution(),
            frames: self.room.frames,
            settled: false,
        }
    }

    /// Returns the observer.
    pub fn watched(self) -> W {
        self.watch
    }

    /// Returns the policy, if one decides.
    fn policy(&mut self) -> Option<&mut AnyPolicy<'a>> {
        match &mut self.decider {
            Decider::Policy(policy) => Some(policy),
            Decider::None | Decider::Min(_) => None,
        }
    }

    fn mark(&mut self, id: u32) {
        if self.is_atoll {
            self.atoll.marks.push(id);
        } else if let Some(policy) = self.policy() {
            policy.mark(id);
        }
    }
}
