//! Pages that are about to leave: every worker drops its own mappings of them first, so that evicting them interrupts nobody.
//!
//! Used by `evict`, which takes its victims from here, and by `fault`, where each worker does its part. Taking a page from a
//! page table that is in use on another CPU costs an interruption of that CPU, 17 to 21 µs on a virtual machine; a worker that
//! drops a mapping of its own page table interrupts nobody, as no other thread runs on that table. So victims are chosen some
//! hundred pages ahead of need, or a quarter of near memory where the policy guesses. They stay usable meanwhile: whoever touches one
//! maps it again, with its block, and that is a use the policy sees. So pages get the second chance that a kernel gives by the
//! hardware's bit for uses, which user space cannot read.
//!
//! Threads that share a page table are interrupted when one of them drops a mapping, once for a run of pages. `kernel_maps` says how they
//! have the second chance; where the kernel cannot help, they have it for a shorter queue of pages, each of which stays by a touch of its
//! own. Where pages stay where they lie, whole stretches of them are chosen (`whole`), and a huge page has its chance as one.
//!
//! A worker that has no fault for long drops nothing. What it maps waits for a second turn, while pages that nobody else maps leave, and
//! is then taken from it by interruption.
//!
//! Rules: no allocation, no locks the program could hold, no arena access, no printing.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use atoll_pages::pacing::{self, Ahead, Distance};
use atoll_pages::{Foresight, Policy};

use super::Pager;
use super::evict::{NO_VICTIM, VICTIMS, Victim};
use super::executor::{Executor, Lately};
use super::kernel_maps::Makers;
use super::page_map::Look;
use super::page_word::{self, PageWord, State};
use super::room::Room;
use super::unmap::{self, Stretches};

/// A page that is about to leave. The policy has given it up.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    page: u32,
    frame: u32,
    token: u32,
    /// The page's core-map count when it was chosen.
    count: u32,
    /// Whether the page's turn came while others still mapped it.
    is_late: bool,
    /// Pages that leave with it: those of a huge page, for which its first page stands; else 1. The huge page may be single pages by now.
    pages: u32,
}

/// The pages that are about to leave, oldest first. The room lock guards it.
pub(crate) struct Leaving {
    entries: &'static mut [Entry],
    first: usize,
    len: usize,
    /// Pages of all entries together.
    pages: usize,
    /// How many of the first entries had their mappings dropped by stretches: see `kernel_maps`. And their pages together.
    dropped: usize,
    dropped_pages: usize,
    /// How far ahead of need they are chosen, where the policy guesses.
    distance: Distance,
    /// Which threads made room of late.
    pub(super) makers: Makers,
    /// The rest of the stretch that leaves now, in pages: see `whole`.
    pub(super) stretch: Range<u32>,
    /// The first page of a huge page that leaves now, locked, beside the victims that were chosen last.
    pub(super) huge: Option<Victim>,
}

impl Leaving {
    /// How many entries near memory of `frames` needs.
    pub(crate) fn capacity(frames: u32) -> usize {
        pacing::most_leaving(frames) + VICTIMS
    }

    /// A queue in `entries`, as many as [`Self::capacity`] says.
    pub(crate) fn new(entries: &'static mut [Entry]) -> Leaving {
        Leaving {
            entries,
            first: 0,
            len: 0,
            pages: 0,
            dropped: 0,
            dropped_pages: 0,
            distance: Distance::default(),
            makers: Makers::default(),
            stretch: 0..0,
            huge: None,
        }
    }

    fn push(&mut self, entry: Entry) {
        debug_assert!(self.len < self.entries.len());
        let place = (self.first + self.len) % self.entries.len();
        self.entries[place] = entry;
        self.len += 1;
        self.pages += entry.pages as usize;
    }

    fn pop(&mut self) -> Option<Entry> {
        if self.len == 0 {
            return None;
        }
        let entry = self.entries[self.first];
        self.first = (self.first + 1) % self.entries.len();
        self.len -= 1;
        self.pages -= entry.pages as usize;
        if self.dropped > 0 {
            self.dropped -= 1;
            self.dropped_pages -= entry.pages as usize;
        }
        Some(entry)
    }

    /// The `index`-th entry, of those in use.
    fn entry(&self, index: usize) -> &Entry {
        &self.entries[(self.first + index) % self.entries.len()]
    }

