//! Far memory in memory as long as there is some, and behind it in other hosts' memory, where anybody lends, and in a file: `auto`.
//!
//! The stores that do the work are `ram`, which costs a copy and no more, `compressed` with LZ4, and those of `behind`. A page is in one
//! of them at most. Memory has a budget, fixed when the run begins. Pages lie plainly in a part of it as long as the machine has plenty
//! of memory, and are compressed in the rest. Memory takes no more pages while the machine has little left. Where there are no lenders
//! and no file can be made memory has no budget. Where memory counts as near memory no page lies plainly in it, pages that do not shrink
//! go behind it, `split` says how much of the budget may be taken, and the oldest of what is there beyond that is moved behind it little by
//! little.
//!
//! A page that is to lie plainly in memory need not move: where the pager can, it leaves the page where it is, mapped by nobody, as a
//! kernel's swap cache has pages that left. That costs neither a copy out nor a copy back. These pages are packed, too, once the machine
//! has no longer plenty of memory.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::behind::Behind;
use super::compressed::CompressedStore;
use super::file::FileStore;
use super::lane::{Lane, Lanes};
use super::lz4::Lz4;
use super::page_set::PageSet;
use super::pressure::{self, Left};
use super::ram::RamStore;
use super::rest::{BATCH, Rest};
use super::shared::{Mapping, SharedWord};
use super::split::{From, Held, Split};
use super::{Access, FarConfig, FarError, FarStore, Transfer, Usage};
use crate::sys;

/// Pages that go behind memory without a try when it was full.
const SKIPPED: u32 = 64;
/// Bytes stored between two looks at what the machine has left.
const LOOK_BYTES: usize = 16 << 20;
/// One part in this number of the budget holds pages plainly.
const PLAIN_PART: u64 = 4;
/// That part is whole multiples of so many bytes, so that compressed memory, which goes by chunks, loses none of the rest.
const PLAIN_STEP: u64 = 16 << 20;
/// One batch in this number of those that move pages moves them behind memory, where pages could be moved within it as well.
const LEAVING_PART: u32 = 4;
/// Compressed memory has room for pages that come from behind it while so much of what it may take is free, one part in this number.
const ROOM_PART: u64 = 8;
/// The tiers by which the lanes count pages in compressed memory, and those that lie plainly in memory.
const MEMORY: usize = 0;
const PLAIN: usize = 2;

/// Shared by all workers.
#[repr(C)]
struct State {
    /// Pages that go straight behind memory from now on.
    skip: AtomicU32,
    /// Pages stored since the last look.
    since_look: AtomicU32,
    /// What the last look saw: a [`Left`].
    left: AtomicU32,
    /// Where the next page to be packed is looked for, in blocks of 64 pages.
    hand: AtomicU32,
    /// How much of its budget compressed memory may take, where that counts as near.
    split: Split,
    /// Not zero once a page could not be moved behind memory: no page is moved any more.
    sinks_no_more: AtomicU32,
    /// Not zero if pages are to be moved within compressed memory, since much of what that takes is free, and not behind it.
    gathers: AtomicU32,
    /// Batches of pages that were moved.
    moves: AtomicU32,
}

// SAFETY: atomics alone, less than a base page.
unsafe impl SharedWord for State {}

/// Memory with other stores behind it; see the module.
pub struct AutoStore {
    plain: RamStore,
    /// Pages that stay where they lie; they count as plain ones.
    in_place: PageSet,
    memory: CompressedStore<Lz4>,
    behind: Option<Behind>,
    lanes: Arc<Lanes>,
    state: Mapping,
    pages: u64,
    page_size: usize,
    /// The budget of compressed memory if that is taken off near memory, and pages may lie behind it.
    splits: Option<u64>,
}

impl AutoStore {
    /// Sets both stores up; in the master, before workers exist. Memory takes `memory_bytes` of the configuration at most; the limit is
    /// for both together.
    ///
    /// # Errors
    /// `Io` or `Unavailable` if memory cannot be mapped or the configuration makes no sense.
    pub fn new(config: &FarConfig) -> Result<Self, FarError> {
        config.check()?;
        let scratch_at = CompressedStore::<Lz4>::scratch_bytes(config);
        let lanes = CompressedStore::<Lz4>::lanes(config, Behind::scratch_bytes(config), FileStore::RING)?;
        let budget = config.memory_bytes.min(config.limit_bytes.unwrap_or(u64::MAX));
        let behind = FarConfig { limit_bytes: config.limit_bytes.map(|limit| limit - budget), ..*config };
        let behind = Behind::new(&behind, Arc::clone(&lanes), scratch_at)?;
        let plain_bytes =
            if config.counts_as_near { 0 } else { budget / PLAIN_PART / PLAIN_STEP * PLAIN_STEP };
        let plain = FarConfig { limit_bytes: Some(plain_bytes), ..*config };
        let limit_bytes = if behind.is_some() { Some(budget) } else { config.limit_bytes };
        let limit_bytes = limit_bytes.map(|limit| limit - plain_bytes);
        let memory = CompressedStore::with_lanes(&FarConfig { limit_bytes, ..*config }, Arc::clone(&lanes))?;
        let shrinks_all = config.counts_as_near && behind.is_some();
        Ok(Self {
            plain: RamStore::with_lanes(&plain, Arc::clone(&lanes), PLAIN)?,
            in_place: PageSet::new(config.pages, Arc::clone(&lanes), PLAIN, plain.limit_pages())?,
            memory: if shrinks_all { memory.without_raw() } else { memory },
            behind,
            lanes,
            state: Mapping::new(size_of::<State>() as u64, c"atoll far tiers", false)?,
            pages: config.pages,
            page_size: config.page_size,
            splits: if shrinks_all { limit_bytes } else { None },
        })
    }

