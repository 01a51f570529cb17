//! The journal: shared memory through which code inside a profiled program reports to the profiler.
//!
//! `libatoll_profile.so` and atoll's runtime write it, in any thread and process that maps it. The profiler (`atoll-sampling`)
//! reads it. It is bounded: a mark that finds no place is counted and lost, and nobody waits.
//!
//! Rules: no allocation, no locks, no arena access, as marks are made inside of allocators and signal handlers.

use std::sync::atomic::{AtomicU64, Ordering};

/// The environment variable with the journal's descriptor.
pub const ENVIRONMENT: &str = "ATOLL_JOURNAL_FD";
/// The environment variable that keeps the program's own LD_PRELOAD, which is put back before `main`.
pub const ENVIRONMENT_PRELOAD: &str = "ATOLL_SAVED_LD_PRELOAD";
/// The environment variable that asks the program to make a [`userfault`] descriptor and to report its number.
pub const ENVIRONMENT_USERFAULT: &str = "ATOLL_MAKE_USERFAULT";
/// The least bytes of a block that is marked.
pub const LEAST_BLOCK: usize = 64 << 10;

const MAGIC: u64 = u64::from_le_bytes(*b"atollj01");
const SLOTS: usize = 1 << 16;

/// The contents of a mark; its numbers are those of the enum's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A block was allocated.
    Block {
        /// The first address.
        start: u64,
        /// The number of bytes.
        bytes: u64,
        /// An address within the call.
        site: u64,
    },
    /// A block was freed.
    Free {
        /// The first address.
        start: u64,
    },
    /// The first worker entered a region.
    RegionBegin {
        /// The outlined function.
        function: u64,
    },
    /// The first worker left the region.
    RegionEnd,
    /// A page was touched that had been taken away to see whether it is used.
    Touch {
        /// The address.
        address: u64,
        /// Whether the access wrote.
        write: bool,
        /// The thread.
        tid: u32,
        /// The address of the instruction.
        ip: u64,
    },
    /// A thread is this worker of the team.
    Worker {
        /// The thread.
        tid: u32,
        /// The worker's number in the team.
        number: u32,
    },
    /// The process made a userfaultfd for its profiler.
    Userfault {
        /// The descriptor's number in that process.
        fd: i32,
    },
    /// The stack on which a thread handles faults of its accesses: everything it does there is paging.
    FaultStack {
        /// The thread.
        tid: u32,
        /// The stack's first address.
        start: u64,
        /// The stack's number of bytes.
        bytes: u64,
    },
    /// A thread has handled a fault. Of many faults in a short time only a few are reported.
    Fault {
        /// The address that was touched.
        address: u64,
        /// Whether the access wrote.
        write: bool,
        /// The thread.
        tid: u32,
        /// The address of the instruction.
        ip: u64,
    },
}

/// Makes a userfaultfd of the calling process. It needs no privilege, as it is for faults of user code only.
///
/// # Errors
/// The kernel has no userfaultfd, or a filter forbids it.
pub fn userfault() -> std::io::Result<std::os::fd::OwnedFd> {
    const USER_MODE_ONLY: i32 = 1;
    // SAFETY: a plain system call that makes a descriptor, taken over here.
    unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) as i32;
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(std::os::fd::FromRawFd::from_raw_fd(fd))
    }
}

/// A mark of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The time, by CLOCK_MONOTONIC in nanoseconds.
    pub time_ns: u64,
    /// The process.
    pub pid: u32,
    /// The content.
    pub what: What,
}

#[repr(C)]
struct Slot {
    /// The number of marks written before this slot's next one, or one more when it holds a mark.
    turn: AtomicU64,
    words: [AtomicU64; 5],
}

/// The journal's memory.
#[repr(C)]
pub struct Journal {
    magic: AtomicU64,
    /// The number of marks that found a place.
    head: AtomicU64,
    /// The number of marks that found none.
    lost: AtomicU64,
    slots: [Slot; SLOTS],
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("head", &self.head).field("lost", &self.lost).finish_non_exhaustive()
    }
}

impl Journal {
    /// The bytes of a journal.
    pub const BYTES: usize = size_of::<Journal>();

