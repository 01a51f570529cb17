//! The pager: brings pages into near memory when a worker touches them and takes others out to make room.
//!
//! `fault` is the way in, `evict` the way out, `release` what a freed block does, `pin` what a system call needs,
//! `scan` what LRU does every 10 ms. Decisions are `atoll-pages`'; where evicted pages go is `far`'s.
//!
//! [`Pager`] is made of parts with a trade each: `places` translates addresses and page numbers, `pages` has the shared page table and
//! the frames, `tables` the workers' page tables, `room` the frames that are free and the policy, `pinned` what else is near,
//! `executor` what each worker has for itself, `far_side` far memory, `node_rights` what a node may do.
//!
//! Locks, all of them: the page lock (a busy [`page_word`]) and the room lock (policy and free frames). A fault
//! takes the first; the second is taken once for a batch of evictions, with pages only ever try-locked under it,
//! so neither waits for the other in a circle.

mod around;
mod copy_out;
mod cover;
mod evict;
pub mod executor;
mod far_side;
pub mod fault;
mod footprint;
pub mod frames;
mod give_back;
mod held;
mod huge;
mod huge_evict;
mod huge_fetch;
mod huge_first;
mod huge_split;
mod in_place;
mod kernel_maps;
pub(crate) mod leaving;
#[cfg(all(test, loom))]
mod model;
pub mod node_copies;
pub mod node_rights;
pub mod node_runs;
mod page_map;
mod page_pipe;
pub mod page_word;
mod pages;
pub mod parked;
pub mod pin;
mod pinned;
mod places;
pub(crate) mod probe;
pub mod protections;
pub mod release;
pub mod room;
pub mod sample;
pub mod scan;
mod sync;
mod tables;
pub(crate) mod threads;
mod unmap;
mod whole;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use atoll_pages::{AnyPolicy, neighbours};

use crate::arena_files::ArenaFiles;
use crate::control::{Control, MAX_WORKERS};
use crate::far::{AnyFar, FarStore};
use crate::layout;
use crate::uffd::Uffd;
use far_side::FarSide;
use frames::Frames;
use huge::HugePages;
use in_place::InPlace;
pub use in_place::guards_are_possible;
use node_rights::NodeRights;
use page_map::Mapped;
use page_word::Word;
use pages::Pages;
use pinned::Pinned;
use places::Places;
use protections::Protections;
use room::Near;
use tables::Tables;

/// What a pager is made of: memory that all workers share, and what was built over it.
pub(crate) struct Parts {
    /// An entry for each page, zeroed.
    pub(crate) words: &'static [Word],
    /// A bit for each 512 pages, zeroed.
    pub(crate) touched: &'static [AtomicU64],
    /// A word for each 2 MiB of the pages, zeroed.
    pub(crate) stretches: &'static [AtomicU64],
    /// Two bits for each 4K of the pages, and a bit for each chunk of these, zeroed.
    pub(crate) protections: (&'static [AtomicU64], &'static [AtomicU64]),
    pub(crate) frames: Frames,
    /// Frames there are at most; `free` has an entry for each.
    pub(crate) frame_limit: u32,
    pub(crate) free: &'static mut [u32],
    pub(crate) leaving: leaving::Leaving,
    pub(crate) announced: leaving::Announced,
    pub(crate) policy: AnyPolicy<'static>,
    pub(crate) executors: executor::Executors,
    pub(crate) far: AnyFar,
    pub(crate) drops: &'static scan::DropRing,
    pub(crate) probe: probe::Probe,
}

/// All shared state of paging; one for the program, in memory that every worker shares.
pub struct Pager {
    control: &'static Control,
    places: Places,
    pages: Pages,
    tables: Tables,
    near: Near,
    pinned: Pinned,
    executors: executor::Executors,
    far: FarSide,
    /// Whether a 4K page that is near already is mapped with its neighbours.
    map_around: bool,
    huge: HugePages,
    protections: Protections,
    drops: &'static scan::DropRing,
    /// Pages that are about to leave: whoever maps them is to drop them.
    announced: leaving::Announced,
    /// Only in runs on several nodes.
    rights: OnceLock<NodeRights>,
}

