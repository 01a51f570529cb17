//! Core-map count based priority replacement: pages that many workers map stay, and no use has to be observed.
//!
//! Takes only core-map counts, which per-worker page tables give for nothing; compare `lru`, which pays for its
//! knowledge. Source: `papers/cmcp.txt`, section 3 and figure 4; the role of p in section 5.6.
//!
//! * Frames are in a FIFO list or in the priority group, which is a bucket a core-map count, FIFO within a bucket.
//! * When a mapping arrives the page is tried for the group. There is room while the group holds less than the
//!   ratio p *of the capacity* (of all frames, not of those in use: the two are the same once near memory is full,
//!   and the limit does not move while it fills). Without room, a page with a larger count than the lowest priority
//!   page takes its place, and that one moves to the back of the FIFO list. Otherwise the page goes to the FIFO
//!   list, or keeps its place there: another mapping is no arrival.
//! * Pages fetched ahead of use (core-map count 0) go to the FIFO list and are tried when the first mapping comes.
//! * The victim is the oldest of the FIFO list; only when that is empty, the oldest of the lowest bucket.
//! * Aging, by evictions: at every 16th a hand passes over one frame. A prioritised page it meets for the second time
//!   since a mapping of it arrived moves to the back of the FIFO list. So every prioritised page falls back after one
//!   to two rounds, in which 16 to 32 times as many pages leave as there are frames, however high its count.
//!   Nothing ages while nothing leaves, and a slower program or machine ages its pages no faster: the paper only says
//!   "slowly", and a clock that ticks by time makes the same program another one where its steps are shorter.
//!   Taking the lowest pages instead would never reach high counts while new low ones arrive, which is the monopoly
//!   aging is there to prevent; taking turns among the buckets would age thinly filled ones, usually those of high counts,
//!   far faster than the others.

use core::fmt;

use crate::core_map::MAX_WORKERS;
use crate::links::Links;
use crate::policy::{Policy, Wants};
use crate::spec::{Options, SpecError};
use crate::storage::Storage;

/// Evictions for which the aging hand passes over one frame. Assumed, as the paper says no number: a page stays in the group
/// while its program comes round to it several times, though near memory is filled anew more than once in between.
pub const AGING_EVICTIONS: u32 = 16;

/// Options of [`Cmcp`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CmcpOptions {
    /// The ratio of prioritised pages to the capacity, from 0 (which is FIFO) to 1. The best one depends on the
    /// program (section 5.6); the default is 0.5.
    pub p: f64,
}

impl CmcpOptions {
    /// The largest size of the priority group for `frames` frames.
    fn limit(self, frames: u32) -> u32 {
        // The nearest whole number; the conversion saturates, and takes what is not a number for 0.
        ((self.p * f64::from(frames) + 0.5) as u32).min(frames)
    }
}

impl Options for CmcpOptions {
    type Policy<'a> = Cmcp<'a>;
    const NAME: &'static str = "cmcp";
    const DEFAULT: Self = Self { p: 0.5 };
    const LISTS: usize = 1 + MAX_WORKERS;
    const TAGGED: bool = true;
    const WANTS: Wants = Wants { mapped: true, exact_counts: true, ..Wants::NOTHING };

    fn set(&mut self, key: &str, value: &str) -> Result<(), SpecError> {
        if key != "p" {
            return Err(SpecError::UnknownOption { policy: Self::NAME, known: "p" });
        }
        let wrong = SpecError::WrongValue { option: "p", expected: "a ratio from 0 to 1" };
        self.p = value.parse().ok().filter(|p| (0.0..=1.0).contains(p)).ok_or(wrong)?;
        Ok(())
    }

    fn build(self, storage: Storage<'_>) -> Cmcp<'_> {
        Cmcp {
            links: Links::new(storage.next, storage.prev, storage.frames),
            tag: storage.tag,
            filled: [0; MAX_WORKERS / 64],
            limit: self.limit(storage.frames),
            group: 0,
            len: 0,
            hand: 0,
            evictions: 0,
        }
    }
}

impl fmt::Display for CmcpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:p={}", Self::NAME, self.p)
    }
}

/// The list of regular pages; lists 1 to `MAX_WORKERS` are the buckets of the priority group.
const FIFO: u32 = 0;
/// In a tag, beside the list's number: a mapping arrived since the hand last passed.
const YOUNG: u32 = 1 << 31;

