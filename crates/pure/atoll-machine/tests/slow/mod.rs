//! A second simulator, slow and plain: all events in memory, maps and lists, and every choice a search.
//!
//! It has the fast simulator's rules of time and none of its structures. Only the policies are the same code; those have slow
//! references of their own in `atoll-pages`.

mod atoll;
mod paging;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use atoll_machine::costs::Costs;
use atoll_machine::{Happening, Node, PageMode, Pager, Replacement, Setup, Tables, Worker};
use atoll_pages::{AnyPolicy, OwnedStorage, PageSize, Policy};
use atoll_record::trace::Event;

#[derive(Default)]
struct Page {
    frame: Option<u32>,
    token: Option<u32>,
    ready: u64,
    first: u64,
    size: usize,
    used: bool,
    dirty: bool,
    present: bool,
    unseen: bool,
    far_copy: bool,
    habit: atoll::Habit,
    map: BTreeSet<usize>,
    accessed: BTreeSet<usize>,
    ever: BTreeSet<usize>,
    /// Under MIN: the moment of the last use.
    last: Option<usize>,
}

/// A TLB entry: page size of the hardware, number, whether it was written through.
type Entry = (usize, u64, bool);

/// A TLB of one worker: its sets, most recently used first.
#[derive(Clone, Default)]
struct Tlb {
    sets: HashMap<u64, Vec<Entry>>,
}

enum Step {
    Event(Event),
    Meet(usize),
}

pub(crate) struct Slow<'a> {
    setup: Setup,
    costs: Costs,
    node: &'a Node,
    policy: Option<AnyPolicy<'a>>,
    pages: Vec<Page>,
    owner: HashMap<u64, usize>,
    mapped: BTreeMap<u64, u64>,
    tlbs: Vec<Vec<Tlb>>,
    held: HashMap<u32, usize>,
    free: Vec<u32>,
    bytes: u64,
    /// Under MIN: the number of pages kept over each moment beside the one in use.
    kept: Vec<u64>,
    clock: Vec<u64>,
    debt: Vec<u64>,
    sending: Vec<u64>,
    locked: Vec<u64>,
    channels: [Vec<u64>; 2],
    policy_free: u64,
    table_free: u64,
    next_tick: u64,
    scan_sending: Vec<u64>,
    /// Under atoll's pager: the state of each worker.
    own: Vec<atoll::Own>,
    marks: Vec<u32>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) log: Vec<(u64, Happening)>,
}

const SHIFTS: [u32; 3] = [0, 4, 9];

impl<'a> Slow<'a> {
    pub(crate) fn new(node: &'a Node, setup: Setup, storage: Option<&'a mut OwnedStorage>) -> Self {
        let costs = Costs::new(node, &setup).unwrap();
        let frames = setup.near.unwrap_or(0) / setup.page.smallest().bytes() as u64;
        let n = setup.workers;
        let channels = vec![0; costs.channels];
        Self {
            next_tick: if storage.is_some() { costs.period } else { u64::MAX },
            policy: storage.map(|storage| storage.policy()),
            pages: Vec::new(),
            owner: HashMap::new(),
            mapped: BTreeMap::new(),
            tlbs: vec![vec![Tlb::default(); node.tlbs.len()]; n],
            held: HashMap::new(),
            free: (0..frames as u32).rev().collect(),
            bytes: frames * setup.page.smallest().bytes() as u64,
            kept: Vec::new(),
            clock: vec![0; n],
            debt: vec![0; n],
            sending: vec![0; n],
            locked: vec![0; n],
            channels: [channels.clone(), channels],
            policy_free: 0,
            table_free: 0,
            scan_sending: vec![0; costs.scanners],
            own: (0..n).map(|_| atoll::Own::new(setup.page.smallest(), setup.near)).collect(),
            marks: Vec::new(),
            workers: vec![Worker::default(); n],
            log: Vec::new(),
            setup,
            costs,
            node,
        }
    }

