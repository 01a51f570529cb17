//! Replays recorded traces against the policies and MIN, as the runtime would: windows, batches and late news.
//!
//! `cargo run --release --example replay_trace -- POLICY,... PERCENT,... TRACE...` prints how many pages each policy fetches from far
//! memory (not counting first touches) when near memory has so many percent of the trace's pages. A trace is a file
//! of 8-byte little-endian records, one a fault of a run with very little near memory: page (bits 0 to 31), worker
//! (32 to 39), write (40), kind (48 to 50: 0 on a resident page, 1 the first touch, 2 from far, 3 the page is freed,
//! 4 a mark, whose number is in place of the page).
//! `PAGES_SHIFT=4` in the environment makes 64K pages of 4K ones.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for whoever works on the policies")]

use std::collections::{BTreeSet, HashMap};

use atoll_pages::{AnyPolicy, OwnedStorage, Policy, Prefetcher};

#[derive(Clone, Copy)]
struct Record {
    page: u32,
    worker: usize,
    freed: bool,
    mark: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Absent,
    Far(u32),
    Near(u32),
}

/// What a worker has told nobody yet.
#[derive(Clone, Copy)]
enum Event {
    Inserted(u32, u32),
    Returned(u32, u32, u32),
    Mapped(u32, u32),
}

struct Worker {
    cache: Vec<u32>,
    log: Vec<Event>,
    streams: Prefetcher,
}

struct Machine<'a> {
    policy: AnyPolicy<'a>,
    state: Vec<State>,
    mapped: Vec<u64>,
    held: Vec<u32>,
    unused: Vec<u32>,
    workers: Vec<Worker>,
    batch: usize,
    window: usize,
    fetched: u64,
    faults: u64,
    ticked: u64,
}

impl Machine<'_> {
    fn drain(&mut self) {
        for worker in &mut self.workers {
            for event in worker.log.drain(..) {
                match event {
                    Event::Inserted(frame, mappers) => self.policy.insert(frame, mappers),
                    Event::Returned(frame, mappers, token) => self.policy.insert_again(frame, mappers, token),
                    Event::Mapped(frame, mappers) => self.policy.mapped(frame, mappers),
                }
            }
        }
    }

    fn room(&mut self, worker: usize, need: usize) {
        while self.workers[worker].cache.len() < need {
            self.drain();
            if self.fetched / 1000 != self.ticked {
                self.ticked = self.fetched / 1000;
                self.policy.scan(&mut |_| {});
            }
            let want = self.batch.max(need - self.workers[worker].cache.len());
            let before = self.workers[worker].cache.len();
            while self.workers[worker].cache.len() < before + want {
                let Some(frame) = self.unused.pop() else { break };
                self.workers[worker].cache.push(frame);
            }
            if self.workers[worker].cache.len() > before {
                continue;
            }
            for _ in 0..want {
                let Some(frame) = self.policy.evict() else { break };
                self.state[self.held[frame as usize] as usize] = State::Far(self.policy.token());
                self.workers[worker].cache.push(frame);
            }
        }
    }

    fn fill(&mut self, page: u32, worker: usize, asked: bool) {
        let frame = self.workers[worker].cache.pop().unwrap();
        let event = match self.state[page as usize] {
            State::Far(token) => {
                self.fetched += 1;
                Event::Returned(frame, u32::from(asked), token)
            }
            _ => Event::Inserted(frame, u32::from(asked)),
        };
        self.workers[worker].log.push(event);
        self.held[frame as usize] = page;
        self.state[page as usize] = State::Near(frame);
        self.mapped[page as usize] = 1 << worker;
    }

    fn step(&mut self, record: Record) {
        let Record { page, worker, freed, mark } = record;
        if mark {
            self.drain();
            return self.policy.mark(page);
        }
        let state = self.state[page as usize];
        if freed {
            self.state[page as usize] = State::Absent;
            if let State::Near(frame) = state {
                self.drain();
                self.policy.remove(frame);
                self.unused.push(frame);
            }
            return;
        }
        if let State::Near(frame) = state {
            let bit = 1 << worker;
            if self.mapped[page as usize] & bit == 0 {
                self.mapped[page as usize] |= bit;
                self.workers[worker].log.push(Event::Mapped(frame, self.mapped[page as usize].count_ones()));
            }
            return;
        }
        self.faults += 1;
        let window = self.workers[worker].streams.fault(u64::from(page));
        self.room(worker, 1);
        let limit = (window.count as usize).min(self.window);
        if limit > 1 && self.workers[worker].cache.len() < limit {
            self.room(worker, limit);
        }
        let mut left = limit.min(self.workers[worker].cache.len()) - 1;
        let mut ahead = Vec::new();
        for candidate in window.pages().skip(1) {
            let candidate = candidate as u32;
            if left == 0 || candidate as usize >= self.state.len() {
                break;
            }
            let same = match (state, self.state[candidate as usize]) {
                (State::Far(_), State::Far(_)) => true,
                (State::Absent, State::Absent) => candidate >> 4 == page >> 4,
                _ => false,
            };
            if same {
                ahead.push(candidate);
                left -= 1;
            }
        }
        self.fill(page, worker, true);
        for candidate in ahead {
            self.fill(candidate, worker, false);
        }
    }
}