    /// The split of near memory, where there is one, and the budget that it divides.
    fn split(&self) -> Option<(&Split, u64)> {
        Some((&self.state().split, self.splits?))
    }

    /// Decides how much memory compressed pages may take from now on, if it is time.
    fn divide(&self) {
        if let Some((split, all)) = self.split() {
            let memory_pages = self.lanes.held(MEMORY).load(Relaxed);
            split.decide(memory_pages, || Held {
                memory_pages,
                memory_bytes: self.memory.usage().bytes_after,
                behind_pages: self.behind.as_ref().map_or(0, Behind::pages_held),
                page_bytes: self.page_size as u64,
                step_bytes: Split::step(all),
                fetches: self.memory.take_fetches(Split::step(all)),
            });
        }
    }

    fn state(&self) -> &State {
        self.state.get(0)
    }

    /// Loads pages by `load`, and counts what that takes.
    fn timed(
        &self,
        from: From,
        pages: u64,
        load: impl FnOnce() -> Result<(), FarError>,
    ) -> Result<(), FarError> {
        let Some((split, _)) = self.split() else { return load() };
        let began = sys::ticks();
        load()?;
        split.loaded(from, pages, sys::ticks().wrapping_sub(began));
        Ok(())
    }

    /// How much memory the machine had left lately. To be asked for each page stored.
    fn left(&self) -> u32 {
        let state = self.state();
        // Racing workers may look once more or less: no harm.
        let stored = state.since_look.load(Relaxed) + 1;
        let look = stored as usize >= LOOK_BYTES / self.page_size;
        state.since_look.store(if look { 0 } else { stored }, Relaxed);
        if look {
            self.note_left(pressure::left());
        }
        state.left.load(Relaxed)
    }

    /// The machine has so much memory left, as far as the store knows until it looks again.
    pub fn note_left(&self, left: Left) {
        self.state().left.store(left as u32, Relaxed);
    }

    /// Whether the next page is to be tried in compressed memory, and whether that may take more memory for it.
    fn memory_takes_more(&self, left: u32) -> (bool, bool) {
        if self.behind.is_none() {
            return (true, true);
        }
        // Racing workers may skip once more or less: no harm.
        let state = self.state();
        let skip = state.skip.load(Relaxed);
        if skip > 0 {
            state.skip.store(skip - 1, Relaxed);
            if let Some((split, _)) = self.split() {
                split.refused();
            }
        }
        let opens = self.split().is_none_or(|(split, all)| self.memory.memory_bytes() < split.budget(all));
        let has_room = opens || self.memory.was_scattered();
        (skip == 0 && left != Left::Little as u32 && has_room, opens)
    }

