//! Replays a trace of page references against a policy and counts what it costs.
//!
//! Tests state exact counts with it, `atoll-machine` and `atoll profile` build on it. It does what `atoll-memory`
//! does with real faults: fetch on a major fault, map on a minor one, evict when no frame is free. What is counted
//! are the quantities of `papers/cmcp.txt`: table 1 (faults, remote TLB invalidations) and figure 6 (pages by
//! core-map count).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::core_map::CoreSet;
use crate::policy::Policy;

/// One use of a page by a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    /// Who, below `MAX_WORKERS`.
    pub worker: usize,
    /// The page's number.
    pub page: u64,
    /// Whether it writes.
    pub write: bool,
}

/// What a replay cost so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// References replayed.
    pub references: u64,
    /// Faults on pages that were far.
    pub major: u64,
    /// Faults on resident pages that the worker did not map.
    pub minor: u64,
    /// Pages evicted.
    pub evictions: u64,
    /// Evicted pages that were written since they were fetched.
    pub written_back: u64,
    /// Members of the core maps of pages unmapped, by eviction or scan, other than the worker who did it.
    pub remote_invalidations: u64,
    /// Pages unmapped by the policy's scan.
    pub scan_unmappings: u64,
}

#[derive(Debug, Default)]
struct Page {
    frame: Option<u32>,
    dirty: bool,
    token: Option<u32>,
    mapped: CoreSet,
    ever: CoreSet,
}

/// A near memory of frames, filled and emptied by a policy under a trace.
#[derive(Debug)]
pub struct Replay<P> {
    policy: P,
    pages: BTreeMap<u64, Page>,
    /// The page in each frame.
    held: Vec<Option<u64>>,
    free: Vec<u32>,
    counts: Counts,
}

impl<P: Policy> Replay<P> {
    /// An empty near memory of `frames` frames, at least one, under an empty policy that has room for as many.
    pub fn new(policy: P, frames: u32) -> Self {
        assert!(
            frames > 0 && policy.is_empty(),
            "a replay begins with an empty policy over at least one frame"
        );
        let held = alloc::vec![None; frames as usize];
        Self {
            policy,
            pages: BTreeMap::new(),
            held,
            free: (0..frames).rev().collect(),
            counts: Counts::default(),
        }
    }

    /// Replays one reference; returns whether it was a major fault.
    pub fn reference(&mut self, reference: Reference) -> bool {
        let Reference { worker, page: number, write } = reference;
        self.counts.references += 1;
        let resident = self.pages.get(&number).and_then(|page| page.frame);
        let major = resident.is_none();
        let frame = match resident {
            Some(frame) => frame,
            None => {
                let frame = self.free.pop().unwrap_or_else(|| self.evict(worker));
                self.held[frame as usize] = Some(number);
                self.counts.major += 1;
                frame
            }
        };
        let page = self.pages.entry(number).or_default();
        page.frame = Some(frame);
        page.dirty |= write;
        page.ever.insert(worker);
        if page.mapped.insert(worker) {
            let mappers = page.mapped.count();
            match (major, page.token.take()) {
                (true, Some(token)) => self.policy.insert_again(frame, mappers, token),
                (true, None) => self.policy.insert(frame, mappers),
                (false, _) => {
                    self.counts.minor += 1;
                    self.policy.mapped(frame, mappers);
                }
            }
        }
        major
    }

    /// The policy's periodic tick. No worker does it (the paper gives it hardware threads of its own), so every
    /// member of the core map of a page it unmaps gets a remote invalidation.
    pub fn tick(&mut self) {
        let Self { policy, pages, held, counts, .. } = self;
        policy.scan(&mut |frame| {
            let Some(page) = held[frame as usize].and_then(|number| pages.get_mut(&number)) else { return };
            counts.scan_unmappings += 1;
            counts.remote_invalidations += u64::from(page.mapped.count());
            page.mapped = CoreSet::new();
        });
    }

    /// The program passes a mark.
    pub fn mark(&mut self, id: u32) {
        self.policy.mark(id);
    }

    /// The program frees a page.
    pub fn free(&mut self, number: u64) {
        if let Some(frame) = self.pages.remove(&number).and_then(|page| page.frame) {
            self.policy.remove(frame);
            self.held[frame as usize] = None;
            self.free.push(frame);
        }
    }

    /// What it cost so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The policy in its present state.
    pub fn policy(&self) -> &P {
        &self.policy
    }

    /// How many pages have been used by one worker, by two and so on, over the whole trace: entry `n` counts
    /// the pages of `n` workers. Entry 0 is 0.
    pub fn distribution(&self) -> Vec<u64> {
        let mut pages = Vec::new();
        for page in self.pages.values() {
            let count = page.ever.count() as usize;
            if pages.len() <= count {
                pages.resize(count + 1, 0);
            }
            pages[count] += 1;
        }
        pages
    }

    /// Evicts a page for `worker` and returns its frame. Only called when every frame holds a page.
    fn evict(&mut self, worker: usize) -> u32 {
        let Some(frame) = self.policy.evict() else {
            panic!("{} held frames and no victim: the policy has lost some", self.held.len())
        };
        self.counts.evictions += 1;
        if let Some(page) = self.held[frame as usize].take().and_then(|number| self.pages.get_mut(&number)) {
            let mine = u32::from(page.mapped.contains(worker));
            self.counts.remote_invalidations += u64::from(page.mapped.count() - mine);
            self.counts.written_back += u64::from(page.dirty);
            page.frame = None;
            page.dirty = false;
            page.mapped = CoreSet::new();
            page.token = Some(self.policy.token());
        }
        frame
    }
}