// SAFETY: shared by design; the raw pointer leads to executors, each used by one worker only.
unsafe impl Sync for Pager {}
// SAFETY: as above.
unsafe impl Send for Pager {}

/// Why a fault could not be resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultError {
    /// The address is not paged memory: the fault is the program's own.
    NotOurs,
    /// A signal waits for this worker, which is to handle it first; the fault comes again.
    Interrupted,
    /// Far memory failed while fetching or making room.
    Far(crate::far::FarError),
    /// Everything near is pinned.
    NoRoom,
    /// More threads of the program's own use paged memory at once than [`MAX_THREADS`](crate::control::MAX_THREADS).
    TooManyThreads,
    /// The near limit is less than what must be near: bytes of pinned memory, of tables, and of both with the
    /// fewest pages a program can run in.
    NearTooSmall {
        /// Pinned shared memory.
        pinned: u64,
        /// The pager's tables.
        tables: u64,
        /// The least near limit.
        least: u64,
    },
    /// The kernel refused: out of memory on this machine, or worse.
    Kernel(crate::sys::Errno),
    /// The kernel refused, and a page's content is lost: the program must end.
    Lost(crate::sys::Errno),
}

impl Pager {
    pub(crate) fn new(control: &'static Control, files: ArenaFiles, parts: Parts) -> Pager {
        let shift = control.settings.page_shift;
        let near = Near::new(parts.policy, parts.leaving, parts.free, parts.frame_limit);
        let map_around = neighbours::are_mapped_together(
            shift,
            control.settings.near_bytes != u64::MAX,
            control.settings.sample_period_ns != 0,
            near.wants,
        );
        let kernel_maps =
            if kernel_maps::are_possible(&control.settings, near.wants) { Mapped::open() } else { None };
        let in_place = InPlace::of(&control.settings, &parts.far, kernel_maps.is_some());
        Pager {
            control,
            places: Places::new(shift, files),
            pages: Pages::new(parts.words, parts.touched, parts.frames),
            tables: Tables::new(control.settings.shared_tables(), kernel_maps),
            near,
            pinned: Pinned::new(),
            executors: parts.executors,
            far: FarSide::new(parts.far, parts.probe, in_place),
            map_around,
            huge: HugePages::new(parts.stretches, shift, in_place, control.settings.near_bytes != u64::MAX),
            protections: Protections::new(parts.protections.0, parts.protections.1),
            drops: parts.drops,
            announced: parts.announced,
            rights: OnceLock::new(),
        }
    }

    /// Bytes of a page.
    #[inline]
    pub fn page_bytes(&self) -> usize {
        self.places.page_bytes()
    }

    /// Whether the program's memory is a segment, so that nothing is ever paged.
    #[inline]
    pub fn is_segment(&self) -> bool {
        self.control.settings.segment.is_on()
    }

    /// The last page that `start..end`, addresses of one stretch of memory, has a part of; `first` is the page of `start`.
    fn last_of(&self, first: u32, start: usize, end: usize) -> u32 {
        first + ((end - 1 - (start & !(self.page_bytes() - 1))) >> self.places.shift) as u32
    }

    /// The page that holds `address`, if it is paged memory.
    #[inline]
    pub fn page_at(&self, address: usize) -> Option<u32> {
        self.places.page_at(address)
    }

    /// The part of `start..start + len` that is paged memory and comes first; `None` where no part of it is.
    pub fn first_paged(&self, start: usize, len: usize) -> Option<(usize, usize)> {
        self.places.first_paged(start, len)
    }

    /// Where `page` lies, and the end of the stretch it lies in: one mapping of one file.
    #[inline]
    pub fn address_of(&self, page: u32) -> (usize, usize) {
        self.places.address_of(page)
    }

