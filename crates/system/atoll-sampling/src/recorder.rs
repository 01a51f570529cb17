//! Drives samplers while a program runs, and writes what they find.
//!
//! The launcher calls [`Recorder::tick`] from a thread of its own. A tick takes the changes of threads (`threads`), the samples
//! and the reports from inside the program, and writes them in the order of time. What is later than the tick's begin waits for
//! the next tick, as another processor may still have something earlier. An error of writing ends the recording, not the
//! program.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};
use std::os::fd::RawFd;

use atoll_profile_wire::{Mark, Reader, What as Marked};
use atoll_record::profile::{Access, Event, Loss, PAGING, ProfileWriter, Sample, SamplerTotals};

use crate::clock;
use crate::code::Code;
use crate::control::Control;
use crate::images::Images;
use crate::paging::Faults;
use crate::random::Random;
use crate::sampler::{Found, Harvest, Sampler, SamplerError};
use crate::threads::{Change, Threads, What};

/// The settings of a recorder.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Whether processes that the program forks are its workers, in one address space with it.
    pub forks_share: bool,
    /// The most bytes that the record may have.
    pub limit_bytes: u64,
    /// Whether fewer samples are kept the fuller the record is; otherwise all are kept until it is full.
    pub thin_out: bool,
    /// The overhead to keep to by changing periods, for all samplers together; `None`: periods stay.
    pub overhead: Option<f64>,
    /// The number of the node whose program this is.
    pub node: u32,
    /// The time at which the record begins.
    pub start_ns: u64,
}

/// Nanoseconds that written data may stay in memory.
const FLUSH_NS: u64 = 500_000_000;
/// Nanoseconds between two random changes of the period.
const JITTER_NS: u64 = 50_000_000;
/// Nanoseconds between two looks at the cost of sampling.
const CONTROL_NS: u64 = 200_000_000;

/// Writes a profile while a program runs.
pub struct Recorder<W: Write> {
    writer: Option<ProfileWriter<W>>,
    options: Options,
    threads: Threads,
    samplers: Vec<Box<dyn Sampler>>,
    /// The reader of the reports from inside the program.
    journal: Option<Reader>,
    totals: Vec<SamplerTotals>,
    code: Code,
    /// The worker of each thread.
    workers: HashMap<u32, Worker>,
    worker_count: u32,
    /// The number in the team of each thread.
    numbers: HashMap<u32, u32>,
    /// The address space of each process.
    spaces: HashMap<u32, u32>,
    /// The programs that the processes execute.
    images: Images,
    /// The faults that the fault handler worked on.
    faults: Faults,
    samples: Vec<(usize, Found)>,
    found: Vec<Found>,
    events: Vec<Event>,
    /// Threads that have ended, whose buffers are harvested once more.
    over: Vec<u32>,
    random: Random,
    thinning: u32,
    control: Option<Control>,
    controlled_ns: u64,
    /// The processor time of each process when it was last read, in nanoseconds.
    used_ns: HashMap<u32, u64>,
    /// The filling of the fullest buffer at the last tick, as a share.
    fullest: f64,
    flushed_ns: u64,
    jittered_ns: u64,
    harvest_ns: u64,
    failed: Option<io::Error>,
    /// The first reason why a thread could not be sampled.
    unsampled: Option<SamplerError>,
}

#[derive(Debug, Clone, Copy)]
struct Worker {
    index: u32,
}

/// The results of a recording, once the program is over.
#[derive(Debug)]
pub struct Recorded<W: Write> {
    /// The writer, which takes names and trailer; `None` if writing failed.
    pub writer: Option<ProfileWriter<W>>,
    /// The reason why writing failed.
    pub failed: Option<io::Error>,
    /// The reason why some threads could not be sampled.
    pub unsampled: Option<SamplerError>,
    /// The totals of each sampler.
    pub samplers: Vec<SamplerTotals>,
    /// The number of records of mappings, threads, blocks and regions that were lost.
    pub lost: u64,
    /// The code whose names are wanted: for each file, the offsets in it.
    pub wanted: BTreeMap<String, BTreeSet<u64>>,
    /// The file of the program that most samples are of; empty: not known.
    pub program: String,
    /// The processor time that recording took beside the program, in seconds.
    pub harvest_seconds: f64,
}

