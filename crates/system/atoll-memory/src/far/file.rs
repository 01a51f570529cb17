//! Far memory on a disk: `file`. One sparse, unlinked file, in which `file_places` says where pages lie.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.
//! (`FileStore::new` is set-up code.)

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{self, CWD, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::io_uring::iovec;
use rustix::process::{Resource, getrlimit};
use xxhash_rust::xxh3::xxh3_64;

use super::descriptor::Descriptor;
use super::file_places::{CLUSTER, FilePlaces};
use super::lane::{Lane, Lanes};
use super::ring::{Direction, Op};
use super::table::Table;
use super::{FarConfig, FarError, FarOp, FarStore, Transfer, Usage};

/// Skip the write of a page whose checksum is that of its copy in the file. Two different pages have the same
/// 64-bit checksum with probability 2^-64: a run that stores a million pages a second for a year errs
/// with probability 2^-19. Switch off to write every page.
const SKIP_UNCHANGED: bool = true;

/// How often a round is tried anew where the disk is full: each time in places further from the end of the file.
const TRIES: u32 = 4;

/// Pages in one round of operations, and submissions of a ring.
const BATCH: usize = 128;
/// Neighbouring pages are merged into operations of at most this many bytes (or one page).
const LARGEST_OP: usize = 1 << 20;

/// Not a place.
const NOWHERE: u64 = u64::MAX;

/// A lane's scratch memory; all zeros is a valid value.
#[repr(C)]
struct Round {
    pages: [u64; BATCH],
    sums: [u64; BATCH],
    /// Where the pages lie in the file, or [`NOWHERE`].
    places: [u64; BATCH],
    buffers: [iovec; BATCH],
    ops: [Op; BATCH],
}

/// Far memory in a file; see the module.
pub struct FileStore {
    file: Descriptor,
    /// Checksum of each page held, 0 for none.
    sums: Table,
    /// Where each page held lies in the file.
    lies: Table,
    places: FilePlaces,
    lanes: Arc<Lanes>,
    pages: u64,
    page_size: usize,
    limit_pages: u64,
    /// Which of a lane's stores this is, and where its part of the lane's scratch memory begins.
    tier: usize,
    scratch_at: usize,
}

impl FileStore {
    /// Creates the file in `dir`; None: in `$TMPDIR`, or `/var/tmp` if that is unset or in memory.
    ///
    /// # Errors
    /// `Io` if the file cannot be made, `Unavailable` if no directory on a disk is found.
    pub fn new(dir: Option<&Path>, config: &FarConfig) -> Result<Self, FarError> {
        config.check()?;
        let lanes = Lanes::new(config.lanes, Self::SCRATCH_BYTES, 0, None, Self::RING)?;
        Self::with_lanes(dir, config, lanes, 0, 0)
    }

    /// Bytes of scratch memory that the store uses of each lane.
    pub(crate) const SCRATCH_BYTES: usize = size_of::<Round>();
    /// Entries of a lane's ring.
    pub(crate) const RING: u32 = BATCH as u32;

    /// The store as the `tier`-th of those that the lanes lead to, with its scratch memory at `scratch_at` of each lane's.
    pub(crate) fn with_lanes(
        dir: Option<&Path>,
        config: &FarConfig,
        lanes: Arc<Lanes>,
        tier: usize,
        scratch_at: usize,
    ) -> Result<Self, FarError> {
        let dir = match dir {
            Some(dir) => dir.to_owned(),
            None => default_dir()?,
        };
        let (file, direct) = open(&dir).map_err(|e| FarError::io(e, FarOp::Open))?;
        let file = out_of_the_way(file);
        crate::sys::keep_open(file.as_raw_fd());
        if direct {
            // SAFETY: the first lane's scratch is a base page at least, and nobody uses it yet.
            let probe = unsafe { std::slice::from_raw_parts(lanes.scratch(0).cast_const(), 4096) };
            match rustix::io::pwrite(&file, probe, 0) {
                Ok(_) => _ = fs::ftruncate(&file, 0),
                // The file system accepts the flag but not the deed (or wants larger blocks).
                Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                    fs::fcntl_setfl(&file, OFlags::empty()).map_err(|e| FarError::io(e, FarOp::Open))?;
                }
                Err(error) => return Err(FarError::io(error, FarOp::Write)),
            }
        }
        let places = FilePlaces::new(config.pages, config.page_size)?;
        let size = places.count().saturating_mul(config.page_size as u64);
        // Beyond the limit each write would be punished by a signal to the program.
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < size) {
            return Err(FarError::Unavailable(
                "the file size limit is below the arena's size: lift it (ulimit -f unlimited) or use another store",
            ));
        }
        // At full length from the start, writes need not extend the file one after the other.
        let _ = fs::ftruncate(&file, size);
        Ok(Self {
            file,
            sums: Table::new(config.pages)?,
            lies: Table::new(config.pages)?,
            places,
            lanes,
            pages: config.pages,
            page_size: config.page_size,
            limit_pages: config.limit_pages(),
            tier,
            scratch_at,
        })
    }

    /// Pages that the file holds.
    pub(crate) fn pages_held(&self) -> u64 {
        self.lanes.held(self.tier).load(Relaxed)
    }

    /// Whether the file holds the page.
    pub(crate) fn holds(&self, page: u64) -> bool {
        self.sums.load(page) != 0
    }

    /// Whether the file holds the page with the bytes that it has.
    pub(crate) fn has(&self, t: &Transfer) -> bool {
        self.sums.load(t.page) == self.checksum(t.memory)
    }

    /// The copy of the page is worthless.
    pub(crate) fn forget(&self, page: u64) {
        if self.holds(page) && self.sums.word(page).swap(0, Relaxed) != 0 {
            self.places.free(self.lies.load(page));
            self.lanes.drop_held(self.tier, 1);
        }
    }

    /// The round in the lane's scratch memory.
    fn round(&self, lane: &Lane) -> Result<*mut Round, FarError> {
        // SAFETY: the scratch area of a lane holds a round at this place.
        Ok(unsafe { self.lanes.enter(lane)?.add(self.scratch_at) }.cast())
    }

    /// Groups the round's first `count` pages into operations; their number.
    fn plan(&self, round: &mut Round, count: usize) -> usize {
        let most = (LARGEST_OP / self.page_size).max(1) as u32;
        let (mut ops, mut last) = (0, None);
        for (&place, i) in round.places.iter().take(count).zip(0_u32..) {
            if last != place.checked_sub(1)
                || ops == 0
                || round.ops.get(ops - 1).is_none_or(|op| op.count >= most)
            {
                if let Some(op) = round.ops.get_mut(ops) {
                    *op = Op { offset: place * self.page_size as u64, first: i, count: 0, result: 0 };
                }
                ops += 1;
            }
            if let Some(op) = round.ops.get_mut(ops - 1) {
                op.count += 1;
            }
            last = Some(place);
        }
        ops
    }

    /// Runs the planned operations to their ends. Calls `moved` with the place in the round of each page that
    /// moved whole. The first error, if any.
    fn run(
        &self,
        lane: &mut Lane,
        direction: Direction,
        round: &mut Round,
        count: usize,
        mut moved: impl FnMut(&Round, usize) -> Result<(), FarError>,
    ) -> Result<(), FarError> {
        let planned = self.plan(round, count);
        let mut first_error = Ok(());
        let ops = round.ops.get_mut(..planned).unwrap_or_default();
        // One operation alone is cheaper as a plain call.
        let ring = lane.ring.as_mut().filter(|_| planned > 1);
        // SAFETY: the operations' buffers are the round's, whose memory the caller keeps valid.
        if !ring.is_some_and(|ring| unsafe {
            ring.run(self.file.as_fd(), direction, ops, round.buffers.as_ptr())
        }) {
            for op in ops {
                let buffers =
                    round.buffers.get_mut(op.first as usize..).and_then(|b| b.get_mut(..op.count as usize));
                op.result = self.vectored(direction, buffers.unwrap_or_default(), op.offset);
            }
        }
        for o in 0..planned {
            let Some(&op) = round.ops.get(o) else { break };
            // What the ring left undone (a short transfer, an error to be seen again) is finished here.
            let whole = usize::try_from(op.result).unwrap_or(0) / self.page_size;
            for i in 0..op.count as usize {
                let place = op.first as usize + i;
                let result = if i < whole { Ok(()) } else { self.finish(direction, round, op, i) };
                let result = result.and_then(|()| moved(round, place));
                if first_error.is_ok() {
                    first_error = result;
                }
            }
        }
        first_error
    }

    /// One plain call for a whole operation: bytes moved, or a negated error number.
    fn vectored(&self, direction: Direction, buffers: &mut [iovec], offset: u64) -> i32 {
        let (first, count) = (buffers.as_mut_ptr(), buffers.len());
        let moved = match direction {
            Direction::Read => {
                // SAFETY: IoSliceMut is an iovec by its documentation; the calls do not change the array.
                let buffers =
                    unsafe { std::slice::from_raw_parts_mut(first.cast::<IoSliceMut<'_>>(), count) };
                rustix::io::preadv(&self.file, buffers, offset)
            }
            Direction::Write => {
                // SAFETY: IoSlice is an iovec by its documentation.
                let buffers = unsafe { std::slice::from_raw_parts(first.cast::<IoSlice<'_>>(), count) };
                rustix::io::pwritev(&self.file, buffers, offset)
            }
        };
        moved.map_or_else(|e| -e.raw_os_error(), |bytes| i32::try_from(bytes).unwrap_or(0))
    }

    /// Moves the `i`-th page of one operation, where the operation itself came to a halt.
    fn finish(&self, direction: Direction, round: &Round, op: Op, i: usize) -> Result<(), FarError> {
        let Some(buffer) = round.buffers.get(op.first as usize + i) else { return Ok(()) };
        let (mut done, offset) = (0, op.offset + (i * self.page_size) as u64);
        while done < self.page_size {
            let length = self.page_size - done;
            // SAFETY: the buffer is a page that the caller keeps valid; done is below its size.
            let memory = unsafe { buffer.iov_base.cast::<u8>().add(done) };
            let moved = match direction {
                // SAFETY: as above; no reference to the page exists elsewhere in this call.
                Direction::Read => rustix::io::pread(
                    &self.file,
                    unsafe { std::slice::from_raw_parts_mut(memory, length) },
                    offset + done as u64,
                ),
                // SAFETY: as above.
                Direction::Write => rustix::io::pwrite(
                    &self.file,
                    unsafe { std::slice::from_raw_parts(memory, length) },
                    offset + done as u64,
                ),
            };
            match moved {
                // The end of the file, which no page held lies behind; or a disk that takes nothing.
                Ok(0) => return Err(FarError::io(Errno::IO, direction.op())),
                Ok(bytes) => done += bytes,
                Err(Errno::INTR | Errno::AGAIN) => rustix::thread::sched_yield(),
                Err(error) => return Err(FarError::io(error, direction.op())),
            }
        }
        Ok(())
    }

    /// Gives the disk blocks of clusters back, which this caller has taken whole. (A file system without holes keeps them until the file
    /// goes.)
    fn punch(&self, clusters: Range<u64>) {
        if !clusters.is_empty() {
            let size = CLUSTER * self.page_size as u64;
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fs::fallocate(
                &self.file,
                flags,
                clusters.start * size,
                (clusters.end - clusters.start) * size,
            );
            clusters.for_each(|cluster| self.places.give_cluster(cluster));
        }
    }

    fn checksum(&self, memory: *const u8) -> u64 {
        // SAFETY: a page of the caller's, valid during the call, not written meanwhile.
        xxh3_64(unsafe { std::slice::from_raw_parts(memory, self.page_size) }).max(1)
    }

    fn store_round(&self, lane: &mut Lane, round: &mut Round, pages: &[Transfer]) -> Result<(), FarError> {
        let (mut count, mut stop) = (0, Ok(()));
        for t in pages {
            let (sum, old) = (self.checksum(t.memory), self.sums.load(t.page));
            if SKIP_UNCHANGED && sum == old {
                lane.counters().writes_avoided.fetch_add(1, Relaxed);
                continue;
            }
            if old == 0 && self.lanes.hold(self.tier, 1, self.limit_pages).is_err() {
                stop = Err(FarError::Full);
                break;
            }
            let place = if old == 0 { NOWHERE } else { self.lies.load(t.page) };
            // Until the write is done the page is not held.
            self.sums.set(t.page, 0);
            round.put(count, t, sum, place, self.page_size);
            count += 1;
        }
        let mut result = self.write_round(lane, round, &mut count);
        for _ in 1..TRIES {
            if !is_full(&result) {
                break;
            }
            result = self.write_round(lane, round, &mut count);
        }
        self.lanes.drop_held(self.tier, count as u64);
        result.and(stop)
    }

    /// Writes the round's first `count` pages. What was not written is at the round's beginning afterwards, and `count` says how much that is.
    fn write_round(&self, lane: &mut Lane, round: &mut Round, count: &mut usize) -> Result<(), FarError> {
        let mut written = 0_u128;
        let result = self.find_places(round, *count).and_then(|()| {
            self.run(lane, Direction::Write, round, *count, |round, at| {
                if let (Some(&page), Some(&sum), Some(&place)) =
                    (round.pages.get(at), round.sums.get(at), round.places.get(at))
                {
                    self.lies.set(page, place);
                    self.sums.set(page, sum);
                    written |= 1 << at;
                }
                Ok(())
            })
        });
        lane.counters()
            .bytes_stored
            .fetch_add(u64::from(written.count_ones()) * self.page_size as u64, Relaxed);
        let (mut left, mut lowest) = (0, NOWHERE);
        for at in (0..*count).filter(|at| written >> at & 1 == 0) {
            let place = round.places.get_mut(at).map_or(NOWHERE, |place| std::mem::replace(place, NOWHERE));
            if place != NOWHERE {
                self.places.free(place);
                lowest = lowest.min(place);
            }
            round.copy(at, left);
            left += 1;
        }
        *count = left;
        if is_full(&result) && lowest != NOWHERE {
            self.places.end_before(lowest);
        }
        result
    }

    /// Gives places to the round's first `count` pages: each its own if they follow one another, as then they come back together too; else
    /// places that follow one another.
    fn find_places(&self, round: &mut Round, count: usize) -> Result<(), FarError> {
        let (Some(pages), Some(places)) = (round.pages.get(..count), round.places.get_mut(..count)) else {
            return Ok(());
        };
        let held = self.pages_held();
        let neighbours = pages.windows(2).filter(|two| matches!(two, [a, b] if a + 1 == *b)).count();
        let in_order = count == 1 || neighbours * 2 > count;
        for (&page, place) in pages.iter().zip(places.iter_mut()) {
            let own = if in_order { self.places.take_own(page, *place, count > 1, held) } else { None };
            let before = std::mem::replace(place, own.unwrap_or(NOWHERE));
            if before != NOWHERE && before != *place {
                self.places.free(before);
            }
        }
        let mut at = 0;
        while at < count {
            let wanting = places.iter().skip(at).take_while(|&&place| place == NOWHERE);
            let wanted = wanting.count();
            if wanted == 0 {
                at += 1;
                continue;
            }
            // There is a place for every page, unless the disk was full before.
            let found = self.places.take(wanted as u64, held);
            for place in found.ok_or(FarError::io(Errno::NOSPC, FarOp::Write))? {
                if let Some(to) = places.get_mut(at) {
                    *to = place;
                }
                at += 1;
            }
        }
        Ok(())
    }
}

/// Whether the result says that there is no room on the disk.
fn is_full(result: &Result<(), FarError>) -> bool {
    let full = [Errno::NOSPC, Errno::DQUOT].map(Errno::raw_os_error);
    matches!(result, Err(FarError::Io { errno, .. }) if full.contains(errno))
}

impl Round {
    fn put(&mut self, at: usize, t: &Transfer, sum: u64, place: u64, page_size: usize) {
        if let (Some(page), Some(to), Some(lies), Some(buffer)) =
            (self.pages.get_mut(at), self.sums.get_mut(at), self.places.get_mut(at), self.buffers.get_mut(at))
        {
            (*page, *to, *lies) = (t.page, sum, place);
            *buffer = iovec { iov_base: t.memory.cast(), iov_len: page_size };
        }
    }

    /// Copies what belongs to one page to an earlier one's part of the round.
    fn copy(&mut self, from: usize, to: usize) {
        self.pages.copy_within(from..=from, to);
        self.sums.copy_within(from..=from, to);
        self.places.copy_within(from..=from, to);
        self.buffers.copy_within(from..=from, to);
    }
}

impl Direction {
    fn op(self) -> FarOp {
        match self {
            Self::Read => FarOp::Read,
            Self::Write => FarOp::Write,
        }
    }
}

impl FarStore for FileStore {
    fn lane(&self, index: u32) -> Result<Lane, FarError> {
        self.lanes.lane(index)
    }

    fn store(&self, lane: &mut Lane, pages: &[Transfer]) -> Result<(), FarError> {
        // SAFETY: the round is the lane's holder's alone; any bytes are valid.
        let round = unsafe { &mut *self.round(lane)? };
        super::check_range(pages, self.pages)?;
        pages.chunks(BATCH).try_for_each(|pages| self.store_round(lane, round, pages))
    }

    fn load(&self, lane: &mut Lane, pages: &[Transfer]) -> Result<(), FarError> {
        // SAFETY: as in store.
        let round = unsafe { &mut *self.round(lane)? };
        super::check_range(pages, self.pages)?;
        for pages in pages.chunks(BATCH) {
            for (t, place) in pages.iter().zip(0..) {
                match self.sums.load(t.page) {
                    0 => return Err(FarError::NotStored { page: t.page }),
                    sum => round.put(place, t, sum, self.lies.load(t.page), self.page_size),
                }
            }
            self.run(lane, Direction::Read, round, pages.len(), |round, place| {
                let Some(t) = pages.get(place) else { return Ok(()) };
                match round.sums.get(place) {
                    Some(sum) if *sum == self.checksum(t.memory) => Ok(()),
                    _ => Err(FarError::Damaged { page: t.page }),
                }
            })?;
            lane.counters().bytes_loaded.fetch_add((pages.len() * self.page_size) as u64, Relaxed);
        }
        Ok(())
    }

    fn discard(&self, first: u64, count: u64) {
        let (mut empty, mut dropped) = (0..0, 0);
        self.sums.visit(first..first.saturating_add(count), |page, sum| {
            if sum.swap(0, Relaxed) == 0 {
                return;
            }
            dropped += 1;
            let place = self.lies.load(page);
            let cluster = place / CLUSTER;
            if self.places.free(place) && self.places.take_cluster(cluster) {
                if empty.end != cluster {
                    self.punch(empty.clone());
                    empty = cluster..cluster;
                }
                empty.end += 1;
            }
        });
        if dropped > 0 {
            self.punch(empty);
            self.lanes.drop_held(self.tier, dropped);
        }
    }

    fn usage(&self) -> Usage {
        let mut usage = self.lanes.usage(self.page_size as u64);
        usage.bytes_after = usage.bytes_before;
        usage.bytes_reserved = fs::fstat(&self.file).map_or(0, |s| s.st_blocks.max(0) as u64 * 512);
        usage
    }

    fn memory_bytes(&self) -> u64 {
        0
    }
}

/// The file itself: for tests and diagnosis.
impl AsFd for FileStore {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A directory on a disk for files that nobody sees: `$TMPDIR`, or `/var/tmp` if that is unset or in memory.
///
/// # Errors
/// Neither is on a disk.
pub fn default_dir() -> Result<PathBuf, FarError> {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    let on_disk =
        |dir: &PathBuf| fs::statfs(dir.as_path()).is_ok_and(|s| ![TMPFS, RAMFS].contains(&s.f_type));
    std::env::var_os("TMPDIR")
        .map(PathBuf::from)
        .into_iter()
        .chain([PathBuf::from("/var/tmp")])
        .find(on_disk)
        .ok_or(FarError::Unavailable(
            "neither $TMPDIR nor /var/tmp is on a disk: name a directory with --far file:DIR",
        ))
}

/// An unnamed file, if possible past the page cache.
fn open(dir: &Path) -> rustix::io::Result<(OwnedFd, bool)> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::LARGEFILE;
    let mode = Mode::RUSR | Mode::WUSR;
    for (direct, past) in [(true, OFlags::DIRECT), (false, OFlags::empty())] {
        match fs::openat(CWD, dir, flags | past | OFlags::TMPFILE, mode) {
            Ok(file) => return Ok((file, direct)),
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        // No O_TMPFILE here: a name for a moment.
        let name = dir.join(format!(".atoll-far-{}-{direct}", std::process::id()));
        match fs::openat(CWD, &name, flags | past | OFlags::CREATE | OFlags::EXCL, mode) {
            Ok(file) => {
                fs::unlink(&name)?;
                return Ok((file, direct));
            }
            // Some file systems create the file before they refuse O_DIRECT.
            Err(Errno::INVAL) if direct => {
                let _ = fs::unlink(&name);
            }
            Err(error) => return Err(error),
        }
    }
    Err(Errno::INVAL)
}

/// Gives the same descriptor a higher number: programs expect the low ones for themselves, and close ranges of
/// them. Not much higher: each fork copies the table up to the highest.
pub(super) fn out_of_the_way(fd: OwnedFd) -> Descriptor {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    let high = (limit / 2).min(1 << 10) as i32;
    let fd = Descriptor::from(fd);
    rustix::io::fcntl_dupfd_cloexec(&fd, high).map_or(fd, Descriptor::from)
}