    /// The pages of the stretch of addresses that `page` lies in; none where it is no stretch's.
    pub fn stretch(&self, page: u64) -> Option<std::ops::RangeInclusive<u64>> {
        self.places.stretch(page)
    }

    /// The arena's files.
    pub fn files(&self) -> ArenaFiles {
        self.places.files
    }

    /// Tells the pager which file holds pinned memory, whose size counts against the near limit.
    pub fn set_pinned_file(&self, fd: i32) {
        self.pinned.set_file(fd);
    }

    /// The descriptor of the file in which pinned memory lies, if it lies in one.
    pub fn pinned_file(&self) -> Option<i32> {
        self.pinned.file()
    }

    /// Tells the pager that pinned memory lies in no file: it is all of the process's private memory.
    pub fn set_pinned_private(&self) {
        self.pinned.set_private();
    }

    /// Page table `table` is served through `uffd` from now on: its stretches are registered there.
    ///
    /// # Errors
    /// The kernel's refusal to register.
    pub fn attach_table(&self, table: usize, uffd: Uffd) -> Result<(), crate::sys::Errno> {
        self.attach_table_of(table, uffd, &[(layout::ARENA, layout::ARENA + layout::ARENA_BYTES)])
    }

    /// The same where only these parts of the arena, each from one address to another, are its own in the calling process.
    ///
    /// # Errors
    /// The kernel's refusal to register.
    pub fn attach_table_of(
        &self,
        table: usize,
        uffd: Uffd,
        parts: &[(usize, usize)],
    ) -> Result<(), crate::sys::Errno> {
        if !self.pages.frames.make_room_for(table) {
            return Err(crate::sys::Errno(libc::EAGAIN));
        }
        for &(start, end) in parts {
            self.tables.register(uffd, start, end - start)?;
        }
        self.tables.attach(table, uffd);
        self.register_ranges(table)
    }

    /// Puts the arena's own pages back at `at..at + len` (whole 4K, of the arena proper) in page table `table`, which must be the
    /// calling process's, where something else was mapped over them.
    ///
    /// # Errors
    /// The kernel's refusal to map or to register.
    pub fn map_again(&self, table: usize, at: usize, len: usize) -> Result<(), crate::sys::Errno> {
        // SAFETY: the arena's own pages at their own place; who mapped over them gives that up.
        unsafe { self.places.files.map(at, (at - layout::ARENA) as u64, len, libc::MAP_FIXED)? };
        self.tables.register(self.tables.uffd(table), at, len)?;
        // Now the mapping is as those around it, so that the kernel makes them one. It moves no page that lies in two of them.
        crate::sys::in_core_files(at, len, false);
        self.uncover(at, at + len);
        Ok(())
    }

    /// Registers all stretches outside the arena for page table `table`, those published since it was attached too.
    ///
    /// # Errors
    /// The kernel's refusal to register.
    pub fn register_ranges(&self, table: usize) -> Result<(), crate::sys::Errno> {
        let uffd = self.tables.uffd(table);
        self.places.try_for_each_range(|start, len| self.tables.register(uffd, start, len))
    }

    /// Reserves page numbers for `start..end` (whole pages) outside the arena: the offset in the arena's files at
    /// which the caller maps them. `None`: no numbers left, or no room for the agent's view of them. The stretch is paged
    /// once [`publish_range`](Self::publish_range) was called.
    pub fn reserve_range(&self, start: usize, end: usize) -> Option<(u32, u64)> {
        let pages = ((end - start) >> self.places.shift) as u32;
        let first = self.places.next(start, pages, self.pages.count())?;
        self.map_alias(first, end - start).ok()?;
        self.places.set_next(first + pages);
        Some((first, self.places.offset(first)))
    }

