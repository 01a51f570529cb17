//! The control block: the page of shared memory through which `atoll run` and the program it runs talk.
//!
//! The launcher makes it, fills in the settings and reads the figures, also after the program was killed;
//! `atoll top` maps the same memory to look on. The runtime inside the program reads settings and counts.

use std::ffi::CStr;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::far::hosts::lenders::{
    BehindFigures, LateLenders, LenderFigures, Lenders, LendersSettings, MAX_LENDERS,
};
use crate::layout::MAX_NODES;
use crate::race_counts::Races;
use crate::region_counts::Regions;
use crate::segment::{SegmentFigures, SegmentSettings};

/// Workers a program may have at most, those of all its teams together.
pub const MAX_WORKERS: usize = 1024;

/// Threads of the program's own, beside its workers, that may be alive at once, and handler threads of atoll's.
pub const MAX_THREADS: usize = 1024;

/// First bytes of a control block of this layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"atollc15");

/// The memfd's name, by which `atoll top` finds running programs.
pub const MEMFD_NAME: &CStr = c"atoll-control";

/// Environment variable that says where the control block is: see [`Handle`].
pub const ENVIRONMENT: &str = "ATOLL_CONTROL_FD";

/// Environment variable that keeps the program's own LD_PRELOAD, put back before `main`.
pub const ENVIRONMENT_PRELOAD: &str = "ATOLL_SAVED_LD_PRELOAD";

/// Environment variable that says where the control block of the run's first launcher is, for that of a later program.
pub const ENVIRONMENT_FIRST: &str = "ATOLL_FIRST_CONTROL";

/// Bytes of [`Settings::meeting`]: the number of a socket has seven digits at most.
const MEETING_BYTES: usize = MAX_NODES * 8;

/// Exit status where atoll itself cannot go on (a broken set-up, named on standard error).
pub const EXIT_SETUP: i32 = 70;
/// Exit status where far memory is full or failed and near memory cannot hold the rest.
pub const EXIT_FAR: i32 = 74;
/// Exit status where the near limit is smaller than what must be near.
pub const EXIT_NEAR: i32 = 75;
/// Exit status where another node of the run is gone, or cannot be understood.
pub const EXIT_NODE: i32 = 77;
/// Exit status where a worker died under the program.
pub const EXIT_WORKER: i32 = 76;

/// [`Control::ending`] where the master may not kill its workers.
pub const ENDING_THEMSELVES: u32 = 2;

/// Whose page tables workers use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum PageTables {
    /// A worker is a process with a page table of its own.
    Private = 0,
    /// A worker is a thread; all share one page table.
    Shared = 1,
}

/// Who resolves faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Faults {
    /// The worker that faulted, in its SIGBUS handler.
    Own = 0,
    /// A handler thread.
    Thread = 1,
}

