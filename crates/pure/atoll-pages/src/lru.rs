//! Least recently used as Linux approximates it: an active and an inactive list, and a periodic scan that sees uses.
//!
//! The policy CMCP is compared against (`papers/cmcp.txt`, sections 5.1 and 5.5).
//!
//! * A new page joins the inactive list.
//! * Every tick the scan visits the next `scan` frames, round and round by number. A visited page that is mapped
//!   has its mappings dropped. If it is used again it faults, and that fault is the use being seen: from the
//!   inactive list the page moves to the active one, in the active list it becomes the newest.
//! * An active page found still unmapped, so unused for a whole round of the scan, moves back to the inactive list
//!   if the active one is the longer of the two.
//! * The victim is the oldest inactive page; only when there is none, the oldest active one.
//!
//! `lru:linux` does as older Linux kernels do with pages that have no file: a new page joins the active list, and a page found unused for
//! a whole round of the scan leaves that list, however long it is. A page that is used once and never again so stays
//! for a round, and no page of a sweep leaves before others that nobody wants any more. On the paper's programs it brings as many pages
//! as FIFO or more, where the paper's LRU brings as few as `lru` does.
//!
//! x86 has an accessed bit and we have not, from user space; dropping the mapping costs what clearing that bit
//! costs there: a remote TLB invalidation in every worker of the core map, which is the paper's point.

use core::fmt;

use crate::links::Links;
use crate::policy::{Policy, Wants};
use crate::spec::{Options, SpecError};
use crate::storage::Storage;

/// Options of [`Lru`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LruOptions {
    /// Frames visited in one tick, at least 1. The default of 1024 bounds a tick to about a millisecond at 1.2 µs a
    /// page.
    pub scan: u32,
    /// New pages are active, and unused ones are not, as in the Linux kernel.
    pub linux: bool,
}

impl Options for LruOptions {
    type Policy<'a> = Lru<'a>;
    const NAME: &'static str = "lru";
    const DEFAULT: Self = Self { scan: 1024, linux: false };
    const LISTS: usize = 2;
    const TAGGED: bool = true;
    const WANTS: Wants = Wants {
        mapped: true,
        dropped_mappings: true,
        exact_counts: true,
        second_chance: true,
        ..Wants::NOTHING
    };

    fn set(&mut self, key: &str, value: &str) -> Result<(), SpecError> {
        if key != "scan" {
            return Err(SpecError::UnknownOption { policy: Self::NAME, known: "scan, linux" });
        }
        let wrong = SpecError::WrongValue { option: "scan", expected: "a number of frames from 1" };
        self.scan = value.parse().ok().filter(|&scan| scan > 0).ok_or(wrong)?;
        Ok(())
    }

    fn turn_on(&mut self, key: &str) -> Result<(), SpecError> {
        self.linux |= key == "linux";
        if key == "linux" { Ok(()) } else { Err(SpecError::MissingValue) }
    }

    fn build(self, storage: Storage<'_>) -> Lru<'_> {
        let links = Links::new(storage.next, storage.prev, storage.frames);
        Lru { links, tag: storage.tag, len: [0; 2], hand: 0, options: self }
    }
}

impl fmt::Display for LruOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAME)?;
        let scan = self.scan != Self::DEFAULT.scan;
        if self.linux {
            f.write_str(":linux")?;
        }
        match scan {
            true => write!(f, "{}scan={}", if self.linux { "," } else { ":" }, self.scan),
            false => Ok(()),
        }
    }
}

const INACTIVE: u32 = 0;
const ACTIVE: u32 = 1;

// A tag is the list's number and these. A page fetched ahead of its use has neither: its first mapping is its
// arrival, not a second use.
const MAPPED: u32 = 2;
const UNMAPPED_BY_SCAN: u32 = 4;

/// The LRU approximation; 12 bytes a frame. A restored victim becomes the newest inactive page.
#[derive(Debug)]
pub struct Lru<'a> {
    links: Links<'a>,
    tag: &'a mut [u32],
    len: [u32; 2],
    /// The frame the next tick visits first.
    hand: u32,
    options: LruOptions,
}

impl Lru<'_> {
    fn list(&self, frame: u32) -> u32 {
        self.tag[frame as usize] & ACTIVE
    }

    fn enter(&mut self, frame: u32, list: u32, flags: u32) {
        self.links.push_back(list, frame);
        self.tag[frame as usize] = list | flags;
        self.len[list as usize] += 1;
    }

    fn leave(&mut self, frame: u32) {
        self.links.unlink(frame);
        self.len[self.list(frame) as usize] -= 1;
    }
}

impl Policy for Lru<'_> {
    fn insert(&mut self, frame: u32, mappers: u32) {
        if self.links.is_linked(frame) {
            self.mapped(frame, mappers);
        } else {
            // What is fetched ahead of its use is no part of a working set yet.
            let list = if self.options.linux && mappers > 0 { ACTIVE } else { INACTIVE };
            self.enter(frame, list, if mappers > 0 { MAPPED } else { 0 });
        }
    }

    fn mapped(&mut self, frame: u32, _mappers: u32) {
        if !self.links.is_linked(frame) {
            return;
        }
        if self.tag[frame as usize] & UNMAPPED_BY_SCAN != 0 {
            self.leave(frame);
            self.enter(frame, ACTIVE, MAPPED);
        } else {
            self.tag[frame as usize] |= MAPPED;
        }
    }

    fn peek(&self) -> Option<u32> {
        self.links.front(INACTIVE).or_else(|| self.links.front(ACTIVE))
    }

    fn evict(&mut self) -> Option<u32> {
        let victim = self.peek()?;
        self.leave(victim);
        Some(victim)
    }

    fn remove(&mut self, frame: u32) {
        if self.links.is_linked(frame) {
            self.leave(frame);
        }
    }

    fn scan(&mut self, unmap: &mut dyn FnMut(u32)) {
        let frames = self.links.frames();
        for _ in 0..self.options.scan.min(frames) {
            let frame = self.hand;
            self.hand = if frame + 1 < frames { frame + 1 } else { 0 };
            if !self.links.is_linked(frame) {
                continue;
            }
            let tag = self.tag[frame as usize];
            if tag & MAPPED != 0 {
                self.tag[frame as usize] = (tag & ACTIVE) | UNMAPPED_BY_SCAN;
                unmap(frame);
            } else if tag & ACTIVE != 0
                && (self.options.linux || self.len[ACTIVE as usize] > self.len[INACTIVE as usize])
            {
                self.leave(frame);
                self.enter(frame, INACTIVE, UNMAPPED_BY_SCAN);
            }
        }
    }

    fn len(&self) -> usize {
        (self.len[0] + self.len[1]) as usize
    }

    fn contains(&self, frame: u32) -> bool {
        self.links.is_linked(frame)
    }

    fn name(&self) -> &'static str {
        LruOptions::NAME
    }
}