impl<W: Write> Recorder<W> {
    /// Starts recording what `samplers` (in the order of the writer's header) find in the program whose first thread is `tid`.
    /// Call this before that thread executes the program.
    ///
    /// # Errors
    /// A sampler cannot be attached.
    pub fn new(
        writer: ProfileWriter<W>,
        options: Options,
        threads: Threads,
        mut samplers: Vec<Box<dyn Sampler>>,
        journal: Option<Reader>,
        tid: u32,
    ) -> Result<Self, SamplerError> {
        for sampler in &mut samplers {
            sampler.attach(tid, tid, true)?;
        }
        let totals = samplers
            .iter()
            .map(|s| SamplerTotals { seconds_a_sample: s.seconds_a_sample(), ..SamplerTotals::default() })
            .collect();
        let mut recorder = Self {
            writer: Some(writer),
            options,
            threads,
            samplers,
            journal,
            totals,
            code: Code::default(),
            workers: HashMap::new(),
            worker_count: 0,
            numbers: HashMap::new(),
            spaces: HashMap::from([(tid, tid)]),
            images: Images::default(),
            faults: Faults::default(),
            samples: Vec::new(),
            found: Vec::new(),
            events: Vec::new(),
            over: Vec::new(),
            random: Random::new(options.start_ns),
            thinning: 0,
            control: options.overhead.map(Control::new),
            controlled_ns: options.start_ns,
            used_ns: HashMap::new(),
            fullest: 0.0,
            flushed_ns: options.start_ns,
            jittered_ns: options.start_ns,
            harvest_ns: 0,
            failed: None,
            unsampled: None,
        };
        recorder.worker(options.start_ns, tid, tid, String::new());
        Ok(recorder)
    }

    /// Returns descriptors that are readable when threads come or go.
    pub fn side_descriptors(&self) -> Vec<RawFd> {
        self.threads.descriptors().collect()
    }

