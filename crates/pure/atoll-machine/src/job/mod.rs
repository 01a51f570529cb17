//! Simulates one program on several nodes that share no memory: what keeping its pages coherent costs.
//!
//! It drives the agents of `atoll-coherence`, the very code that ships, with a trace's accesses. [`engine`](crate::engine)
//! beside it simulates one node's TLBs and near memory. `network` carries the agents' messages, `pages` stands for the memory
//! they protect, and `regions` decides modes and plans. Source: `papers/popcorn-dsm.txt`, sections 3 to 5.
//!
//! Rules of time, in picoseconds:
//! * The worker whose next event is due first goes next, as in the engine. Workers of a node share its pages.
//! * A fault's messages run to their end before another worker goes on; two faults wait for each other where their messages
//!   want the same link, and nowhere else.
//! * A link carries one message after the other; each arrives a latency after its last byte left.
//! * A barrier ends at a node when its agent says so.

mod counts;
mod network;
mod pages;
mod regions;

use atoll_coherence::agent::{Agent, Fault, Layout, Mode};
use atoll_coherence::copy::State;
use atoll_coherence::{Impossible, nodes};
use atoll_record::trace::Event;

pub use self::counts::{Job, JobOutcome, RegionOutcome};
use self::network::Network;
use self::pages::Shadow;
use self::regions::Regions;
use crate::clocks::{self, Clocks, NEVER};
use crate::describe::Machine;
use crate::engine::RunError;
use crate::feed::{self, Feed, UnknownWorker, WINDOW};

/// The protocol that regions run under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// One writer at a time, everywhere.
    Sc,
    /// Many writers in every region.
    Mw,
    /// Many writers where that pays.
    Smart,
}

/// The parameters of a simulated job.
#[derive(Debug, Clone, Copy)]
pub struct JobSetup {
    /// The number of workers of the trace; they are spread over the nodes in equal stretches.
    pub workers: usize,
    /// The number of nodes: 1 to 64, and at most as many as workers. They are the machine's; its last one is repeated.
    pub nodes: u8,
    /// The protocol.
    pub consistency: Consistency,
    /// Whether pages are fetched at a region's entry that faulted in an earlier run.
    pub prefetch: bool,
    /// The number of 4K pages in a row with the same home; 0: the origin is the home of all pages.
    pub stretch: u64,
}