/// What the launcher decided, fixed before the program starts.
#[repr(C)]
pub struct Settings {
    /// Near limit in bytes; `u64::MAX` means no limit.
    pub near_bytes: u64,
    /// Whether the launcher chose the limit by what the machine can give; 0: no. Then `near_bytes` is the most that it can ever give, the
    /// limit of the moment is [`Control::near_now`], and far memory that lies in this host's memory counts as near.
    pub near_automatic: u32,
    /// log2 of the page size: 12, 16 or 21.
    pub page_shift: u32,
    /// [`PageTables`] as a number. A program that is managed only once it needs memory has shared ones, whatever was asked for.
    pub page_tables: AtomicU32,
    /// [`Faults`] as a number.
    pub faults: u32,
    /// Size of the team where the program does not say, 1..=[`MAX_WORKERS`].
    pub workers: u32,
    /// Replacement policy as text (`cmcp:p=0.5`), NUL-terminated.
    pub policy: [u8; 64],
    /// Far store as text (`file:/scratch`), NUL-terminated.
    pub far: [u8; 4096],
    /// Bytes far memory may take; `u64::MAX` means no limit.
    pub far_bytes: u64,
    /// Bytes of memory that the far store `auto` takes before it goes to its file.
    pub far_memory_bytes: u64,
    /// The lenders of the far stores `hosts` and `auto`.
    pub lenders: LendersSettings,
    /// Whether faults are counted by region, too; 0: no.
    pub count_regions: u32,
    /// Whether the program's memory is a segment, and what kind of one.
    pub segment: SegmentSettings,
    /// Between two pages that each worker drops to see whether they are used, in nanoseconds; 0: none are dropped.
    pub sample_period_ns: u64,
    /// This node's number, and how many there are: 0 of 1 where all workers share one memory.
    pub node: u32,
    /// See [`node`](Self::node); at most [`MAX_NODES`].
    pub nodes: u32,
    /// [`Consistency`] as a number.
    pub consistency: u32,
    /// Whether pages are fetched ahead at a region's entry; 0: no.
    pub prefetch: u32,
    /// Whether words are looked for that two nodes write in one region; 0: no.
    pub check_races: u32,
    /// Whether regions run on the origin alone where that takes less time; 0: no.
    pub home_alone: u32,
    /// The CPUs of all nodes together: nodes of one machine share theirs.
    pub all_cpus: u32,
    /// For tests on one machine: 1: each node counts as if it had its part of the CPUs to itself; 2: and every region begins on all
    /// nodes; 0: as users have it.
    pub placing: u32,
    /// Whether it is an error if a program of the run is not managed; 0: no.
    pub require: u32,
    /// How many words of the launcher's command line come before the program's: with them a later program of the run begins anew. 0: it
    /// does not.
    pub launcher_words: u32,
    /// Whether no launcher follows the program, which made the control block itself, as a later program of a run; 0: a launcher does.
    pub has_no_launcher: u32,
    /// How the node reaches the others: numbers of sockets, with commas between them, or of one socket to the launcher; NUL-terminated.
    pub meeting: [u8; MEETING_BYTES],
}

/// How copies of pages are kept coherent between nodes inside regions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Consistency {
    /// One writer at a time, always.
    Single = 0,
    /// Many writers in every region in which that is safe.
    Many = 1,
    /// As `Many`, where it pays.
    Smart = 2,
}

/// Counters of one worker. All only grow; times are in ticks of the time stamp counter.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Figures {
    /// Faults on pages that were near but not mapped by this worker.
    pub minor_faults: AtomicU64,
    /// Faults that fetched their page from far memory.
    pub major_faults: AtomicU64,
    /// Faults on pages never touched before.
    pub first_faults: AtomicU64,
    /// First writes to pages that were mapped read-only.
    pub write_faults: AtomicU64,
    /// Pages fetched together with a faulting one, before they were asked for.
    pub prefetched: AtomicU64,
    /// Pages this worker evicted whose far copy was still good.
    pub evictions_clean: AtomicU64,
    /// Pages this worker evicted and wrote to far memory.
    pub evictions_dirty: AtomicU64,
    /// Bytes fetched from far memory.
    pub bytes_in: AtomicU64,
    /// Bytes written to far memory.
    pub bytes_out: AtomicU64,
    /// Remote TLB invalidations caused: for each page whose mapping changed, the other workers of its core map.
    pub invalidations: AtomicU64,
    /// Pages unmapped only to see whether they are used (LRU's scan).
    pub scan_unmapped: AtomicU64,
    /// Time in the fault path.
    pub fault_ticks: AtomicU64,
    /// The part of [`fault_ticks`](Self::fault_ticks) that went into making room.
    pub evict_ticks: AtomicU64,
    /// Faults that waited because another worker held the page or all room.
    pub waits: AtomicU64,
    /// Parallel regions this worker took part in.
    pub regions: AtomicU64,
    /// Process (or thread) id of the worker; 0: not started.
    pub pid: AtomicI32,
}

impl Figures {
    /// Counts `n` more.
    #[inline]
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

/// What a node's agent counts: a number in [`NodeFigures`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum NodeCount {
    /// Faults that waited for a page from another node, to be read.
    Reads,
    /// Faults that waited for leave to write a page.
    Writes,
    /// Pages written among many nodes.
    Twins,
    /// Pages sent to other nodes.
    Sent,
    /// Copies invalidated one by one.
    Single,
    /// Copies invalidated at barriers, in one message for all.
    Batched,
    /// Differences sent to be merged.
    Diffs,
    /// Bytes of the differences sent.
    DiffBytes,
    /// Pages fetched ahead at the begin of a phase.
    Ahead,
    /// Pages fetched ahead at the begin of a phase that were used in it.
    AheadUsed,
    /// Pages fetched ahead in the stream of a worker's faults.
    Streamed,
    /// Nanoseconds that faults waited.
    FaultNs,
    /// Barriers of all nodes.
    Barriers,
    /// Nanoseconds from the node's last worker at a barrier until it opened.
    BarrierNs,
    /// Messages sent.
    Messages,
    /// Bytes of the messages sent.
    MessageBytes,
    /// Barriers at which copies were invalidated in one message for all: each would have been a message.
    Batches,
    /// Tasks of other nodes that this node executed.
    Tasks,
}