    /// Returns descriptors that are readable when a tick is due.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let mut all = self.side_descriptors();
        self.samplers.iter().for_each(|sampler| sampler.descriptors(&mut |fd| all.push(fd)));
        all
    }

    /// Takes everything that has come. With `last` all of it is written; otherwise what is later than now waits.
    pub fn tick(&mut self, last: bool) {
        let (begin, cpu) = (clock::now_ns(), clock::thread_ns());
        for change in self.threads.changes() {
            self.change(change);
        }
        self.read_journal(last);
        self.fullest = 0.0;
        for number in 0..self.samplers.len() {
            let harvest = self.samplers[number].harvest(&mut self.code, &mut self.found);
            if let Some(event) = self.samplers[number].events().first() {
                let share = harvest.fullest as f64 / event.setup().ring_bytes.max(1) as f64;
                self.fullest = self.fullest.max(share);
            }
            self.count(number, begin, harvest);
            self.samples.extend(self.found.drain(..).map(|found| (number, found)));
        }
        for tid in std::mem::take(&mut self.over) {
            self.samplers.iter_mut().for_each(|sampler| sampler.detach(tid));
            self.faults.forget(tid);
        }
        if self.control.is_some() && begin - self.controlled_ns >= CONTROL_NS {
            self.controlled_ns = begin;
            self.hold(begin);
        }
        if begin - self.jittered_ns >= JITTER_NS {
            self.jittered_ns = begin;
            // The average of the random periods is the period itself.
            let factor = 0.75 + 0.5 * self.random.share();
            self.samplers.iter_mut().for_each(|sampler| sampler.jitter(factor));
        }
        let written = self.write(if last { u64::MAX } else { begin });
        if let Err(error) = written {
            self.fail(error);
        }
        self.harvest_ns += clock::thread_ns() - cpu;
    }

    /// Ends the recording, after the last tick.
    pub fn finish(mut self) -> Recorded<W> {
        if let Some(writer) = &mut self.writer
            && let Err(error) = writer.flush()
        {
            self.fail(error);
        }
        for (totals, sampler) in self.totals.iter_mut().zip(&self.samplers) {
            totals.last_period = sampler.period();
            totals.seconds_a_sample = sampler.seconds_a_sample();
        }
        Recorded {
            writer: self.writer,
            failed: self.failed,
            unsampled: self.unsampled,
            samplers: self.totals,
            lost: self.threads.lost + self.journal.as_ref().map_or(0, Reader::lost),
            wanted: self.code.wanted(),
            program: self.images.most_sampled().unwrap_or_default(),
            harvest_seconds: self.harvest_ns as f64 * 1e-9,
        }
    }

    fn fail(&mut self, error: io::Error) {
        self.writer = None;
        self.failed.get_or_insert(error);
        self.samplers.clear();
    }

    /// Returns the filling of the fullest buffer at the last tick, as a share.
    pub fn fullest(&self) -> f64 {
        self.fullest
    }

    /// Changes periods so that the overhead is kept to.
    fn hold(&mut self, now: u64) {
        let pids: BTreeSet<u32> = self.spaces.keys().copied().collect();
        for pid in pids {
            if let Some(used) = clock::process_ns(pid) {
                // A process that has ended and is waited for may have given its number, and its times, to another.
                let last = self.used_ns.entry(pid).or_default();
                *last = used.max(*last);
            }
        }
        let used = self.used_ns.values().sum::<u64>() as f64 * 1e-9;
        let costs = self.totals.iter().zip(&self.samplers);
        let sampled: f64 = costs.map(|(t, sampler)| t.records as f64 * sampler.seconds_a_sample()).sum();
        let spent = sampled + self.harvest_ns as f64 * 1e-9;
        let Some(factor) = self.control.as_mut().and_then(|control| control.step(spent, used)) else {
            return;
        };
        for (number, sampler) in (0..).zip(&mut self.samplers) {
            let before = sampler.period();
            sampler.set_period((before as f64 * factor) as u64);
            let period = sampler.period();
            if period != before {
                self.events.push(Event::Period { time_ns: now, sampler: number, period });
            }
        }
    }

    fn count(&mut self, number: usize, now: u64, harvest: Harvest) {
        let totals = &mut self.totals[number];
        totals.records += harvest.records;
        totals.foreign += harvest.without_address;
        totals.lost += harvest.lost;
        totals.throttled += harvest.throttled;
        let (time_ns, sampler) = (now, number as u32);
        if harvest.records > 0 {
            totals.wakeups += 1;
            let (records, bytes) = (harvest.records, harvest.bytes);
            self.events.push(Event::Wakeup { time_ns, sampler, records, bytes });
        }
        for (samples, cause) in [(harvest.lost, Loss::Full), (harvest.throttled, Loss::Throttled)] {
            if samples > 0 {
                self.events.push(Event::Lost { time_ns, sampler, samples, cause });
            }
        }
    }

    fn worker(&mut self, time_ns: u64, pid: u32, tid: u32, name: String) {
        let space = self.space(pid);
        self.workers.insert(tid, Worker { index: self.worker_count });
        self.worker_count += 1;
        let number = self.numbers.remove(&tid).unwrap_or(u32::MAX);
        self.events.push(Event::Worker { time_ns, space, pid, tid, number, node: self.options.node, name });
    }

    fn space(&self, pid: u32) -> u32 {
        self.spaces.get(&pid).copied().unwrap_or(pid)
    }

    fn change(&mut self, change: Change) {
        let Change { time_ns, what } = change;
        match what {
            What::Came { pid, parent, tid } => {
                if !self.spaces.contains_key(&pid) {
                    let of = self.space(parent);
                    if self.options.forks_share {
                        self.spaces.insert(pid, of);
                    } else {
                        self.spaces.insert(pid, pid);
                        self.code.fork(pid, parent);
                        self.images.fork(pid, of);
                        self.events.push(Event::Fork { time_ns, space: pid, parent: of });
                    }
                }
                self.worker(time_ns, pid, tid, String::new());
                for (sampler, totals) in self.samplers.iter_mut().zip(&mut self.totals) {
                    // A thread that cannot be sampled has no samples; the first thread could be sampled.
                    if let Err(error) = sampler.attach(pid, tid, false) {
                        totals.unsampled += 1;
                        self.unsampled.get_or_insert(error);
                    }
                }
            }
            What::Went { tid } => {
                if let Some(worker) = self.workers.get(&tid) {
                    self.events.push(Event::WorkerEnd { time_ns, worker: worker.index });
                }
                self.over.push(tid);
            }
            What::Named { pid, tid, exec, name } => {
                if exec {
                    self.spaces.insert(pid, pid);
                    self.code.forget(pid);
                    self.images.execute(pid);
                    self.samplers.iter_mut().for_each(|sampler| sampler.executed(pid));
                    self.events.push(Event::Exec { time_ns, space: pid, name });
                } else if !self.workers.contains_key(&tid) {
                    self.worker(time_ns, pid, tid, name);
                }
            }
            What::Mapped { pid, start, bytes, offset, code, path } => {
                self.code.want_file(&path);
                if code {
                    self.images.map(pid, &path);
                    self.code.map(pid, start, bytes, offset, &path);
                }
                // A worker's own view of the memory that it shares is not recorded again.
                let space = self.space(pid);
                if space == pid {
                    self.events.push(Event::Map { time_ns, space, start, bytes, offset, path, code });
                }
            }
        }
    }

    fn read_journal(&mut self, last: bool) {
        let Some(mut journal) = self.journal.take() else { return };
        loop {
            journal.by_ref().for_each(|mark| self.mark(&mark));
            // At the end nothing will complete an incomplete report.
            if !last || !journal.pass_over() {
                break;
            }
        }
        self.journal = Some(journal);
    }

    fn mark(&mut self, mark: &Mark) {
        let Mark { time_ns, pid, what } = *mark;
        let space = self.space(pid);
        self.samplers.iter_mut().for_each(|sampler| sampler.told(mark));
        self.faults.told(mark);
        match what {
            Marked::Block { start, bytes, site } => {
                self.code.want(pid, site);
                self.events.push(Event::Block { time_ns, space, start, bytes, site });
            }
            Marked::Free { start } => self.events.push(Event::Free { time_ns, space, start }),
            Marked::RegionBegin { function } => {
                self.code.want(pid, function);
                self.events.push(Event::RegionBegin { time_ns, space, function });
            }
            Marked::RegionEnd => self.events.push(Event::RegionEnd { time_ns, space }),
            Marked::Touch { .. } | Marked::Fault { .. } | Marked::FaultStack { .. } => {}
            Marked::Userfault { .. } => self.began(time_ns, pid),
            Marked::Worker { tid, number } => {
                if self.threads.is_none() && !self.workers.contains_key(&tid) {
                    self.worker(time_ns, pid, tid, String::new());
                    self.look_at(time_ns, pid);
                }
                match self.workers.get(&tid) {
                    Some(worker) => self.events.push(Event::Number { time_ns, worker: worker.index, number }),
                    // The thread's coming is reported later than this.
                    None => {
                        self.numbers.insert(tid, number);
                    }
                }
            }
        }
    }

    /// Notes that a process has begun to execute a program, where perf does not report that.
    fn began(&mut self, time_ns: u64, pid: u32) {
        if !self.threads.is_none() {
            return;
        }
        if !self.workers.contains_key(&pid) {
            self.worker(time_ns, pid, pid, String::new());
        }
        let what = What::Named { pid, tid: pid, exec: true, name: String::new() };
        self.change(Change { time_ns, what });
        self.look_at(time_ns, pid);
    }

    /// Takes a process's mappings as they are now, where perf does not report them.
    fn look_at(&mut self, time_ns: u64, pid: u32) {
        if self.threads.is_none() {
            for what in Threads::mappings(pid) {
                self.change(Change { time_ns, what });
            }
        }
    }

    /// Writes everything that is not later than `until`.
    fn write(&mut self, until: u64) -> io::Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let start = self.options.start_ns;
        self.events.sort_by_key(Event::time_ns);
        let ready = self.events.partition_point(|event| event.time_ns() <= until);
        for mut event in self.events.drain(..ready) {
            shift(&mut event, start);
            writer.event(&event)?;
        }
        self.samples.sort_by_key(|(_, found)| found.time_ns);
        let ready = self.samples.partition_point(|(_, found)| found.time_ns <= until);
        for (number, mut found) in self.samples.drain(..ready) {
            let totals = &mut self.totals[number];
            let Some(worker) = self.workers.get(&found.tid) else {
                totals.foreign += 1;
                continue;
            };
            if self.random.next_u64().trailing_zeros() < self.thinning
                || writer.bytes() >= self.options.limit_bytes
            {
                totals.dropped += 1;
                continue;
            }
            totals.samples += 1;
            if found.paging {
                let fault = self.faults.at(found.tid, found.time_ns);
                (found.address, found.ip) = fault.map_or((0, found.ip), |fault| (fault.address, fault.ip));
                found.access = fault.map_or(Access::Unknown, |fault| fault.access);
                found.source = PAGING;
            }
            self.images.sampled(self.spaces.get(&found.pid).copied().unwrap_or(found.pid));
            self.code.want(found.pid, found.ip);
            writer.sample(
                number,
                Sample {
                    time_ns: found.time_ns.saturating_sub(start),
                    address: found.address,
                    ip: found.ip,
                    worker: worker.index,
                    access: found.access,
                    weight: found.weight,
                    source: found.source,
                    physical: found.physical,
                },
            )?;
        }
        // Each time half of the remaining bytes are full, half as many of the samples are kept.
        let left = self.options.limit_bytes.saturating_sub(writer.bytes());
        if self.options.thin_out
            && left < self.options.limit_bytes >> (self.thinning + 1)
            && self.thinning < 20
        {
            self.thinning += 1;
        }
        let now = clock::now_ns();
        if now - self.flushed_ns >= FLUSH_NS {
            self.flushed_ns = now;
            writer.flush()?;
        }
        Ok(())
    }
}

/// Makes an event's time relative to the record's start.
fn shift(event: &mut Event, start: u64) {
    match event {
        Event::Worker { time_ns, .. }
        | Event::WorkerEnd { time_ns, .. }
        | Event::Exec { time_ns, .. }
        | Event::Fork { time_ns, .. }
        | Event::Map { time_ns, .. }
        | Event::Unmap { time_ns, .. }
        | Event::Block { time_ns, .. }
        | Event::Free { time_ns, .. }
        | Event::RegionBegin { time_ns, .. }
        | Event::RegionEnd { time_ns, .. }
        | Event::Wakeup { time_ns, .. }
        | Event::Period { time_ns, .. }
        | Event::Lost { time_ns, .. }
        | Event::Number { time_ns, .. } => *time_ns = time_ns.saturating_sub(start),
    }
}
