//! The policies once more, slow and plain: no lists, every choice a search over all frames by sequence numbers.

use std::collections::{BTreeMap, BTreeSet};

use atoll_pages::replay::{Counts, Reference};

pub(crate) enum Kind {
    Fifo,
    Lru { scan: usize, linux: bool },
    Cmcp { limit: usize },
}

struct Held {
    page: u64,
    workers: BTreeSet<usize>,
    /// When the page came to where it is: the lower, the nearer to eviction.
    since: u64,
    /// CMCP: the bucket, 0 for the FIFO list. LRU: 1 when active.
    rank: u32,
    young: bool,
    dirty: bool,
}

pub(crate) struct Slow {
    kind: Kind,
    frames: Vec<Option<Held>>,
    clock: u64,
    hand: usize,
    evictions: usize,
    ever: BTreeMap<u64, BTreeSet<usize>>,
    pub(crate) counts: Counts,
}

impl Slow {
    pub(crate) fn new(kind: Kind, frames: usize) -> Self {
        let frames = (0..frames).map(|_| None).collect();
        Self {
            kind,
            frames,
            clock: 0,
            hand: 0,
            evictions: 0,
            ever: BTreeMap::new(),
            counts: Counts::default(),
        }
    }

    fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn held(&mut self, frame: usize) -> &mut Held {
        self.frames[frame].as_mut().unwrap()
    }

    pub(crate) fn reference(&mut self, reference: Reference) {
        self.counts.references += 1;
        self.ever.entry(reference.page).or_default().insert(reference.worker);
        let found =
            self.frames.iter().position(|held| held.as_ref().is_some_and(|held| held.page == reference.page));
        let frame = found.unwrap_or_else(|| {
            self.counts.major += 1;
            let free = self.frames.iter().position(Option::is_none);
            let frame = free.unwrap_or_else(|| self.evict(reference.worker));
            let since = self.now();
            let workers = BTreeSet::new();
            let rank = u32::from(matches!(self.kind, Kind::Lru { linux: true, .. }));
            self.frames[frame] =
                Some(Held { page: reference.page, workers, since, rank, young: false, dirty: false });
            frame
        });
        self.held(frame).dirty |= reference.write;
        if self.held(frame).workers.insert(reference.worker) {
            self.counts.minor += u64::from(found.is_some());
            self.mapped(frame);
        }
    }

    fn mapped(&mut self, frame: usize) {
        let now = self.now();
        let count = self.held(frame).workers.len() as u32;
        match self.kind {
            Kind::Fifo => {}
            Kind::Lru { .. } => {
                // Young: unmapped by a scan and not used since.
                let held = self.held(frame);
                if held.young {
                    held.rank = 1;
                    held.since = now;
                    held.young = false;
                }
            }
            Kind::Cmcp { limit } => {
                let held = self.held(frame);
                if held.rank > 0 {
                    held.young = true;
                    if held.rank != count {
                        held.rank = count;
                        held.since = now;
                    }
                    return;
                }
                let group = self.frames.iter().flatten().filter(|held| held.rank > 0);
                if group.clone().count() >= limit {
                    let Some(lowest) = group.map(|held| (held.rank, held.since, held.page)).min() else {
                        return;
                    };
                    if lowest.0 >= count {
                        return;
                    }
                    let lowest = self.frames.iter_mut().flatten().find(|held| held.page == lowest.2).unwrap();
                    lowest.rank = 0;
                    lowest.since = now;
                }
                let since = self.now();
                let held = self.held(frame);
                held.rank = count;
                held.since = since;
                held.young = true;
            }
        }
    }

    fn evict(&mut self, worker: usize) -> usize {
        let order = |held: &Held| (held.rank, held.since);
        let victim = (0..self.frames.len()).filter(|&frame| self.frames[frame].is_some());
        let victim = victim.min_by_key(|&frame| self.frames[frame].as_ref().map(order)).unwrap();
        let held = self.frames[victim].take().unwrap();
        self.counts.evictions += 1;
        self.counts.written_back += u64::from(held.dirty);
        self.counts.remote_invalidations +=
            held.workers.iter().filter(|&&other| other != worker).count() as u64;
        self.evictions += 1;
        if matches!(self.kind, Kind::Cmcp { .. }) && self.evictions.is_multiple_of(16) {
            let (now, frame) = (self.now(), self.hand);
            self.hand = (self.hand + 1) % self.frames.len();
            if let Some(held) = self.frames[frame].as_mut() {
                if held.rank > 0 && !held.young {
                    held.rank = 0;
                    held.since = now;
                }
                held.young = false;
            }
        }
        victim
    }

    pub(crate) fn tick(&mut self) {
        let visits = match self.kind {
            Kind::Fifo | Kind::Cmcp { .. } => 0,
            Kind::Lru { scan, .. } => scan.min(self.frames.len()),
        };
        for _ in 0..visits {
            let now = self.now();
            let active = self.frames.iter().flatten().filter(|held| held.rank > 0).count();
            let inactive = self.frames.iter().flatten().count() - active;
            let frame = self.hand;
            self.hand = (self.hand + 1) % self.frames.len();
            let Some(held) = self.frames[frame].as_mut() else { continue };
            if !held.young {
                held.young = true;
                self.counts.scan_unmappings += 1;
                self.counts.remote_invalidations += held.workers.len() as u64;
                held.workers.clear();
            } else if held.rank > 0
                && (active > inactive || matches!(self.kind, Kind::Lru { linux: true, .. }))
            {
                held.rank = 0;
                held.since = now;
            }
        }
    }

    pub(crate) fn distribution(&self) -> Vec<u64> {
        let most = self.ever.values().map(BTreeSet::len).max().map_or(0, |most| most + 1);
        (0..most).map(|count| self.ever.values().filter(|ever| ever.len() == count).count() as u64).collect()
    }
}

/// The fewest major faults any policy could have: Belady's MIN, which knows the future.
#[allow(dead_code)]
pub(crate) fn min(pages: &[u64], frames: usize) -> u64 {
    let mut resident: Vec<u64> = Vec::new();
    let mut faults = 0;
    for (index, page) in pages.iter().enumerate() {
        if resident.contains(page) {
            continue;
        }
        faults += 1;
        if resident.len() == frames {
            let next =
                |page: &u64| pages[index..].iter().position(|later| later == page).unwrap_or(usize::MAX);
            let last = (0..frames).max_by_key(|&slot| next(&resident[slot])).unwrap();
            resident.swap_remove(last);
        }
        resident.push(*page);
    }
    faults
}