    pub(crate) fn run(&mut self, trace: &[Event]) {
        let n = self.setup.workers;
        let mut queues: Vec<VecDeque<Step>> = (0..n).map(|_| VecDeque::new()).collect();
        let mut meetings: Vec<BTreeSet<usize>> = Vec::new();
        let mut current = 0;
        for event in trace {
            current = event.worker().map_or(current, usize::from);
            match event {
                Event::RegionBegin { .. } | Event::RegionEnd { .. } | Event::Barrier { .. } => {
                    if meetings.last().is_none_or(|last| last.contains(&current)) {
                        meetings.push(BTreeSet::new());
                    }
                    let meeting = meetings.len() - 1;
                    meetings[meeting].insert(current);
                    queues[current].push_back(Step::Meet(meeting));
                    if current == 0 && !matches!(event, Event::RegionEnd { .. }) {
                        queues[current].push_back(Step::Event(*event));
                    }
                }
                _ => queues[current].push_back(Step::Event(*event)),
            }
        }
        let mut waiting: HashMap<usize, usize> = HashMap::new();
        loop {
            // Computing is done before a worker is asked when its next event is due.
            for worker in (0..n).filter(|w| !waiting.contains_key(w)) {
                while let Some(Step::Event(compute @ Event::Compute { .. })) = queues[worker].front() {
                    let compute = *compute;
                    self.event(worker, compute);
                    queues[worker].pop_front();
                }
            }
            let can_go = |w: &usize| !waiting.contains_key(w) && !queues[*w].is_empty();
            let Some(worker) = (0..n).filter(can_go).min_by_key(|&w| (self.clock[w], w)) else { break };
            if self.clock[worker] >= self.next_tick {
                self.tick();
                continue;
            }
            let debt = std::mem::take(&mut self.debt[worker]);
            if debt > 0 {
                self.workers[worker].times.interrupted += debt;
                self.clock[worker] += debt;
                continue;
            }
            match queues[worker].pop_front().unwrap() {
                Step::Event(event) => self.event(worker, event),
                Step::Meet(meeting) => {
                    waiting.insert(worker, meeting);
                    let members = &meetings[meeting];
                    if members.iter().all(|member| waiting.get(member) == Some(&meeting)) {
                        let latest = members.iter().map(|&member| self.clock[member]).max().unwrap();
                        for &member in members {
                            waiting.remove(&member);
                            self.workers[member].times.idle += latest - self.clock[member];
                            self.clock[member] = latest;
                            self.debt[member] = 0;
                        }
                    }
                }
            }
        }
    }

    fn event(&mut self, worker: usize, event: Event) {
        match event {
            Event::Access { page, write, .. } => self.access(worker, page, write),
            Event::Compute { instructions, .. } => {
                let time = instructions * self.costs.instructions / 1024;
                self.workers[worker].times.compute += time;
                self.clock[worker] += time;
            }
            Event::RegionBegin { name, .. } | Event::Barrier { name, .. } => {
                if self.is_atoll() {
                    self.marks.push(name as u32);
                } else if let Some(policy) = &mut self.policy {
                    policy.mark(name as u32);
                }
            }
            Event::RegionEnd { .. } => {}
            Event::Map { first, pages } => {
                self.mapped.insert(first, pages);
            }
            Event::Unmap { first, pages } => self.unmap(first, pages),
        }
    }

    fn id(&mut self, page: u64) -> usize {
        let sized = |size: PageSize| PageSize::ALL.iter().position(|&s| s == size).unwrap();
        let size = match self.setup.page {
            PageMode::One(size) => sized(size),
            PageMode::Segment => 0,
            PageMode::Mixed => {
                if let Some(&id) = self.owner.get(&page) {
                    return id;
                }
                let fits = |size: &usize| {
                    let first = page >> SHIFTS[*size] << SHIFTS[*size];
                    let mapping = self.mapped.iter().rev().find(|(begin, _)| **begin <= first);
                    mapping.is_some_and(|(begin, len)| begin + len >= first + (1 << SHIFTS[*size]))
                };
                [2, 1].into_iter().find(fits).unwrap_or(0)
            }
        };
        let first = page >> SHIFTS[size] << SHIFTS[size];
        let known = self.owner.get(&first).copied().filter(|&id| self.pages[id].size == size);
        let id = known.unwrap_or_else(|| {
            self.pages.push(Page { first, size, ..Page::default() });
            self.pages.len() - 1
        });
        self.owner.insert(first, id);
        if self.setup.page == PageMode::Mixed {
            self.owner.insert(page, id);
        }
        id
    }

    fn native(&self, size: usize) -> bool {
        self.node.tlbs.iter().any(|tlb| tlb.holds(PageSize::ALL[size]))
    }