/// How many there are.
pub const NODE_COUNTS: usize = 18;

/// What a node's agent counted; on the origin, at the end, those of all nodes.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct NodeFigures {
    /// By [`NodeCount`].
    pub counts: [AtomicU64; NODE_COUNTS],
}

impl NodeFigures {
    /// Counts `n` more.
    pub fn add(&self, count: NodeCount, n: u64) {
        self.counts[count as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// How much that is now.
    pub fn get(&self, count: NodeCount) -> u64 {
        self.counts[count as usize].load(Ordering::Relaxed)
    }

    /// Takes what another node counted.
    pub fn set(&self, counts: &[u64]) {
        for (to, count) in self.counts.iter().zip(counts) {
            to.store(*count, Ordering::Relaxed);
        }
    }

    /// All of them now.
    pub fn all(&self) -> [u64; NODE_COUNTS] {
        self.counts.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

/// Largest core-map count told apart in [`Totals::by_count`].
pub const CORE_MAP_COUNTS: usize = MAX_WORKERS + 1;

/// Gauges and totals of the whole program.
#[repr(C)]
#[derive(Debug)]
pub struct Totals {
    /// Bytes of arena that are resident, in frames.
    pub resident_bytes: AtomicU64,
    /// The most of that at any time.
    pub resident_peak: AtomicU64,
    /// Pages of the arena ever touched minus those freed, in bytes: the program's data.
    pub touched_bytes: AtomicU64,
    /// The most of that at any time.
    pub touched_peak: AtomicU64,
    /// The least near limit under which nothing would have been evicted, all that the limit counts in it: known when the program
    /// has ended in good order, else 0.
    pub footprint_peak: AtomicU64,
    /// Bytes of pinned shared memory in use, stacks and small blocks among them.
    pub pinned_bytes: AtomicU64,
    /// The most of that at any time.
    pub pinned_peak: AtomicU64,
    /// Bytes the pager's own tables take.
    pub table_bytes: AtomicU64,
    /// Pages held by far memory, in bytes before compression.
    pub far_bytes: AtomicU64,
    /// Bytes far memory really takes.
    pub far_stored_bytes: AtomicU64,
    /// The part of that in which pages lie as they are, as the machine has plenty of memory.
    pub far_plain_bytes: AtomicU64,
    /// Bytes of this host's memory that far memory takes, where it counts as near.
    pub far_memory_bytes: AtomicU64,
    /// Where far memory is a file: bytes of evicted pages on which compressing was tried.
    pub tried_bytes: AtomicU64,
    /// What these would take compressed.
    pub tried_packed_bytes: AtomicU64,
    /// How often a huge page came: 2 MiB that come and leave as one.
    pub huge_pages: AtomicU64,
    /// Evicted pages by the number of workers that mapped them (index 0 unused), pages still resident at exit added.
    pub by_count: [AtomicU64; CORE_MAP_COUNTS],
}

impl Totals {
    /// Bytes that count against a near limit that the launcher chose: all that the run takes of this host's memory.
    #[inline]
    pub fn held_bytes(&self) -> u64 {
        let parts = [&self.resident_bytes, &self.pinned_bytes, &self.table_bytes, &self.far_memory_bytes];
        parts.iter().map(|part| part.load(Ordering::Relaxed)).sum()
    }
}

/// All of it.
#[repr(C)]
pub struct Control {
    /// [`MAGIC`].
    pub magic: u64,
    /// What was decided.
    pub settings: Settings,
    /// Set by the runtime once it manages a program: that program's process id.
    pub program: AtomicI32,
    /// How many later programs of the run are managed, under a launcher of their own or by a control block of their own.
    pub later_programs: AtomicU32,
    /// Set by the launcher when it is about to end in good order.
    pub over: AtomicU32,
    /// Set by a process that is not managed and begins to use OpenMP, as a library brought it: its process id.
    pub late: AtomicI32,
    /// Set when a worker ended the whole program by `exit`: status + 1.
    pub exit_status: AtomicI32,
    /// Set when the program ends its workers in good order: their deaths are no news. [`ENDING_THEMSELVES`] where they are to end without
    /// being killed.
    pub ending: AtomicU32,
    /// Set when atoll itself gave up: one of the `EXIT_` numbers.
    pub failure: AtomicI32,
    /// Signals that the program itself blocks in its first thread (bit n−1: signal n).
    pub blocked: AtomicU64,
    /// Workers started so far (the master is number 0 and counts).
    pub workers: AtomicU32,
    /// Ticks when the program's `main` was reached.
    pub start_ticks: AtomicU64,
    /// How far the executable's addresses lie above those in its file.
    pub program_bias: AtomicU64,
    /// The near limit of the moment in bytes, where the launcher chooses it ([`Settings::near_automatic`]).
    pub near_now: AtomicU64,
    /// The same for a program that may grow beside near memory in less time than the launcher takes to look.
    pub near_for_growth: AtomicU64,
    /// Set for the rest of the run when such growth is to be expected: with the first process or thread that the program starts, the first
    /// library that it loads, and in a program without OpenMP.
    pub expects_growth: AtomicU32,
    /// Totals.
    pub totals: Totals,
    /// Counters by region.
    pub regions: Regions,
    /// What was found of several nodes' writes.
    pub races: Races,
    /// Counters by node.
    pub nodes: [NodeFigures; MAX_NODES],
    /// What is known and counted of each lender.
    pub lenders: [LenderFigures; MAX_LENDERS],
    /// The lenders that came while the program ran.
    pub late_lenders: LateLenders,
    /// What is counted of the file behind the lenders.
    pub behind_lenders: BehindFigures,
    /// The segment, if there is one.
    pub segment: SegmentFigures,
    /// Counters by worker; the last entry is the handler thread's and the master's background work.
    pub figures: [Figures; MAX_WORKERS + 1],
}

impl Control {
    /// Bytes of a control block.
    pub const BYTES: usize = size_of::<Control>();

    /// The near limit of the moment in bytes; `u64::MAX` means no limit.
    pub fn near(&self) -> u64 {
        match self.settings.near_automatic {
            0 => self.settings.near_bytes,
            _ => {
                let grows = self.expects_growth.load(Ordering::Relaxed) != 0;
                let limit = if grows { &self.near_for_growth } else { &self.near_now };
                limit.load(Ordering::Relaxed).min(self.settings.near_bytes)
            }
        }
    }

    /// Maps the control block behind `fd`; `None` if it is none.
    pub fn map(fd: i32) -> Option<&'static Control> {
        // SAFETY: a fresh shared mapping of the whole block, which stays where it is one; every field is valid for all bit
        // patterns, and the file is checked to be long enough.
        unsafe {
            let mut st: libc::stat = std::mem::zeroed();
            // The system call itself: glibc's `fstat` is none of its exported functions before 2.33.
            let known =
                crate::sys::syscall(libc::SYS_fstat, [fd as usize, (&raw mut st) as usize, 0, 0, 0, 0]);
            if known.is_err() || (st.st_size as usize) < Self::BYTES {
                return None;
            }
            let at =
                crate::sys::mmap(0, Self::BYTES, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0)
                    .ok()?;
            let control = &*(at as *const Control);
            if control.magic == MAGIC {
                return Some(control);
            }
            // The program has a file of its own behind the descriptor.
            let _ = crate::sys::syscall(libc::SYS_munmap, [at, Self::BYTES, 0, 0, 0, 0]);
            None
        }
    }

    /// The lenders of the far stores `hosts` and `auto`.
    pub fn lenders(&'static self) -> Lenders {
        Lenders {
            settings: &self.settings.lenders,
            late: &self.late_lenders,
            figures: &self.lenders,
            behind: &self.behind_lenders,
        }
    }

    /// Makes a control block with these settings; returns its descriptor, which children inherit.
    pub fn create(settings: Settings) -> Result<(i32, &'static Control), crate::sys::Errno> {
        let fd = crate::sys::memfd(MEMFD_NAME, 0, Self::BYTES as u64)?;
        // SAFETY: a fresh mapping nobody else has yet; writing the two plain fields initialises it, the rest
        // are atomics for which zeros are right.
        unsafe {
            let at = crate::sys::mmap(
                0,
                Self::BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd,
                0,
            )?;
            let control = at as *mut Control;
            (&raw mut (*control).settings).write(settings);
            (&raw mut (*control).magic).write(MAGIC);
            libc::fcntl(fd, libc::F_SETFD, 0);
            Ok((fd, &*control))
        }
    }
}

/// Where the processes of a run find its control block: behind a descriptor that they inherit, or behind the one of that number that the
/// launcher keeps, as some programs start others with all descriptors closed (Python's `subprocess` does).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle {
    /// The descriptor's number.
    pub fd: i32,
    /// The launcher's process.
    pub launcher: i32,
}

impl std::fmt::Display for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.fd, self.launcher)
    }
}

