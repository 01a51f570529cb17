//! The pager: brings pages into near memory when a worker touches them and takes others out to make room.
//!
//! `fault` is the way in, `evict` the way out, `release` what a freed block does, `pin` what a system call needs,
//! `scan` what LRU does every 10 ms. Decisions are `atoll-pages`'; where evicted pages go is `far`'s.
//!
//! Locks, all of them: the page lock (a busy [`page_word`]) and the room lock (policy and free frames). A fault
//! takes the first; the second is taken once for a batch of evictions, with pages only ever try-locked under it,
//! so neither waits for the other in a circle.

mod around;
mod copy_out;
mod evict;
pub mod executor;
pub mod fault;
mod footprint;
pub mod frames;
mod held;
mod leaving;
pub mod node_copies;
pub mod node_rights;
pub mod node_runs;
mod page_pipe;
pub mod page_word;
pub mod parked;
pub mod pin;
pub(crate) mod probe;
pub mod release;
pub mod room;
pub mod sample;
pub mod scan;
mod threads;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use atoll_pages::{AnyPolicy, Wants, neighbours};

use crate::arena_files::ArenaFiles;
use crate::control::{Control, MAX_WORKERS};
use crate::far::{AnyFar, FarStore};
use crate::layout;
use crate::spin::Spin;
use crate::uffd::Uffd;
use frames::Frames;
use node_rights::NodeRights;
use room::{Marks, Room};

/// A stretch of addresses whose pages are paged; page numbers are offsets in the arena's file.
struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
    first_page: AtomicU32,
}

/// Paged stretches besides the arena: large globals.
const MAX_RANGES: usize = 512;

/// All shared state of paging; one for the program, in memory that every worker shares.
pub struct Pager {
    shift: u32,
    files: ArenaFiles,
    control: &'static Control,
    words: &'static [AtomicU32],
    touched: &'static [AtomicU64],
    frames: Frames,
    ranges: [Range; MAX_RANGES],
    range_count: AtomicUsize,
    next_global_page: AtomicU32,
    uffds: [AtomicI32; MAX_WORKERS],
    room: Spin<Room>,
    /// Frames in use or in executors' caches.
    taken: AtomicU32,
    /// Bytes near memory may hold besides frames' pages: tables, pinned memory.
    frame_limit: u32,
    executors: executor::Executors,
    far: AnyFar,
    threads_of_program: threads::Threads,
    pinned_fd: AtomicI32,
    /// Bytes of this process's private memory that are a copy for another one.
    copied_bytes: AtomicU64,
    /// Several threads run on one page table.
    threads: AtomicBool,
    /// What the policy needs.
    wants: Wants,
    /// Whether a 4K page that is near already is mapped with its neighbours.
    map_around: bool,
    marks: Marks,
    /// Has near memory been full? Before, nothing leaves, and nobody asks which pages are used.
    full: AtomicBool,
    ram_direct: bool,
    last_age: scan::LastAge,
    drops: &'static scan::DropRing,
    /// Pages that are about to leave: whoever maps them is to drop them.
    announced: leaving::Announced,
    probe: probe::Probe,
    /// Only in runs on several nodes.
    rights: OnceLock<NodeRights>,
    /// Bytes of the node's twins, in runs on several nodes.
    twin_bytes: AtomicU64,
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
    #[expect(clippy::too_many_arguments, reason = "one caller, which made all the parts")]
    pub(crate) fn new(
        control: &'static Control,
        files: ArenaFiles,
        frame_limit: u32,
        words: &'static [AtomicU32],
        touched: &'static [AtomicU64],
        frames: Frames,
        policy: AnyPolicy<'static>,
        free: &'static mut [u32],
        executors: executor::Executors,
        far: AnyFar,
        drops: &'static scan::DropRing,
        probe: probe::Probe,
    ) -> Pager {
        let shift = control.settings.page_shift;
        let wants = policy.wants();
        let ram_direct = matches!(far, AnyFar::Ram(_));
        Pager {
            shift,
            files,
            control,
            words,
            touched,
            frames,
            ranges: [const {
                Range { start: AtomicUsize::new(0), end: AtomicUsize::new(0), first_page: AtomicU32::new(0) }
            }; MAX_RANGES],
            range_count: AtomicUsize::new(0),
            next_global_page: AtomicU32::new((layout::ARENA_BYTES >> shift) as u32),
            uffds: [const { AtomicI32::new(-1) }; MAX_WORKERS],
            wants,
            map_around: neighbours::are_mapped_together(
                shift,
                control.settings.near_bytes != u64::MAX,
                control.settings.sample_period_ns != 0,
                wants,
            ),
            marks: Marks::new(),
            full: AtomicBool::new(false),
            room: Spin::new(Room::new(policy, free)),
            taken: AtomicU32::new(0),
            frame_limit,
            executors,
            far,
            threads_of_program: threads::Threads::new(),
            pinned_fd: AtomicI32::new(-1),
            copied_bytes: AtomicU64::new(0),
            threads: AtomicBool::new(control.settings.shared_tables()),
            ram_direct,
            last_age: scan::LastAge::new(),
            drops,
            announced: leaving::Announced::new(),
            probe,
            rights: OnceLock::new(),
            twin_bytes: AtomicU64::new(0),
        }
    }