    /// Returns the TLBs that hold such pages, and the number of `page`'s entry there.
    fn tlb_entry(&self, size: usize, page: u64) -> (Vec<usize>, usize, u64) {
        let hardware = if self.native(size) { size } else { 0 };
        let list =
            (0..self.node.tlbs.len()).filter(|&t| self.node.tlbs[t].holds(PageSize::ALL[hardware])).collect();
        (list, hardware, page >> SHIFTS[hardware])
    }

    fn access(&mut self, worker: usize, page: u64, write: bool) {
        self.workers[worker].counts.accesses += 1;
        let id = self.id(page);
        if self.setup.page == PageMode::Segment {
            self.pages[id].ever.insert(worker);
            return;
        }
        if self.setup.policy == Replacement::Min && self.setup.near.is_some() {
            self.use_foreseen(worker, id);
        }
        let size = self.pages[id].size;
        let (list, hardware, number) = self.tlb_entry(size, page);
        let mut after = 0;
        for (level, &t) in list.iter().enumerate() {
            let (entries, ways) = (*self.node.tlbs[t].entries, *self.node.tlbs[t].ways);
            let sets = u64::from(entries / ways);
            after += (*self.node.tlbs[t].hit_cycles * 1e6 / *self.node.cores.clock_mhz).round() as u64;
            let set = self.tlbs[worker][t].sets.entry(number % sets).or_default();
            let Some(at) = set.iter().position(|&(h, n, _)| (h, n) == (hardware, number)) else { continue };
            let (_, _, dirty) = set.remove(at);
            set.insert(0, (hardware, number, dirty || write));
            for &earlier in &list[..level] {
                self.tlb_fill(worker, earlier, (hardware, number, dirty || write));
            }
            self.workers[worker].times.walk += after;
            self.clock[worker] += after;
            if write && !dirty {
                self.write(worker, id);
            }
            return;
        }
        self.log.push((self.clock[worker], Happening::Walk { worker, page }));
        self.workers[worker].counts.tlb_misses += 1;
        let cost = self.costs.walk[hardware];
        self.workers[worker].times.walk += cost;
        self.clock[worker] += cost;
        let there = match self.setup.tables {
            Tables::Private => self.pages[id].map.contains(&worker),
            Tables::Shared => self.pages[id].present,
        };
        if !there {
            self.fault(worker, id, write);
        } else if self.pages[id].unseen {
            self.pages[id].unseen = false;
            let (frame, mappers) = (self.pages[id].frame.unwrap(), self.mappers(id));
            if let Some(policy) = &mut self.policy {
                policy.mapped(frame, mappers);
            }
        }
        self.pages[id].map.insert(worker);
        self.pages[id].accessed.insert(worker);
        self.pages[id].ever.insert(worker);
        if write {
            self.write(worker, id);
        }
        for t in list {
            self.tlb_fill(worker, t, (hardware, number, write));
        }
    }

    fn tlb_fill(&mut self, worker: usize, t: usize, entry: Entry) {
        let (entries, ways) = (*self.node.tlbs[t].entries, *self.node.tlbs[t].ways);
        let set = self.tlbs[worker][t].sets.entry(entry.1 % u64::from(entries / ways)).or_default();
        set.insert(0, entry);
        set.truncate(ways as usize);
    }

    fn is_atoll(&self) -> bool {
        self.setup.pager == Pager::Atoll
    }

    fn mappers(&self, id: usize) -> u32 {
        if self.setup.tables == Tables::Private { self.pages[id].map.len() as u32 } else { 1 }
    }

    /// Under MIN: keeps the page over all moments since its last use if there was room at each.
    fn use_foreseen(&mut self, worker: usize, id: usize) {
        let now = self.kept.len();
        let room = self.setup.near.unwrap() / PageSize::ALL[self.pages[id].size].bytes() as u64 - 1;
        if let Some(last) = self.pages[id].last {
            if self.kept[last + 1..].iter().all(|&kept| kept < room) {
                self.kept[last + 1..].iter_mut().for_each(|kept| *kept += 1);
            } else {
                self.pages[id].frame = None;
                let written = self.leave(worker, &[id]);
                self.transfer(worker, written, 1);
            }
        }
        self.kept.push(0);
        self.pages[id].last = Some(now);
    }
}