    /// Makes a journal; returns its descriptor, which programs inherit, and its memory.
    ///
    /// # Errors
    /// There is no shared memory.
    pub fn create() -> std::io::Result<(i32, &'static Journal)> {
        // SAFETY: plain system calls; the mapping is checked by `map`.
        unsafe {
            let fd = libc::memfd_create(c"atoll-journal".as_ptr(), 0);
            if fd < 0 || libc::ftruncate(fd, Self::BYTES as i64) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            let at = Self::memory(fd).ok_or_else(std::io::Error::last_os_error)?;
            for (turn, slot) in (0..).zip(&at.slots) {
                slot.turn.store(turn, Ordering::Relaxed);
            }
            at.magic.store(MAGIC, Ordering::Release);
            Ok((fd, at))
        }
    }

    /// Maps the journal behind a descriptor; `None` if there is none.
    pub fn map(fd: i32) -> Option<&'static Journal> {
        let journal = Self::memory(fd)?;
        (journal.magic.load(Ordering::Acquire) == MAGIC).then_some(journal)
    }

    /// Returns the journal in memory that the caller has mapped; `None` if there is none.
    ///
    /// # Safety
    /// `at` must be a shared mapping of [`BYTES`](Self::BYTES) that is never unmapped.
    pub unsafe fn at(at: *const u8) -> Option<&'static Journal> {
        // SAFETY: by the caller; all fields are atomics, valid for all bit patterns.
        let journal = unsafe { &*at.cast::<Journal>() };
        (journal.magic.load(Ordering::Acquire) == MAGIC).then_some(journal)
    }

    fn memory(fd: i32) -> Option<&'static Journal> {
        // SAFETY: a fresh shared mapping of the whole file, which is long enough, never unmapped; all fields are atomics, valid
        // for all bit patterns.
        unsafe {
            let mut status = std::mem::zeroed::<libc::stat>();
            // This makes the system call itself, as glibc exports no `fstat` before 2.33.
            if libc::syscall(libc::SYS_fstat, fd, &raw mut status) != 0
                || (status.st_size as usize) < Self::BYTES
            {
                return None;
            }
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(std::ptr::null_mut(), Self::BYTES, protection, libc::MAP_SHARED, fd, 0);
            (at != libc::MAP_FAILED).then(|| &*at.cast::<Journal>())
        }
    }

    /// Makes a mark with the time now.
    pub fn mark(&self, pid: u32, what: What) {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: time is valid for writes; the call is the kernel's vDSO, safe in signal handlers.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        self.put(Mark { time_ns: time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64, pid, what });
    }

    /// Makes a mark with the time in it.
    pub fn put(&self, mark: Mark) {
        let (kind, a, b, c) = match mark.what {
            What::Block { start, bytes, site } => (1, start, bytes, site),
            What::Free { start } => (2, start, 0, 0),
            What::RegionBegin { function } => (3, function, 0, 0),
            What::RegionEnd => (4, 0, 0, 0),
            What::Touch { address, write, tid, ip } => {
                (5, address, u64::from(tid) << 1 | u64::from(write), ip)
            }
            What::Worker { tid, number } => (6, u64::from(tid), u64::from(number), 0),
            What::Userfault { fd } => (7, fd as u64, 0, 0),
            What::FaultStack { tid, start, bytes } => (8, u64::from(tid), start, bytes),
            What::Fault { address, write, tid, ip } => {
                (9, address, u64::from(tid) << 1 | u64::from(write), ip)
            }
        };
        let mut place = self.head.load(Ordering::Relaxed);
        let slot = loop {
            let slot = &self.slots[place as usize % SLOTS];
            // Acquire: pairs with the Release in `Reader::next`, so that the reader has finished reading the slot.
            let turn = slot.turn.load(Ordering::Acquire);
            if turn < place {
                self.lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
            if turn > place {
                place = self.head.load(Ordering::Relaxed);
                continue;
            }
            match self.head.compare_exchange_weak(place, place + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break slot,
                Err(now) => place = now,
            }
        };
        for (word, value) in slot.words.iter().zip([mark.time_ns, kind | u64::from(mark.pid) << 32, a, b, c])
        {
            word.store(value, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `Reader::next`.
        slot.turn.store(place + 1, Ordering::Release);
    }

    /// Returns the number of marks lost so far.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// The journal's one reader.
#[derive(Debug)]
pub struct Reader {
    journal: &'static Journal,
    next: u64,
}

impl Reader {
    /// Makes a reader at the journal's beginning.
    pub fn new(journal: &'static Journal) -> Self {
        Self { journal, next: 0 }
    }

    /// Returns the number of marks lost so far.
    pub fn lost(&self) -> u64 {
        self.journal.lost()
    }

    /// Passes over a mark whose writer died within it, once all writers are dead; returns `false` if there is none.
    pub fn pass_over(&mut self) -> bool {
        let more = self.next < self.journal.head.load(Ordering::Acquire);
        self.next += u64::from(more);
        more
    }
}

impl Iterator for Reader {
    type Item = Mark;

    /// Returns the next mark; `None` where it is not whole yet. Passes over marks of unknown kinds.
    fn next(&mut self) -> Option<Mark> {
        loop {
            let slot = &self.journal.slots[self.next as usize % SLOTS];
            // Acquire: pairs with the Release in `Journal::put`.
            if slot.turn.load(Ordering::Acquire) != self.next + 1 {
                return None;
            }
            let [time_ns, head, a, b, c] =
                [0, 1, 2, 3, 4].map(|i: usize| slot.words[i].load(Ordering::Relaxed));
            // Release: pairs with the Acquire in `Journal::put`.
            slot.turn.store(self.next + SLOTS as u64, Ordering::Release);
            self.next += 1;
            let what = match head as u8 {
                1 => What::Block { start: a, bytes: b, site: c },
                2 => What::Free { start: a },
                3 => What::RegionBegin { function: a },
                4 => What::RegionEnd,
                5 => What::Touch { address: a, write: b & 1 != 0, tid: (b >> 1) as u32, ip: c },
                6 => What::Worker { tid: a as u32, number: b as u32 },
                7 => What::Userfault { fd: a as i32 },
                8 => What::FaultStack { tid: a as u32, start: b, bytes: c },
                9 => What::Fault { address: a, write: b & 1 != 0, tid: (b >> 1) as u32, ip: c },
                _ => continue,
            };
            return Some(Mark { time_ns, pid: (head >> 32) as u32, what });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(n: u64) -> Mark {
        Mark { time_ns: n, pid: 7, what: What::Block { start: n, bytes: 2 * n, site: 3 * n } }
    }

    #[test]
    fn marks_come_back_and_what_has_no_place_is_counted() {
        let (_, journal) = Journal::create().unwrap();
        let mut reader = Reader::new(journal);
        for round in 0..3 {
            for n in 0..SLOTS as u64 + 5 {
                journal.put(mark(n));
            }
            assert_eq!(journal.lost(), 5 * (round + 1));
            let all: Vec<_> = reader.by_ref().collect();
            assert_eq!(all, (0..SLOTS as u64).map(mark).collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_kind_comes_back() {
        let (fd, _) = Journal::create().unwrap();
        let journal = Journal::map(fd).unwrap();
        let all = [
            What::Block { start: 1, bytes: 2, site: 3 },
            What::Free { start: 1 },
            What::RegionBegin { function: 9 },
            What::RegionEnd,
            What::Touch { address: 5, write: true, tid: 77, ip: 8 },
            What::Worker { tid: 77, number: 3 },
            What::Userfault { fd: 900 },
            What::FaultStack { tid: 77, start: 1 << 40, bytes: 1 << 18 },
            What::Fault { address: 6, write: true, tid: 77, ip: 8 },
        ];
        all.iter().for_each(|&what| journal.mark(1, what));
        assert_eq!(Reader::new(journal).map(|mark| mark.what).collect::<Vec<_>>(), all);
    }

    #[test]
    fn many_writers_lose_nothing_that_is_not_counted() {
        let (_, journal) = Journal::create().unwrap();
        let mut reader = Reader::new(journal);
        let mut read = 0;
        std::thread::scope(|scope| {
            let writers: Vec<_> =
                (0..4).map(|_| scope.spawn(|| (0..50_000).for_each(|n| journal.put(mark(n))))).collect();
            while writers.iter().any(|writer| !writer.is_finished()) {
                read += reader.by_ref().inspect(|m| assert_eq!(*m, mark(m.time_ns))).count();
            }
        });
        read += reader.by_ref().count();
        assert_eq!(read as u64 + journal.lost(), 200_000);
    }
}