fn run(spec: &str, frames: u32, pages: usize, shift: u32, trace: &[Record]) -> (u64, u64) {
    let mut storage = OwnedStorage::new(spec.parse().unwrap(), frames);
    let window = if shift == 0 { 64 } else { 4 };
    let worker = || Worker { cache: Vec::new(), log: Vec::new(), streams: Prefetcher::new(window) };
    let mut machine = Machine {
        policy: storage.policy(),
        state: vec![State::Absent; pages],
        mapped: vec![0; pages],
        held: vec![0; frames as usize],
        unused: (0..frames).rev().collect(),
        workers: (0..2).map(|_| worker()).collect(),
        batch: if shift == 0 { 64 } else { 8 },
        window: window as usize,
        fetched: 0,
        faults: 0,
        ticked: 0,
    };
    for record in trace {
        machine.step(*record);
    }
    (machine.fetched, machine.faults)
}

/// Belady's MIN, page by page: what it fetches but for first touches.
fn min(frames: usize, trace: &[Record]) -> u64 {
    let mut later = HashMap::new();
    let mut next = vec![usize::MAX; trace.len()];
    for (index, record) in trace.iter().enumerate().rev() {
        if record.mark {
            continue;
        }
        if record.freed {
            later.remove(&record.page);
        } else {
            next[index] = later.insert(record.page, index).unwrap_or(usize::MAX - record.page as usize);
        }
    }
    let (mut resident, mut at, mut seen) = (BTreeSet::new(), HashMap::new(), BTreeSet::new());
    let mut fetched = 0;
    for (index, record) in trace.iter().enumerate().filter(|(_, record)| !record.mark) {
        let was = at.remove(&record.page).is_some_and(|key| resident.remove(&(key, record.page)));
        if record.freed {
            seen.remove(&record.page);
            continue;
        }
        if !was {
            fetched += u64::from(!seen.insert(record.page));
            if resident.len() == frames {
                let (_, page) = resident.pop_last().unwrap();
                at.remove(&page);
            }
        }
        resident.insert((next[index], record.page));
        at.insert(record.page, next[index]);
    }
    fetched
}

/// Least recently used, seeing every use, page by page.
fn lru(frames: usize, trace: &[Record]) -> u64 {
    let (mut order, mut at, mut seen) = (BTreeSet::new(), HashMap::new(), BTreeSet::new());
    let mut fetched = 0;
    for (index, record) in trace.iter().enumerate().filter(|(_, record)| !record.mark) {
        if let Some(old) = at.remove(&record.page) {
            order.remove(&(old, record.page));
        } else if !record.freed {
            fetched += u64::from(!seen.insert(record.page));
            if order.len() == frames {
                let (_, page) = order.pop_first().unwrap();
                at.remove(&page);
            }
        }
        if record.freed {
            seen.remove(&record.page);
            continue;
        }
        order.insert((index, record.page));
        at.insert(record.page, index);
    }
    fetched
}

fn kind(record: u64) -> u64 {
    record >> 48 & 7
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let shift: u32 = std::env::var("PAGES_SHIFT").map_or(0, |shift| shift.parse().unwrap());
    for name in &arguments[2..] {
        let bytes = std::fs::read(name).unwrap();
        let mut numbers: HashMap<u32, u32> = HashMap::new();
        let mut sorted: BTreeSet<u32> = BTreeSet::new();
        let records: Vec<u64> =
            bytes.chunks_exact(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap())).collect();
        for record in records.iter().filter(|record| kind(**record) != 4) {
            sorted.insert(*record as u32 >> shift);
        }
        // Numbers without the large gaps between stretches, so that they index a table.
        let (mut last, mut number) = (0, 0);
        for page in &sorted {
            number += (page - last).min(1000);
            last = *page;
            numbers.insert(*page, number);
        }
        let trace: Vec<Record> = records
            .iter()
            // A few small pages freed do not free a large one.
            .filter(|record| shift == 0 || kind(**record) != 3)
            .map(|record| Record {
                page: numbers
                    .get(&(*record as u32 >> shift))
                    .copied()
                    .filter(|_| kind(*record) != 4)
                    .unwrap_or(*record as u32),
                worker: (record >> 32 & 1) as usize,
                freed: kind(*record) == 3,
                mark: kind(*record) == 4,
            })
            .collect();
        let pages = number as usize + 1;
        for percent in arguments[1].split(',') {
            let frames = (sorted.len() * percent.parse::<usize>().unwrap() / 100) as u32;
            print!("{:>12} {percent:>3}% {frames:>6} frames:", name.rsplit('/').next().unwrap());
            for spec in arguments[0].split(',') {
                match spec {
                    "min" => print!("  min {}", min(frames as usize, &trace)),
                    "true-lru" => print!("  true-lru {}", lru(frames as usize, &trace)),
                    _ => {
                        let (fetched, faults) = run(spec, frames, pages, shift, &trace);
                        print!("  {spec} {fetched} ({faults})");
                    }
                }
            }
            println!();
        }
    }
}