    /// Bytes of a page.
    #[inline]
    pub fn page_bytes(&self) -> usize {
        1 << self.shift
    }

    /// Is the program's memory a segment, so that nothing is ever paged?
    #[inline]
    pub fn is_segment(&self) -> bool {
        self.control.settings.segment.is_on()
    }

    /// The page that holds `address`, if it is paged memory.
    #[inline]
    pub fn page_at(&self, address: usize) -> Option<u32> {
        if layout::in_arena(address) {
            return Some(((address - layout::ARENA) >> self.shift) as u32);
        }
        self.ranges[..self.range_count.load(Ordering::Acquire)].iter().find_map(|r| {
            let (start, end) = (r.start.load(Ordering::Relaxed), r.end.load(Ordering::Relaxed));
            (start <= address && address < end)
                .then(|| r.first_page.load(Ordering::Relaxed) + ((address - start) >> self.shift) as u32)
        })
    }

    /// Does any paged memory lie in `start..start + len`? `None`: none; else the part of it that comes first.
    pub fn first_paged(&self, start: usize, len: usize) -> Option<(usize, usize)> {
        let end = start.checked_add(len)?;
        let mut first: Option<(usize, usize)> = None;
        let mut consider = |a: usize, b: usize| {
            let (a, b) = (a.max(start), b.min(end));
            if a < b && first.is_none_or(|(f, _)| a < f) {
                first = Some((a, b));
            }
        };
        consider(layout::ARENA, layout::ARENA + layout::ARENA_BYTES);
        for r in &self.ranges[..self.range_count.load(Ordering::Acquire)] {
            consider(r.start.load(Ordering::Relaxed), r.end.load(Ordering::Relaxed));
        }
        first
    }

    /// Where `page` lies, and the end of the stretch it lies in: one mapping of one file.
    #[inline]
    pub fn address_of(&self, page: u32) -> (usize, usize) {
        let arena_pages = (layout::ARENA_BYTES >> self.shift) as u32;
        let offset = self.offset(page);
        let left = (self.files.stripe_end(offset) - offset) as usize;
        if page < arena_pages {
            let at = layout::ARENA + offset as usize;
            return (at, (at + left).min(layout::ARENA + layout::ARENA_BYTES));
        }
        for r in &self.ranges[..self.range_count.load(Ordering::Acquire)] {
            let first = r.first_page.load(Ordering::Relaxed);
            let (start, end) = (r.start.load(Ordering::Relaxed), r.end.load(Ordering::Relaxed));
            let pages = ((end - start) >> self.shift) as u32;
            if page.wrapping_sub(first) < pages {
                let at = start + (((page - first) as usize) << self.shift);
                return (at, end.min(at + left));
            }
        }
        (0, 0)
    }