impl Handle {
    /// The handle that an environment variable holds.
    pub fn parse(text: &str) -> Option<Handle> {
        let (fd, launcher) = text.split_once(':')?;
        Some(Handle { fd: fd.parse().ok()?, launcher: launcher.parse().ok()? })
    }

    /// Maps the control block, and says whether the descriptor is this process's own; `None` if there is no way to it.
    pub fn map(self) -> Option<(&'static Control, bool)> {
        if let Some(control) = Control::map(self.fd) {
            return Some((control, true));
        }
        let fd = crate::sys::open_of_process(self.launcher, self.fd, MEMFD_NAME, libc::O_RDWR).ok()?;
        let control = Control::map(fd);
        crate::sys::close(fd);
        control.map(|control| (control, false))
    }
}

impl Settings {
    /// Settings with nothing limited: 4K pages, private page tables, own faults, one worker.
    pub fn new(policy: &str, far: &str) -> Settings {
        let mut s = Settings {
            near_bytes: u64::MAX,
            near_automatic: 0,
            page_shift: 12,
            page_tables: AtomicU32::new(PageTables::Private as u32),
            faults: Faults::Own as u32,
            workers: 1,
            policy: [0; 64],
            far: [0; 4096],
            far_bytes: u64::MAX,
            far_memory_bytes: u64::MAX,
            lenders: LendersSettings::NONE,
            count_regions: 0,
            segment: SegmentSettings::default(),
            sample_period_ns: 0,
            node: 0,
            nodes: 1,
            consistency: Consistency::Smart as u32,
            prefetch: 1,
            check_races: 0,
            home_alone: 1,
            all_cpus: 0,
            placing: 0,
            require: 0,
            launcher_words: 0,
            has_no_launcher: 0,
            meeting: [0; MEETING_BYTES],
        };
        put_text(&mut s.policy, policy);
        put_text(&mut s.far, far);
        s
    }