/// The CMCP policy; 12 bytes a frame. A restored victim is tried for the group like a new page.
#[derive(Debug)]
pub struct Cmcp<'a> {
    links: Links<'a>,
    tag: &'a mut [u32],
    /// A bit for every bucket that holds a page; bucket `n` is bit `n - 1`.
    filled: [u64; MAX_WORKERS / 64],
    /// The size the group may have.
    limit: u32,
    group: u32,
    len: u32,
    /// The frame the aging hand comes to next.
    hand: u32,
    /// Evictions since it last moved.
    evictions: u32,
}

impl Cmcp<'_> {
    /// The list `frame` is in.
    fn list(&self, frame: u32) -> u32 {
        self.tag[frame as usize] & !YOUNG
    }

    /// The lowest bucket that holds a page.
    fn lowest(&self) -> Option<u32> {
        let (word, bits) = (0..).zip(self.filled).find(|(_, bits)| *bits != 0)?;
        Some(word * 64 + bits.trailing_zeros() + 1)
    }

    fn enter(&mut self, frame: u32, list: u32) {
        self.links.push_back(list, frame);
        self.tag[frame as usize] = list;
        if list != FIFO {
            self.tag[frame as usize] |= YOUNG;
            self.filled[(list as usize - 1) / 64] |= 1 << ((list - 1) % 64);
            self.group += 1;
        }
    }

    fn leave(&mut self, frame: u32) {
        let list = self.list(frame);
        self.links.unlink(frame);
        if list != FIFO {
            if self.links.is_empty(list) {
                self.filled[(list as usize - 1) / 64] &= !(1 << ((list - 1) % 64));
            }
            self.group -= 1;
        }
    }

    fn demote(&mut self, frame: u32) {
        self.leave(frame);
        self.enter(frame, FIFO);
    }

    /// The hand passes over one frame.
    fn age(&mut self) {
        let frame = self.hand;
        self.hand = if frame + 1 < self.links.frames() { frame + 1 } else { 0 };
        if !self.links.is_linked(frame) || self.list(frame) == FIFO {
            return;
        }
        if self.tag[frame as usize] & YOUNG != 0 {
            self.tag[frame as usize] &= !YOUNG;
        } else {
            self.demote(frame);
        }
    }

    /// Makes room in the group for a page of this count, if there is none but the page deserves it.
    fn admits(&mut self, bucket: u32) -> bool {
        if bucket == FIFO {
            return false;
        }
        if self.group < self.limit {
            return true;
        }
        let Some(lowest) = self.lowest().filter(|&lowest| lowest < bucket) else { return false };
        if let Some(frame) = self.links.front(lowest) {
            self.demote(frame);
        }
        true
    }
}

/// The bucket for a core-map count; larger counts than a core map can have share the last.
fn bucket(mappers: u32) -> u32 {
    mappers.min(MAX_WORKERS as u32)
}

impl Policy for Cmcp<'_> {
    fn insert(&mut self, frame: u32, mappers: u32) {
        if self.links.is_linked(frame) {
            return self.mapped(frame, mappers);
        }
        let list = if self.admits(bucket(mappers)) { bucket(mappers) } else { FIFO };
        self.enter(frame, list);
        self.len += 1;
    }

    fn mapped(&mut self, frame: u32, mappers: u32) {
        if !self.links.is_linked(frame) {
            return;
        }
        let (from, to) = (self.list(frame), bucket(mappers));
        if from != FIFO {
            if from == to {
                self.tag[frame as usize] |= YOUNG;
            } else {
                self.leave(frame);
                self.enter(frame, to);
            }
        } else if self.admits(to) {
            self.leave(frame);
            self.enter(frame, to);
        }
    }

    fn peek(&self) -> Option<u32> {
        self.links.front(FIFO).or_else(|| self.links.front(self.lowest()?))
    }

    fn evict(&mut self) -> Option<u32> {
        let victim = self.peek()?;
        self.remove(victim);
        self.evictions += 1;
        if self.evictions == AGING_EVICTIONS {
            self.evictions = 0;
            self.age();
        }
        Some(victim)
    }

    fn remove(&mut self, frame: u32) {
        if self.links.is_linked(frame) {
            self.leave(frame);
            self.len -= 1;
        }
    }

    fn scan(&mut self, _unmap: &mut dyn FnMut(u32)) {}

    fn len(&self) -> usize {
        self.len as usize
    }

    fn contains(&self, frame: u32) -> bool {
        self.links.is_linked(frame)
    }

    fn name(&self) -> &'static str {
        CmcpOptions::NAME
    }
}