    /// The pages of the stretch of addresses that `page` lies in; none where it is no stretch's.
    pub fn stretch(&self, page: u64) -> Option<std::ops::RangeInclusive<u64>> {
        let arena_pages = (layout::ARENA_BYTES >> self.shift) as u64;
        if page < arena_pages {
            return Some(0..=arena_pages - 1);
        }
        self.ranges[..self.range_count.load(Ordering::Acquire)].iter().find_map(|r| {
            let first = u64::from(r.first_page.load(Ordering::Relaxed));
            let (start, end) = (r.start.load(Ordering::Relaxed), r.end.load(Ordering::Relaxed));
            let pages = first..=first + ((end - start) >> self.shift) as u64 - 1;
            pages.contains(&page).then_some(pages)
        })
    }

    #[inline]
    fn word(&self, page: u32) -> &'static AtomicU32 {
        &self.words[page as usize]
    }

    #[inline]
    fn offset(&self, page: u32) -> u64 {
        u64::from(page) << self.shift
    }

    #[inline]
    fn uffd(&self, table: usize) -> Uffd {
        Uffd(self.uffds[table].load(Ordering::Acquire))
    }

    /// The arena's files.
    pub fn files(&self) -> ArenaFiles {
        self.files
    }

    /// Tells the pager which file holds pinned memory, whose size counts against the near limit.
    pub fn set_pinned_file(&self, fd: i32) {
        self.pinned_fd.store(fd, Ordering::Relaxed);
    }

    /// Tells the pager that pinned memory lies in no file: it is all of the process's private memory.
    pub fn set_pinned_private(&self) {
        self.pinned_fd.store(room::PRIVATE, Ordering::Relaxed);
    }

    /// Page table `table` is served through `uffd` from now on: its stretches are registered there.
    ///
    /// # Errors
    /// The kernel's refusal to register.
    pub fn attach_table(&self, table: usize, uffd: Uffd) -> Result<(), crate::sys::Errno> {
        if !self.frames.make_room_for(table) {
            return Err(crate::sys::Errno(libc::EAGAIN));
        }
        uffd.register(layout::ARENA, layout::ARENA_BYTES)?;
        self.uffds[table].store(uffd.0, Ordering::Release);
        self.register_ranges(table)
    }

    /// Puts the arena's own pages back at `at..at + len` (whole 4K, of the arena proper) in page table `table`, which must be the
    /// calling process's, where something else was mapped over them.
    ///
    /// # Errors
    /// The kernel's refusal to map or to register.
    pub fn map_again(&self, table: usize, at: usize, len: usize) -> Result<(), crate::sys::Errno> {
        // SAFETY: the arena's own pages at their own place; who mapped over them gives that up.
        unsafe { self.files.map(at, (at - layout::ARENA) as u64, len, libc::MAP_FIXED)? };
        self.uffd(table).register(at, len)
    }

    /// Registers all stretches outside the arena for page table `table`, those published since it was attached too.
    ///
    /// # Errors
    /// The kernel's refusal to register.
    pub fn register_ranges(&self, table: usize) -> Result<(), crate::sys::Errno> {
        let uffd = self.uffd(table);
        for r in &self.ranges[..self.range_count.load(Ordering::Acquire)] {
            let (start, end) = (r.start.load(Ordering::Relaxed), r.end.load(Ordering::Relaxed));
            uffd.register(start, end - start)?;
        }
        Ok(())
    }

    /// Reserves page numbers for `start..end` (whole pages) outside the arena: the offset in the arena's files at
    /// which the caller maps them. `None`: no numbers left, or no room for the agent's view of them. The stretch is paged
    /// once [`publish_range`](Self::publish_range) was called.
    pub fn reserve_range(&self, start: usize, end: usize) -> Option<(u32, u64)> {
        let pages = ((end - start) >> self.shift) as u32;
        let index = self.range_count.load(Ordering::Relaxed);
        let first = self.next_global_page.load(Ordering::Relaxed);
        if index >= MAX_RANGES || (first + pages) as usize > self.words.len() {
            return None;
        }
        self.map_alias(first, end - start).ok()?;
        self.next_global_page.store(first + pages, Ordering::Relaxed);
        Some((first, self.offset(first)))
    }

    /// The same for a stretch whose last 16 MiB are to lie in one of the files.
    pub fn reserve_range_to_stripe(&self, start: usize, end: usize) -> Option<(u32, u64)> {
        let pages = ((end - start) >> self.shift) as u32;
        let next = self.next_global_page.load(Ordering::Relaxed);
        let offset = self.offset(next.checked_add(pages)?.checked_sub(1)?);
        let last = (self.files.stripe_end(offset) >> self.shift) as u32;
        self.next_global_page.store(last - pages, Ordering::Relaxed);
        self.reserve_range(start, end)
    }

    /// Makes a reserved stretch paged. Only before workers exist.
    pub fn publish_range(&self, start: usize, end: usize, first_page: u32) {
        let index = self.range_count.load(Ordering::Relaxed);
        let r = &self.ranges[index];
        r.start.store(start, Ordering::Relaxed);
        r.end.store(end, Ordering::Relaxed);
        r.first_page.store(first_page, Ordering::Relaxed);
        self.range_count.store(index + 1, Ordering::Release);
    }

    /// Makes executor `index`, which counts for worker `worker`. In the thread that will use it. `table`: the page table on which
    /// nothing runs while it works.
    ///
    /// # Errors
    /// The far store refuses one more user.
    ///
    /// # Safety
    /// Once for each index.
    pub unsafe fn make_executor(
        &self,
        index: usize,
        table: Option<usize>,
        worker: usize,
    ) -> Result<(), crate::far::FarError> {
        let mut lane = self.far.lane(index as u32)?;
        lane.attach()?;
        // SAFETY: once, by the caller.
        unsafe { self.executors.make(index, lane, &self.control.figures[worker.min(MAX_WORKERS)], table) };
        Ok(())
    }

    /// The executor with number `index`: workers from 0, then other threads from [`MAX_WORKERS`].
    ///
    /// # Safety
    /// It was made by [`make_executor`](Self::make_executor).
    /// Only that worker (or handler thread) may use it, and only one reference at a time.
    #[expect(clippy::mut_from_ref, reason = "executors are disjoint; the caller owns this one")]
    pub unsafe fn executor(&self, index: usize) -> &mut executor::Executor {
        // SAFETY: index is below the number of executors; exclusivity by the caller.
        unsafe { &mut *self.executors.at.add(index) }
    }

    /// Several threads of the program run on one page table from now on: by design, or since it made threads of
    /// its own.
    pub fn set_threads_share_tables(&self) {
        self.threads.store(true, Ordering::SeqCst);
    }

    /// Is there a near limit, so that pages are evicted?
    #[inline]
    fn limited(&self) -> bool {
        self.control.settings.near_bytes != u64::MAX
    }

    /// Do several threads of the program run on one page table?
    #[inline]
    pub fn threads_share_tables(&self) -> bool {
        self.threads.load(Ordering::Relaxed)
    }

    /// Does everything that must be near fit the limit, with the least number of pages?
    ///
    /// # Errors
    /// [`FaultError::NearTooSmall`] with what must be near.
    pub fn check_near(&self) -> Result<(), FaultError> {
        let near = self.control.settings.near_bytes;
        let pinned = self.control.totals.pinned_bytes.load(Ordering::Relaxed);
        let tables = crate::arena::table_bytes();
        let least = pinned + tables + (u64::from(self.least_frames()) << self.shift);
        if near >= least { Ok(()) } else { Err(FaultError::NearTooSmall { pinned, tables, least }) }
    }

    /// The control block.
    pub fn control(&self) -> &'static Control {
        self.control
    }

    /// Far memory's state.
    pub fn far(&self) -> &AnyFar {
        &self.far
    }

    /// Brings the totals in the control block up to date.
    pub fn publish_totals(&self) {
        self.pinned_bytes();
        let t = &self.control.totals;
        let usage = self.far.usage();
        t.far_bytes.store(usage.pages_held << self.shift, Ordering::Relaxed);
        t.far_stored_bytes.store(usage.bytes_reserved, Ordering::Relaxed);
        t.table_bytes.store(crate::arena::table_bytes(), Ordering::Relaxed);
    }
}