    /// Reserves page numbers as [`reserve_range`](Self::reserve_range) does, for a stretch whose last 16 MiB are to lie in one of the
    /// files.
    pub fn reserve_range_to_stripe(&self, start: usize, end: usize) -> Option<(u32, u64)> {
        self.places.skip_to_stripe(((end - start) >> self.places.shift) as u32)?;
        self.reserve_range(start, end)
    }

    /// Makes a reserved stretch paged. Only before workers exist.
    pub fn publish_range(&self, start: usize, end: usize, first_page: u32) {
        self.places.publish(start, end, first_page);
        self.is_one_block(start, end);
    }

    /// Makes executor `index`, which counts for worker `worker`. In the thread that will use it, on page table `table`. `is_alone`:
    /// nothing else runs on that table while it works, unless threads of the program share tables.
    ///
    /// # Errors
    /// The far store refuses one more user.
    ///
    /// # Safety
    /// Called once for each index.
    pub unsafe fn make_executor(
        &self,
        index: usize,
        table: usize,
        is_alone: bool,
        worker: usize,
    ) -> Result<(), crate::far::FarError> {
        let mut lane = self.far.store.lane(index as u32)?;
        lane.attach()?;
        let figures = &self.control.figures[worker.min(MAX_WORKERS)];
        // SAFETY: once, by the caller.
        unsafe { self.executors.make(index, lane, figures, table, is_alone) };
        Ok(())
    }

    /// The executor with number `index`: workers from 0, then other threads from [`MAX_WORKERS`].
    ///
    /// # Safety
    /// The executor was made by [`make_executor`](Self::make_executor).
    /// Only that worker (or handler thread) may use it, and only one reference at a time.
    #[expect(clippy::mut_from_ref, reason = "executors are disjoint; the caller owns this one")]
    pub unsafe fn executor(&self, index: usize) -> &mut executor::Executor {
        // SAFETY: index is below the number of executors; exclusivity by the caller.
        unsafe { &mut *self.executors.at.add(index) }
    }

    /// Several threads of the program run on one page table from now on: by design, or since it made threads of
    /// its own.
    pub fn set_threads_share_tables(&self) {
        self.tables.share();
    }

    /// Whether near memory has been used up at some time, so that each page that comes needs another one's place.
    pub fn is_full(&self) -> bool {
        self.near.full.load(Ordering::Relaxed)
    }

    /// Whether there is a near limit, so that pages are evicted.
    #[inline]
    fn limited(&self) -> bool {
        self.control.settings.near_bytes != u64::MAX
    }

    /// Checks that everything that must be near fits the limit, with the least number of pages. A limit that the machine sets now
    /// may be larger soon, so nothing is refused for it.
    ///
    /// # Errors
    /// [`FaultError::NearTooSmall`] with what must be near.
    pub fn check_near(&self) -> Result<(), FaultError> {
        let near = self.control.settings.near_bytes;
        if self.control.settings.near_automatic != 0 {
            return Ok(());
        }
        let pinned = self.control.totals.pinned_bytes.load(Ordering::Relaxed);
        let tables = crate::arena::table_bytes();
        let least = pinned + tables + (u64::from(self.least_frames()) << self.places.shift);
        if near >= least { Ok(()) } else { Err(FaultError::NearTooSmall { pinned, tables, least }) }
    }

    /// The control block.
    pub fn control(&self) -> &'static Control {
        self.control
    }

    /// Far memory's state.
    pub fn far(&self) -> &AnyFar {
        &self.far.store
    }

    /// Brings the totals in the control block up to date.
    pub fn publish_totals(&self) {
        self.pinned_bytes();
        let t = &self.control.totals;
        let usage = self.far.store.usage();
        t.far_bytes.store(usage.pages_held << self.places.shift, Ordering::Relaxed);
        t.far_stored_bytes.store(usage.bytes_reserved, Ordering::Relaxed);
        t.far_plain_bytes.store(usage.bytes_plain, Ordering::Relaxed);
        t.table_bytes.store(crate::arena::table_bytes(), Ordering::Relaxed);
    }
}
