//! The journal: shared memory through which code inside a profiled program tells the profiler what it does.
//!
//! Written by `libatoll_profile.so` and atoll's runtime, in any thread and process that maps it; read by the profiler
//! (`atoll-sampling`). It is bounded: what finds no place is counted and lost, and nobody waits.
//!
//! Rules: no allocation, no locks, no arena access, as marks are made inside of allocators and signal handlers.

use std::sync::atomic::{AtomicU64, Ordering};

/// Environment variable that names the journal's descriptor.
pub const ENVIRONMENT: &str = "ATOLL_JOURNAL_FD";
/// Environment variable that keeps the program's own LD_PRELOAD, put back before `main`.
pub const ENVIRONMENT_PRELOAD: &str = "ATOLL_SAVED_LD_PRELOAD";
/// Environment variable that asks the program to make a [`userfault`] descriptor and to tell its number.
pub const ENVIRONMENT_USERFAULT: &str = "ATOLL_MAKE_USERFAULT";
/// Blocks of this many bytes or more are marked.
pub const LEAST_BLOCK: usize = 64 << 10;

const MAGIC: u64 = u64::from_le_bytes(*b"atollj01");
const SLOTS: usize = 1 << 16;

/// What a mark says; its numbers are those of the enum's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A block was allocated.
    Block {
        /// First address.
        start: u64,
        /// How long.
        bytes: u64,
        /// An address within the call.
        site: u64,
    },
    /// A block was freed.
    Free {
        /// First address.
        start: u64,
    },
    /// The first worker entered a region.
    RegionBegin {
        /// The outlined function.
        function: u64,
    },
    /// The first worker left it.
    RegionEnd,
    /// A page that was taken away to see whether it is used was touched.
    Touch {
        /// The address.
        address: u64,
        /// Did it write?
        write: bool,
        /// Thread.
        tid: u32,
        /// The instruction.
        ip: u64,
    },
    /// A thread is this worker of the team.
    Worker {
        /// Thread.
        tid: u32,
        /// Number.
        number: u32,
    },
    /// The process made a userfaultfd for whoever profiles it.
    Userfault {
        /// Its number there.
        fd: i32,
    },
    /// Where a thread handles faults of its accesses: what it does on this stack is paging.
    FaultStack {
        /// Thread.
        tid: u32,
        /// The stack's first address.
        start: u64,
        /// How long it is.
        bytes: u64,
    },
    /// A thread has handled a fault. Of many in a short time a few are told.
    Fault {
        /// The address that was touched.
        address: u64,
        /// Was it a write?
        write: bool,
        /// Thread.
        tid: u32,
        /// The instruction.
        ip: u64,
    },
}

/// Makes a userfaultfd of the calling process. It needs no privilege, as it is for faults of user code only.
///
/// # Errors
/// The kernel has none, or a filter forbids it.
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

/// One mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// When, by CLOCK_MONOTONIC in nanoseconds.
    pub time_ns: u64,
    /// Whose process.
    pub pid: u32,
    /// What.
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
    /// Marks that found a place.
    head: AtomicU64,
    /// Marks that found none.
    lost: AtomicU64,
    slots: [Slot; SLOTS],
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("head", &self.head).field("lost", &self.lost).finish_non_exhaustive()
    }
}

impl Journal {
    /// Bytes of a journal.
    pub const BYTES: usize = size_of::<Journal>();

    /// Makes a journal: its descriptor, which programs inherit, and the memory.
    ///
    /// # Errors
    /// No shared memory.
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

    /// Maps the journal behind a descriptor; `None` if it is none.
    pub fn map(fd: i32) -> Option<&'static Journal> {
        let journal = Self::memory(fd)?;
        (journal.magic.load(Ordering::Acquire) == MAGIC).then_some(journal)
    }

    /// The journal in memory that the caller has mapped; `None` if there is none.
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
            // The system call itself: glibc's `fstat` is none of its exported functions before 2.33.
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

    /// Makes a mark, now.
    pub fn mark(&self, pid: u32, what: What) {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: time is valid for writes; the call is the kernel's vDSO, safe in signal handlers.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        self.put(Mark { time_ns: time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64, pid, what });
    }

    /// Makes a mark with its time.
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
            // Acquire: pairs with the Release in `Reader::next`, so that what was read there is read.
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

    /// Marks lost so far.
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
    /// Reads from the journal's beginning.
    pub fn new(journal: &'static Journal) -> Self {
        Self { journal, next: 0 }
    }

    /// Marks lost so far.
    pub fn lost(&self) -> u64 {
        self.journal.lost()
    }

    /// Passes over a mark whose writer died within it, once everybody is dead; `false` if there is none.
    pub fn pass_over(&mut self) -> bool {
        let more = self.next < self.journal.head.load(Ordering::Acquire);
        self.next += u64::from(more);
        more
    }
}

impl Iterator for Reader {
    type Item = Mark;

    /// The next mark; `None` where it is not whole yet. Marks of no known kind are passed over.
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