    /// The page of the first entry whose mapping was not dropped.
    pub(super) fn next_to_drop(&self) -> Option<u32> {
        (self.dropped < self.len).then(|| self.entry(self.dropped).page)
    }

    /// The mapping of the entry that [`Self::next_to_drop`] returned is dropped.
    pub(super) fn was_dropped(&mut self) {
        self.dropped_pages += self.entry(self.dropped).pages as usize;
        self.dropped += 1;
    }

    /// Pages of the entries whose mappings were dropped.
    pub(super) fn dropped_pages(&self) -> usize {
        self.dropped_pages
    }

    /// The first pages of all entries, in their order.
    fn firsts(&self) -> impl Iterator<Item = u32> {
        (0..self.len).map(|index| self.entry(index).page)
    }

    /// Sorts the last `count` entries by page.
    fn sort_last(&mut self, count: usize) {
        if self.first + self.len > self.entries.len() {
            self.entries.rotate_left(self.first);
            self.first = 0;
        }
        let end = self.first + self.len;
        self.entries[end - count..end].sort_unstable_by_key(|entry| entry.page);
    }
}

/// Pages whose mappings workers are to drop: written under the room lock, read by each worker at its faults.
pub(crate) struct Announced {
    head: AtomicU32,
    /// A power of two of them.
    slots: &'static [AtomicU64],
}

impl Announced {
    pub(crate) fn new(slots: &'static [AtomicU64]) -> Announced {
        Announced { head: AtomicU32::new(0), slots }
    }

    fn put(&self, page: u32, frame: u32) {
        let head = self.head.load(Ordering::Relaxed);
        self.slots[head as usize % self.slots.len()]
            .store(u64::from(page) << 32 | u64::from(frame), Ordering::Relaxed);
        // Release: pairs with the Acquire in `drop_leaving`.
        self.head.store(head.wrapping_add(1), Ordering::Release);
    }
}

/// What became of a page that was about to leave.
enum Turn {
    /// The page leaves now.
    Leaves(Victim),
    /// The page was used meanwhile, or is pinned.
    Stays,
    /// Somebody works on the page.
    Busy,
    /// Another worker has not come to drop its mapping yet.
    Mapped,
    /// The page is not near any more.
    Gone,
}

impl Pager {
    /// Chooses victims, all of them locked; each was announced a while ago where there is somebody to hear of it.
    pub(super) fn choose(&self, room: &mut Room, x: &Executor, victims: &mut [Victim], target: u32) -> usize {
        let depth = self.leaving_depth(room, target);
        if depth == 0 && room.leaving.len == 0 {
            return self.choose_by_policy(room, &x.lately, victims, target);
        }
        let mut look = self.tables.kernel_maps.as_ref().map(Look::new);
        if look.is_none() {
            self.announce(room, &x.lately, depth + victims.len(), target);
        } else if room.leaving.pages < depth / 2 + victims.len() {
            let before = room.leaving.len;
            self.announce(room, &x.lately, depth + victims.len(), target);
            room.leaving.sort_last(room.leaving.len - before);
        }
        let mut count = 0;
        // Once around: what is busy goes to the end.
        for _ in 0..room.leaving.len {
            if count == victims.len() {
                break;
            }
            if look.is_some() && room.leaving.dropped == 0 {
                // Nobody can have used what was dropped just now: the rest waits, unless there is nothing else.
                if count > 0 {
                    break;
                }
                self.drop_ahead(&mut room.leaving, victims.len());
            }
            let Some(mut entry) = room.leaving.pop() else { break };
            let used = look.as_mut().is_some_and(|look| {
                let address = |page| self.places.address_of(page).0;
                let later = room.leaving.firsts().map(address);
                look.is_mapped(address(entry.page), self.leaves_with(entry.page) << self.places.shift, later)
            });
            match self.turn(entry, x, used) {
                Turn::Leaves(victim) => {
                    room.leaving.distance.judge(false, target);
                    if self.huge.is_huge(entry.page) {
                        room.leaving.huge = Some(victim);
                        break;
                    }
                    victims[count] = victim;
                    count += 1;
                }
                Turn::Stays => {
                    if used && let Some(victim) = self.used_and_let_go(room, &entry, x) {
                        room.leaving.huge = Some(victim);
                        break;
                    }
                    room.leaving.distance.judge(true, target);
                    room.policy.rescued(entry.frame, self.pages.frames.count(entry.frame), entry.token);
                }
                Turn::Busy => room.leaving.push(entry),
                Turn::Mapped => {
                    entry.is_late = true;
                    room.leaving.push(entry);
                }
                Turn::Gone => {}
            }
        }
        if look.is_some() {
            self.drop_ahead(&mut room.leaving, depth / 2);
        }
        count
    }