/// The reason why a job cannot be simulated.
#[derive(thiserror::Error, Debug)]
pub enum JobError<E> {
    /// The number of nodes is not possible.
    #[error("{nodes} nodes for {workers} workers: choose from 1 to 64, and no more than workers")]
    Nodes {
        /// The number of nodes asked for.
        nodes: u8,
        /// The number of the trace's workers.
        workers: usize,
    },
    /// The trace cannot be simulated.
    #[error("{0}")]
    Run(#[from] RunError<E>),
    /// The protocol is broken, and so is this program.
    #[error("{0}; please report this trace")]
    Protocol(#[from] Impossible),
}

/// A simulated node.
struct Place {
    agent: Agent<(), ()>,
    shadow: Shadow,
    /// The picoseconds of an instruction.
    instruction: f64,
    /// The picoseconds of a fault on this node, without the work of others.
    fault: u64,
}

/// The state of a worker.
#[derive(Clone, Copy, Default)]
struct At {
    clock: u64,
    /// The meeting that the worker waits at; 0 for none.
    meeting: u64,
}

/// A simulation in progress.
pub struct Simulation {
    setup: JobSetup,
    places: Vec<Place>,
    network: Network,
    regions: Regions,
    feed: Feed,
    clocks: Clocks,
    at: Vec<At>,
    starving: usize,
    job: Job,
}

impl Simulation {
    /// Makes a simulation that has not begun.
    ///
    /// # Errors
    /// The setup is not possible for this number of workers.
    pub fn new<E>(machine: &Machine, setup: JobSetup) -> Result<Self, JobError<E>> {
        let JobSetup { workers, nodes, .. } = setup;
        if nodes == 0 || usize::from(nodes) > nodes::MOST || usize::from(nodes) > workers {
            return Err(JobError::Nodes { nodes, workers });
        }
        let layout = Layout::new(nodes, 0, setup.stretch);
        let place = |number: u8| {
            let node = &machine.nodes[usize::from(number).min(machine.nodes.len() - 1)];
            Place {
                agent: Agent::new(number, layout),
                shadow: Shadow::default(),
                instruction: 1e6 / *node.cores.clock_mhz * *node.cores.cycles_per_instruction,
                fault: ((*node.fault.entry_ns + *node.fault.minor_ns) * 1e3) as u64,
            }
        };
        Ok(Self {
            places: (0..nodes).map(place).collect(),
            network: Network::new(machine, nodes),
            regions: Regions::new(setup.consistency, setup.prefetch, workers, nodes),
            feed: Feed::new(workers),
            clocks: Clocks::new(workers),
            at: vec![At::default(); workers],
            starving: workers,
            job: Job::default(),
            setup,
        })
    }

    /// Simulates a trace up to its end. `next` adds the next events and says whether there were any.
    ///
    /// # Errors
    /// `next` fails, or the trace has more workers than the setup.
    pub fn run<E>(
        &mut self,
        mut next: impl FnMut(&mut Vec<Event>) -> Result<bool, E>,
    ) -> Result<(), JobError<E>> {
        let mut events = Vec::new();
        let mut over = false;
        loop {
            while !over && self.feed.held < WINDOW && (self.starving > 0 || self.feed.is_undecided()) {
                events.clear();
                over = !next(&mut events).map_err(RunError::Source)?;
                for event in &events {
                    let pushed = self.feed.push(event);
                    let (worker, closed) = pushed.map_err(|UnknownWorker(worker)| RunError::Worker {
                        worker,
                        workers: self.setup.workers,
                    })?;
                    self.ready(worker);
                    if let Some(number) = closed {
                        self.meet(number)?;
                    }
                }
                if over {
                    self.feed.finish();
                    (0..self.at.len()).for_each(|worker| self.ready(worker));
                    if let Some(number) = self.feed.close() {
                        self.meet(number)?;
                    }
                }
            }
            match self.clocks.least() {
                Some(worker) => self.turn(worker)?,
                None => match self.feed.close() {
                    Some(number) => self.meet(number)?,
                    None => break,
                },
            }
        }
        if self.at.iter().any(|at| at.clock > clocks::LATEST) {
            return Err(RunError::TooLong.into());
        }
        self.regions.end(&mut self.job);
        Ok(())
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn outcome(&self) -> JobOutcome {
        JobOutcome {
            elapsed: self.at.iter().map(|at| at.clock).max().unwrap_or(0),
            all: self.job,
            messages: self.network.messages,
            bytes: self.network.bytes,
            regions: self.regions.outcomes(),
        }
    }

    fn node(&self, worker: usize) -> usize {
        worker * usize::from(self.setup.nodes) / self.setup.workers
    }

    fn ready(&mut self, worker: usize) {
        let at = self.at[worker];
        if at.meeting == 0 && self.feed.queues[worker].left() > 0 && self.clocks.get(worker) == NEVER {
            self.starving -= 1;
            self.clocks.set(worker, clocks::key(at.clock, worker));
        }
    }

    /// Carries out a worker's next entry.
    fn turn<E>(&mut self, worker: usize) -> Result<(), JobError<E>> {
        let queue = &mut self.feed.queues[worker];
        let entry = queue.entries[queue.gone];
        queue.gone += 1;
        let left = queue.left();
        self.feed.held -= 1;
        let node = self.node(worker);
        let compute = |instructions: u64| (instructions as f64 * self.places[node].instruction) as u64;
        match feed::kind(entry) {
            feed::ACCESS => {
                self.at[worker].clock += compute(feed::instructions(entry));
                self.access(worker, feed::page(entry), entry & feed::WRITE != 0)?;
            }
            feed::COMPUTE => self.at[worker].clock += compute(feed::payload(entry)),
            feed::MEET => {
                let number = feed::payload(entry);
                self.at[worker].meeting = number;
                self.feed.arrive(number, self.at[worker].clock);
                self.clocks.set(worker, NEVER);
                return self.meet(number);
            }
            // This event is taken at the meeting's end, before any worker goes on: see `meet`.
            feed::MARK | feed::RANGE => {}
            _ => {}
        }
        if left > 0 {
            self.clocks.set(worker, clocks::key(self.at[worker].clock, worker));
        } else {
            self.clocks.set(worker, NEVER);
            self.starving += 1;
        }
        Ok(())
    }

    fn access<E>(&mut self, worker: usize, page: u64, write: bool) -> Result<(), JobError<E>> {
        let node = self.node(worker);
        let state = self.places[node].agent.state(page);
        if !write {
            self.regions.used(node, page);
        }
        if if write { state.writable() } else { state.readable() } {
            return Ok(());
        }
        let before = self.network.messages;
        let mode = self.regions.mode();
        let fault = if write { Fault::Write } else { Fault::Read };
        let mut clock = self.at[worker].clock + self.places[node].fault;
        // One fault fetches the page, and one more is needed where it may not be written yet.
        for _ in 0..2 {
            clock = self.fault(node, page, fault, mode, clock)?;
            let state = self.places[node].agent.state(page);
            if if write { state.writable() } else { state.readable() } {
                break;
            }
        }
        let remote = self.network.messages > before;
        self.count(node, page, write, remote, state);
        self.job.waiting += clock - self.at[worker].clock;
        self.regions.waited(clock - self.at[worker].clock, write);
        self.at[worker].clock = clock;
        Ok(())
    }

    fn count(&mut self, node: usize, page: u64, write: bool, remote: bool, before: State) {
        let counts = [&mut self.job, self.regions.counts()];
        for job in counts {
            match (write, remote) {
                (false, _) => job.read_faults += 1,
                (true, true) if before == State::Shared => job.upgrades += 1,
                (true, true) => job.write_faults += 1,
                (true, false) => job.local_writes += 1,
            }
        }
        if !write {
            self.regions.faulted(node, page);
        }
    }

    /// Carries out a fault at `clock`; returns the time when it is over.
    fn fault(
        &mut self,
        node: usize,
        page: u64,
        fault: Fault,
        mode: Mode,
        clock: u64,
    ) -> Result<u64, Impossible> {
        let Place { agent, shadow, .. } = &mut self.places[node];
        agent.fault(page, fault, mode, shadow)?;
        self.network.send(node, agent.take_outbox(), clock);
        Ok(self.deliver(false)?[node].max(clock))
    }

    /// Carries messages, those of a `barrier` or not, until there are none; returns the time when each node got its last one.
    fn deliver(&mut self, barrier: bool) -> Result<Vec<u64>, Impossible> {
        let mut last = vec![0; self.places.len()];
        while let Some(arrival) = self.network.next() {
            let Place { agent, shadow, fault, .. } = &mut self.places[arrival.to];
            // Taking a message costs as much as a fault: a page is looked up and its mapping changed.
            let clock = arrival.clock + if arrival.to == arrival.from { 0 } else { *fault };
            agent.receive(arrival.from as u8, arrival.message, shadow)?;
            let outbox = agent.take_outbox();
            self.network.send(arrival.to, outbox, clock);
            last[arrival.to] = clock;
        }
        for place in &mut self.places {
            let moved = std::mem::take(&mut place.shadow.counts);
            for job in [&mut self.job, self.regions.counts()] {
                job.pages += moved.pages;
                *if barrier { &mut job.batched } else { &mut job.invalidations } += moved.removed;
                job.twins += moved.twins;
                job.diffs += moved.diffs;
            }
        }
        Ok(last)
    }

    /// Ends a meeting if every worker has come: the nodes exchange what they wrote, and all workers go on.
    fn meet<E>(&mut self, number: u64) -> Result<(), JobError<E>> {
        let Some(latest) = self.feed.over(number) else { return Ok(()) };
        let mut arrived = vec![0; self.places.len()];
        for (worker, at) in self.at.iter().enumerate() {
            let node = self.node(worker);
            let here = if at.meeting == number { at.clock } else { 0 };
            arrived[node] = here.max(arrived[node]);
        }
        let nodes = self.places.len();
        for (node, &clock) in arrived.iter().enumerate() {
            // The agent of a node whose workers are all elsewhere answers at once.
            let clock = if clock == 0 { latest } else { clock };
            let Place { agent, shadow, .. } = &mut self.places[node];
            agent.arrive(shadow)?;
            self.network.send(node, agent.take_outbox(), clock);
        }
        self.job.barriers += 1;
        let last = self.deliver(true)?;
        debug_assert!(self.places.iter().all(|place| place.agent.released()));
        let clocks: Vec<u64> = (0..nodes).map(|node| last[node].max(arrived[node])).collect();

        // The mark that the first worker passes next names what follows.
        let queue = &self.feed.queues[0];
        let mark = queue.entries.get(queue.gone).filter(|entry| feed::kind(**entry) == feed::MARK);
        self.regions.next(mark.map(|entry| feed::payload(*entry)), latest, &mut self.job);
        let entered = self.enter(&clocks)?;
        for worker in 0..self.at.len() {
            let node = self.node(worker);
            if self.at[worker].meeting == number {
                let at = &mut self.at[worker];
                self.job.idle += entered[node] - at.clock;
                *at = At { clock: entered[node], meeting: 0 };
                self.starving += 1;
                self.ready(worker);
            }
        }
        Ok(())
    }

    /// Has every node fetch what its plan says; returns the time when each has done so.
    fn enter(&mut self, clocks: &[u64]) -> Result<Vec<u64>, Impossible> {
        let mode = self.regions.mode();
        for (node, &clock) in clocks.iter().enumerate() {
            let pages = self.regions.plan(node);
            let mut fetched = Vec::new();
            for page in pages {
                let Place { agent, shadow, .. } = &mut self.places[node];
                if !agent.state(page).readable() {
                    agent.fault(page, Fault::Read, mode, shadow)?;
                    self.network.send(node, agent.take_outbox(), clock);
                    fetched.push(page);
                }
            }
            self.job.fetched += fetched.len() as u64;
            self.regions.fetched(node, fetched);
        }
        let last = self.deliver(false)?;
        let done: Vec<u64> = last.iter().zip(clocks).map(|(last, clock)| *last.max(clock)).collect();
        for (node, (done, clock)) in done.iter().zip(clocks).enumerate() {
            self.regions.entered(node, done - clock);
        }
        Ok(done)
    }
}