    /// Has a page lie plainly in memory by `take`, so that no other tier holds it from now on; `None` if it is not to.
    fn plainly<T>(
        &self,
        page: u64,
        take: impl FnOnce() -> Result<T, FarError>,
    ) -> Result<Option<T>, FarError> {
        if self.left() != Left::Plenty as u32 {
            return Ok(None);
        }
        match take() {
            Ok(taken) => {
                self.forget_packed(page);
                Ok(Some(taken))
            }
            Err(FarError::Full) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The place for a page that is to be copied and lie plainly in memory.
    fn plain_place(&self, lane: &Lane, page: u64) -> Result<Option<*mut u8>, FarError> {
        let place = self.plainly(page, || self.plain.direct(lane, page, Access::Store))?;
        Ok(place.flatten())
    }

    /// Neither compressed memory nor what is behind it holds the page from now on.
    fn forget_packed(&self, page: u64) {
        if self.memory.holds(page) {
            self.memory.discard(page, 1);
        }
        if let Some(behind) = &self.behind {
            behind.forget(page);
        }
    }

    /// Stores a page in memory; `false` if it belongs behind it.
    fn store_in_memory(&self, lane: &mut Lane, transfer: Transfer) -> Result<bool, FarError> {
        if let Some(place) = self.plain_place(lane, transfer.page)? {
            // SAFETY: both have a page's bytes: near memory by the caller's contract, far memory as its store says. They never overlap.
            unsafe { std::ptr::copy_nonoverlapping(transfer.memory, place, self.page_size) };
            return Ok(true);
        }
        if self.plain.holds(transfer.page) {
            self.plain.discard(transfer.page, 1);
        }
        let Some(behind) = &self.behind else {
            return self.memory.store(lane, &[transfer]).map(|()| true);
        };
        let (is_tried, opens) = self.memory_takes_more(self.state().left.load(Relaxed));
        if is_tried {
            match self.memory.store_page(lane, &transfer, opens) {
                Ok(()) => {
                    behind.forget(transfer.page);
                    return Ok(true);
                }
                Err(FarError::Full) => {
                    self.state().skip.store(SKIPPED, Relaxed);
                    if let (Some((split, _)), true) = (self.split(), opens) {
                        split.refused();
                    }
                }
                Err(error) => return Err(error),
            }
        } else if self.memory.holds(transfer.page) {
            self.memory.discard(transfer.page, 1);
        }
        Ok(false)
    }

    /// What is behind memory takes no more pages than it has: memory may have room again.
    fn store_anywhere(&self, behind: &Behind, lane: &mut Lane, pages: &[Transfer]) -> Result<(), FarError> {
        for transfer in pages {
            match self.memory.store(lane, &[*transfer]) {
                Ok(()) => behind.forget(transfer.page),
                Err(FarError::Full) => behind.store(lane, &[*transfer])?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl FarStore for AutoStore {
    fn lane(&self, index: u32) -> Result<Lane, FarError> {
        self.lanes.lane(index)
    }

    fn store(&self, lane: &mut Lane, pages: &[Transfer]) -> Result<(), FarError> {
        self.lanes.enter(lane)?;
        self.memory.check_range(pages)?;
        for group in pages.chunks(BATCH) {
            let mut rest = Rest::new();
            let mut result = Ok(());
            for transfer in group {
                let began = self.splits.map(|_| sys::ticks());
                match self.store_in_memory(lane, *transfer) {
                    Ok(true) => {
                        if let (Some((split, _)), Some(began)) = (self.split(), began) {
                            split.stored(From::Memory, 1, sys::ticks().wrapping_sub(began));
                        }
                    }
                    Ok(false) => rest.push(*transfer),
                    Err(error) => result = Err(error),
                }
            }
            if let (Some(behind), false) = (&self.behind, rest.pages().is_empty()) {
                let began = self.splits.map(|_| sys::ticks());
                match behind.store(lane, rest.pages()) {
                    Err(FarError::Full) => self.store_anywhere(behind, lane, rest.pages())?,
                    done => done?,
                }
                if let (Some((split, _)), Some(began)) = (self.split(), began) {
                    let pages = rest.pages().len() as u64;
                    split.stored(From::Behind, pages, sys::ticks().wrapping_sub(began));
                }
            }
            result?;
        }
        Ok(())
    }

    fn load(&self, lane: &mut Lane, pages: &[Transfer]) -> Result<(), FarError> {
        self.lanes.enter(lane)?;
        self.memory.check_range(pages)?;
        for group in pages.chunks(BATCH) {
            let mut rest = Rest::new();
            for transfer in group {
                if self.plain.holds(transfer.page) {
                    self.plain.load(lane, &[*transfer])?;
                } else if self.behind.is_none() || self.memory.holds(transfer.page) {
                    self.memory.count_fetch(transfer.page);
                    self.timed(From::Memory, 1, || self.memory.load(lane, &[*transfer]))?;
                } else {
                    rest.push(*transfer);
                }
            }
            if let (Some(behind), false) = (&self.behind, rest.pages().is_empty()) {
                let pages = rest.pages();
                self.timed(From::Behind, pages.len() as u64, || behind.load(lane, pages))?;
            }
        }
        self.divide();
        Ok(())
    }

    fn discard(&self, first: u64, count: u64) {
        self.plain.discard(first, count);
        let _ = self.in_place.remove(first, count);
        self.memory.discard(first, count);
        if let Some(behind) = &self.behind {
            behind.discard(first, count);
        }
    }

    fn direct(&self, lane: &Lane, page: u64, access: Access) -> Result<Option<*mut u8>, FarError> {
        match access {
            Access::Store => self.plain_place(lane, page),
            Access::Load if page < self.pages && self.plain.holds(page) => {
                self.plain.direct(lane, page, access)
            }
            Access::Load => self.memory.direct(lane, page, access),
        }
    }

    fn leaves_in_place(&self) -> bool {
        self.in_place.limit() > 0
    }

    fn leave_in_place(&self, page: u64) -> Result<bool, FarError> {
        if page >= self.pages {
            return Err(FarError::OutOfRange { page });
        }
        let stays = self.plainly(page, || self.in_place.add(page))?.is_some();
        if stays && self.plain.holds(page) {
            self.plain.discard(page, 1);
        }
        Ok(stays)
    }

    fn leave_all_in_place(&self, first: u64, count: u64) -> Result<bool, FarError> {
        if first.saturating_add(count) > self.pages {
            return Err(FarError::OutOfRange { page: self.pages });
        }
        Ok(self.plainly(first, || self.in_place.add_all(first, count))?.is_some())
    }

    fn is_in_place(&self, page: u64) -> bool {
        self.in_place.has(page)
    }

    fn are_in_place(&self, first: u64, count: u64) -> bool {
        self.in_place.has_all(first, count)
    }

    fn next_to_pack(&self) -> Option<u64> {
        let state = self.state();
        if state.left.load(Relaxed) == Left::Plenty as u32 {
            return None;
        }
        // Racing workers may be told of the same page: its lock decides.
        let from = u64::from(state.hand.load(Relaxed)) * 64;
        let page = self.in_place.next(from).or_else(|| self.in_place.next(0))?;
        state.hand.store((page / 64) as u32, Relaxed);
        Some(page)
    }

    fn next_to_move(&self) -> Option<u64> {
        let state = self.state();
        let leaves = self.split().is_some_and(|(split, all)| {
            self.memory.memory_bytes() > split.most(all) || self.memory.grows_too_old()
        });
        let leaves = leaves && state.sinks_no_more.load(Relaxed) == 0;
        // What can be had within memory need not leave it; but some leave all the same, in case that there is little to be had.
        let gathers = !leaves || !state.moves.load(Relaxed).is_multiple_of(LEAVING_PART);
        let page = if gathers { self.memory.next_to_move() } else { None };
        state.gathers.store(page.is_some().into(), Relaxed);
        match page {
            None if leaves => self.memory.next_of_the_oldest(),
            page => page,
        }
    }

    fn move_pages(&self, lane: &mut Lane, pages: &[Transfer]) {
        // Racing workers may have looked again: a page moves in another way than it was chosen for, which does no harm.
        let state = self.state();
        state.moves.store(state.moves.load(Relaxed).wrapping_add(1), Relaxed);
        if state.gathers.load(Relaxed) != 0 {
            return self.memory.move_pages(lane, pages);
        }
        let Some(behind) = &self.behind else { return };
        for group in pages.chunks(BATCH) {
            let mut held = Rest::new();
            group.iter().filter(|transfer| self.memory.holds(transfer.page)).for_each(|it| held.push(*it));
            let moved = self.memory.load(lane, held.pages()).and_then(|()| behind.store(lane, held.pages()));
            match moved {
                Ok(()) => held.pages().iter().for_each(|transfer| self.memory.discard(transfer.page, 1)),
                Err(_) => state.sinks_no_more.store(1, Relaxed),
            }
        }
    }

    fn take_from_place(&self, first: u64, count: u64) {
        let _ = self.in_place.remove(first, count);
    }

    fn usage(&self) -> Usage {
        // The lanes count for all.
        let mut usage = self.memory.usage();
        let plain = self.lanes.held(PLAIN).load(Relaxed) * self.page_size as u64;
        usage.bytes_after += plain;
        usage.bytes_reserved += plain;
        usage.bytes_plain = plain;
        if let Some(behind) = &self.behind {
            usage.bytes_after += behind.pages_held() * self.page_size as u64;
            usage.bytes_reserved += behind.reserved_bytes();
        }
        usage
    }

    fn memory_bytes(&self) -> u64 {
        self.memory.memory_bytes() + self.lanes.held(PLAIN).load(Relaxed) * self.page_size as u64
    }

    /// A page that came from behind memory, and is not written, would leave to where it came from for ever: that is a read each time, of a
    /// page in use. So its copy there goes, too, while compressed memory has room and takes what it is given.
    fn let_go(&self, page: u64) -> bool {
        if self.memory.holds(page) {
            return self.memory.let_go(page);
        }
        let (Some(behind), Some((split, all))) = (&self.behind, self.split()) else { return true };
        let budget = split.budget(all);
        let goes = split.most_shrinks()
            && self.state().skip.load(Relaxed) == 0
            && (self.memory.was_scattered() || self.memory.memory_bytes() < budget - budget / ROOM_PART)
            && self.state().left.load(Relaxed) != Left::Little as u32;
        if goes {
            behind.forget(page);
        }
        !goes
    }

    fn borrows(&self) -> bool {
        self.behind.as_ref().is_some_and(Behind::borrows)
    }

    fn give_back(&self, lane: &mut Lane) -> bool {
        self.behind.as_ref().is_some_and(|behind| behind.give_back(lane))
    }
}