    /// How many pages are announced ahead of need: none where that is of no use.
    fn leaving_depth(&self, room: &Room, target: u32) -> usize {
        if self.places.shift >= 21 {
            return 0;
        }
        let kernel_maps = self.tables.kernel_maps.is_some();
        let is_known = match room.policy.foresight() {
            Foresight::Nothing => false,
            // To see what else is used costs little where whole stretches leave.
            Foresight::Returns => !self.guards_far_pages(),
            Foresight::NextUses => true,
        };
        let ahead = match (self.near.wants.second_chance, is_known) {
            (true, false) if self.tables.are_shared() && !kernel_maps => Ahead::GuessedShared,
            (true, false) => Ahead::Guessed,
            (true, true) => Ahead::Known,
            (false, _) => Ahead::Unasked,
        };
        // Where uses are not asked for, only an interruption is saved: a worker alone interrupts nobody, and threads that share a page
        // table are interrupted by either way.
        let none_is_saved = self.tables.are_shared() || self.control.workers.load(Ordering::Relaxed) < 2;
        let is_guessed = matches!(ahead, Ahead::Guessed | Ahead::GuessedShared);
        if none_is_saved && !kernel_maps && !is_guessed {
            return 0;
        }
        let most = pacing::leaving(target, self.batch(target), ahead);
        if is_guessed { room.leaving.distance.of(most) } else { most }
    }

    /// Asks the policy for victims until `wanted` pages are about to leave.
    fn announce(&self, room: &mut Room, lately: &Lately, wanted: usize, target: u32) {
        let wanted = wanted.min(room.leaving.entries.len());
        while room.leaving.pages < wanted {
            let mut chosen = [NO_VICTIM; VICTIMS + 1];
            let most = (wanted - room.leaving.pages).min(VICTIMS);
            let mut count = self.choose_by_policy(room, lately, &mut chosen[..most], target);
            if let Some(first) = room.leaving.huge.take() {
                chosen[count] = first;
                count += 1;
            }
            if count == 0 {
                return;
            }
            let chosen = &mut chosen[..count];
            // Neighbours together: who drops them does so in runs.
            chosen.sort_unstable_by_key(|v| v.page);
            for v in chosen {
                self.pages.frames.set_leaving(v.frame);
                page_word::unlock(self.pages.word(v.page), PageWord::resident(v.frame, v.habit));
                room.leaving.push(Entry {
                    page: v.page,
                    frame: v.frame,
                    token: v.token,
                    count: v.count,
                    is_late: false,
                    pages: self.leaves_with(v.page) as u32,
                });
                if self.tables.kernel_maps.is_none() {
                    self.announced.put(v.page, v.frame);
                }
            }
        }
    }

    /// How many pages leave with `page`, itself included. While the room is locked a huge page that is near stays one.
    pub(super) fn leaves_with(&self, page: u32) -> usize {
        if self.huge.is_huge(page) { self.huge.pages() } else { 1 }
    }

    /// What becomes of a page whose turn has come. `used`: it was seen to be used since it was announced.
    fn turn(&self, entry: Entry, x: &Executor, used: bool) -> Turn {
        let word = self.pages.word(entry.page);
        let frames = &self.pages.frames;
        let seen = page_word::load(word);
        match seen.state() {
            State::Busy => return Turn::Busy,
            // A page that was freed, and came again in the same frame, is none of those that leave: the policy has it, or knows it as a part of a huge page.
            State::Resident if seen.frame() == entry.frame && frames.queued(entry.frame) => {}
            _ => return Turn::Gone,
        }
        if frames.pinned(entry.frame)
            || self.huge.is_kept(entry.page, &x.lately)
            || used
            || self.near.wants.second_chance && !frames.leaving(entry.frame)
        {
            if !page_word::try_lock(word, seen) {
                return Turn::Busy;
            }
            frames.unqueue(entry.frame);
            page_word::unlock(word, seen);
            return Turn::Stays;
        }
        if !entry.is_late && self.is_mapped_elsewhere(x, entry.frame) {
            return Turn::Mapped;
        }
        match self.pages.lock_victim(entry.page, entry.frame, entry.token) {
            Some(victim) => Turn::Leaves(Victim { count: entry.count, ..victim }),
            None => Turn::Busy,
        }
    }