    /// Whether the user asked for a near limit.
    pub fn has_asked_limit(&self) -> bool {
        self.near_bytes != u64::MAX && self.near_automatic == 0
    }

    /// The replacement policy's text.
    pub fn policy(&self) -> &str {
        text(&self.policy)
    }

    /// The far store's text.
    pub fn far(&self) -> &str {
        text(&self.far)
    }

    /// How the node reaches the others.
    pub fn meeting(&self) -> &str {
        text(&self.meeting)
    }

    /// Says how the node reaches the others.
    pub fn set_meeting(&mut self, sockets: &str) {
        put_text(&mut self.meeting, sockets);
    }

    /// Whether several nodes run the program.
    pub fn several_nodes(&self) -> bool {
        self.nodes > 1
    }

    /// Whether workers are threads of one page table.
    pub fn shared_tables(&self) -> bool {
        self.page_tables.load(Ordering::Relaxed) == PageTables::Shared as u32
    }

    /// Whether a handler thread resolves faults.
    pub fn fault_thread(&self) -> bool {
        self.faults == Faults::Thread as u32
    }
}

fn put_text(to: &mut [u8], text: &str) {
    let n = text.len().min(to.len() - 1);
    to[..n].copy_from_slice(&text.as_bytes()[..n]);
}

fn text(bytes: &[u8]) -> &str {
    let n = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..n]).unwrap_or("")
}