    /// A used huge page, locked, that the policy lets go all the same.
    fn used_and_let_go(&self, room: &mut Room, entry: &Entry, x: &Executor) -> Option<Victim> {
        let is_free = self.huge.is_huge(entry.page) && !self.huge.is_kept(entry.page, &x.lately);
        let goes = is_free && room.policy.lets_go();
        let victim = goes.then(|| self.pages.lock_victim(entry.page, entry.frame, entry.token)).flatten()?;
        Some(Victim { count: entry.count, ..victim })
    }

    /// Drops mappings of pages that were announced since this executor was here last, in the page table of its process. At the worker's
    /// own faults, when it holds no page.
    #[inline]
    pub(super) fn drop_leaving(&self, x: &mut Executor) {
        // Acquire: pairs with the Release in `put`.
        let head = self.announced.head.load(Ordering::Acquire);
        if x.heard != head {
            self.drop_announced(x, head);
        }
    }

    #[cold]
    fn drop_announced(&self, x: &mut Executor, head: u32) {
        let table = x.table;
        let kept = self.announced.slots.len();
        if head.wrapping_sub(x.heard) as usize > kept {
            x.heard = head.wrapping_sub(kept as u32);
        }
        let mut locked = [0; VICTIMS];
        let mut count = 0;
        while x.heard != head {
            let entry = self.announced.slots[x.heard as usize % kept].load(Ordering::Relaxed);
            let (page, frame) = ((entry >> 32) as u32, entry as u32);
            let word = self.pages.word(page);
            let seen = page_word::load(word);
            let may_be_mapped = match seen.state() {
                // Another worker may be dropping its own mapping: this worker goes on from here at its next fault.
                State::Busy => break,
                State::Resident => seen.frame() == frame && self.pages.frames.mapped_by(frame, table),
                State::Absent | State::Far => false,
            };
            if may_be_mapped && !page_word::try_lock(word, seen) {
                break;
            }
            x.heard = x.heard.wrapping_add(1);
            if !may_be_mapped {
                continue;
            }
            // Looked at again now that the page is locked.
            let frames = &self.pages.frames;
            if !frames.leaving(frame) || !frames.mapped_by(frame, table) || frames.pinned(frame) {
                page_word::unlock(word, seen);
                continue;
            }
            locked[count] = page;
            count += 1;
            if count == VICTIMS {
                self.drop_mappings_of(&locked, table);
                count = 0;
            }
        }
        self.drop_mappings_of(&locked[..count], table);
    }

    /// Drops the mappings of locked pages in `table`, the caller's, and unlocks them.
    fn drop_mappings_of(&self, pages: &[u32], table: usize) {
        let mut stretches = Stretches::new();
        // How many of the pages the stretches so far have.
        let mut ends = [0; VICTIMS];
        let mut count = 0;
        let mut first = 0;
        while first < pages.len() {
            let (at, end) = self.places.address_of(pages[first]);
            let run = pages[first..]
                .iter()
                .zip(pages[first]..)
                .take_while(|(page, next)| *page == next && self.places.address_of(**page).1 == end)
                .count();
            stretches.push(at, run << self.places.shift);
            first += run;
            ends[count] = first;
            count += 1;
        }
        let done = stretches.unmap(unmap::DROP);
        let dropped = if done == 0 { 0 } else { ends[done - 1] };
        for (index, page) in pages.iter().enumerate() {
            let word = self.pages.word(*page);
            // A locked word keeps its frame and its habit.
            let locked = page_word::load(word);
            if index < dropped {
                self.pages.frames.remove_mapper(locked.frame(), table);
            }
            page_word::unlock(word, PageWord::resident(locked.frame(), locked.habit()));
        }
    }
}
