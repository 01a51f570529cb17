//! Setting up the arena: the shared files, their mappings at fixed addresses, and the pager over them.
//!
//! Done once by the master before `main`; workers inherit all of it. The runtime crate calls it, the pager and
//! the far stores are built here.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use atoll_pages::{AnyPolicy, PolicySpec, Storage, huge};

use crate::arena_files::ArenaFiles;
use crate::control::{Control, MAX_THREADS, MAX_WORKERS};
use crate::far::{AnyFar, FarConfig, FarError, FarSpec};
use crate::layout;
use crate::pager::executor::{Executor, Executors};
use crate::pager::frames::Frames;
use crate::pager::leaving::{self, Leaving};
use crate::pager::node_rights::NodeRights;
use crate::pager::page_word::MAX_FRAMES;
use crate::pager::probe::{self, Probe};
use crate::pager::protections::Protections;
use crate::pager::threads::Threads;
use crate::pager::{Pager, Parts};
use crate::sys::{self, Errno};

static TABLES_FD: AtomicI32 = AtomicI32::new(-1);
static ZERO_PAGE: AtomicUsize = AtomicUsize::new(0);
/// Where in the tables' file parts lie that are as large as the limit lets them be, not as the program needs them: begin and end of the
/// policy's order, and of the executors' scratch memory.
static BY_LIMIT: [[AtomicUsize; 2]; 2] = [const { [const { AtomicUsize::new(0) }; 2] }; 2];

/// Why the arena could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A mapping or file was refused.
    #[error("cannot {what}: {errno}")]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// Something lies where the arena belongs.
    #[error(
        "address {0:#x}, which the arena needs, is in use (or the address space is limited by `ulimit -v`)"
    )]
    AddressTaken(usize),
    /// The policy's text is wrong.
    #[error("policy: {0}")]
    Policy(atoll_pages::spec::SpecError),
    /// The far store's text is wrong, or the store cannot be made.
    #[error("far memory: {0}")]
    Far(String),
    /// Not enough huge pages.
    #[error(
        "--page 2M needs {need} huge pages of 2 MiB and {have} are free: as root, \
         echo {need} > /proc/sys/vm/nr_hugepages"
    )]
    HugePages {
        /// Pages needed.
        need: u64,
        /// Pages free.
        have: u64,
    },
    /// The near limit leaves nothing.
    #[error(
        "--near {near} is less than the {least} bytes that atoll itself and the program's small blocks need"
    )]
    TooSmall {
        /// Bytes asked for.
        near: u64,
        /// Bytes needed.
        least: u64,
    },
}

fn kernel(what: &'static str) -> impl Fn(Errno) -> SetupError {
    move |errno| SetupError::Kernel { what, errno }
}

/// Maps `len` bytes of `fd` shared at `address`, where nothing may be yet.
fn map_at(address: usize, len: usize, fd: i32) -> Result<(), SetupError> {
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE: nothing that exists is touched.
    match unsafe { sys::mmap(address, len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) } {
        Ok(at) if at == address => {
            sys::in_core_files(address, len, false);
            Ok(())
        }
        Ok(_) => Err(SetupError::AddressTaken(address)),
        Err(errno) => Err(refused(address, errno)),
    }
}

/// Why nothing could be mapped at `address`.
fn refused(address: usize, errno: Errno) -> SetupError {
    match errno {
        Errno(libc::EEXIST | libc::ENOMEM) => SetupError::AddressTaken(address),
        errno => SetupError::Kernel { what: "map the arena", errno },
    }
}

/// Bytes the pager's tables take now.
pub fn table_bytes() -> u64 {
    sys::file_bytes(TABLES_FD.load(Ordering::Relaxed))
}

/// The part of [`table_bytes`] that is as large as the limit lets it be: the order that a policy keeps of all frames there could be, and the scratch memory
/// of evictions.
pub(crate) fn table_bytes_by_limit() -> u64 {
    let fd = TABLES_FD.load(Ordering::Relaxed);
    let part = |part: &[AtomicUsize; 2]| {
        let [from, to] = part.each_ref().map(|offset| offset.load(Ordering::Relaxed) as u64);
        sys::bytes_between(fd, from, to)
    };
    BY_LIMIT.iter().map(part).sum()
}

/// 2 MiB of zeros, to make absent huge pages from.
pub(crate) fn zero_page() -> *const u8 {
    ZERO_PAGE.load(Ordering::Relaxed) as *const u8
}

/// Takes pieces from the tables' mapping, in order.
struct Cutter {
    at: usize,
}

impl Cutter {
    fn take(&mut self, bytes: usize) -> Result<*mut u8, SetupError> {
        let at = self.at.next_multiple_of(4096);
        self.at = at + bytes;
        if self.at > layout::TABLES + layout::TABLES_BYTES {
            return Err(SetupError::Kernel { what: "fit the tables", errno: Errno(libc::ENOMEM) });
        }
        Ok(at as *mut u8)
    }
}

fn free_huge_pages() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let value =
        |name: &str| text.lines().find_map(|l| l.strip_prefix(name)?.trim().parse::<u64>().ok()).unwrap_or(0);
    let overcommit = std::fs::read_to_string("/proc/sys/vm/nr_overcommit_hugepages")
        .ok()
        .and_then(|t| t.trim().parse::<u64>().ok())
        .unwrap_or(0);
    value("HugePages_Free:") + overcommit.saturating_sub(value("HugePages_Surp:"))
}

fn physical_bytes() -> u64 {
    // SAFETY: no pointers.
    unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) as u64 * 4096 }
}

/// Sets up arena, tables, far memory and pager as the control block's settings say.
///
/// # Errors
/// See [`SetupError`]; the process is unusable for paging afterwards.
pub fn create(control: &'static Control) -> Result<&'static Pager, SetupError> {
    build(control, None)
}

/// Tables and a pager for a program whose memory is `segment`: it answers who asks for settings and counters, and is
/// never asked for a page.
///
/// # Errors
/// See [`SetupError`].
pub fn beside_segment(
    control: &'static Control,
    segment: &crate::segment::Segment,
) -> Result<&'static Pager, SetupError> {
    build(control, Some(ArenaFiles::one(segment.fd)))
}

fn build(control: &'static Control, mapped: Option<ArenaFiles>) -> Result<&'static Pager, SetupError> {
    let s = &control.settings;
    let shift = s.page_shift;
    let huge = shift == 21;
    let total = layout::ARENA_BYTES + layout::GLOBALS_BYTES;
    let pages = total >> shift;
    let mut policy: PolicySpec = s.policy().parse().map_err(SetupError::Policy)?;
    let far: FarSpec = s.far().parse().map_err(|e| SetupError::Far(format!("{e}")))?;

    let files = match mapped {
        Some(files) => files,
        None => {
            let files = ArenaFiles::new(total as u64, huge).map_err(kernel("make the arena's files"))?;
            // SAFETY: NOREPLACE: nothing that exists is touched.
            unsafe { files.map(layout::ARENA, 0, layout::ARENA_BYTES, libc::MAP_FIXED_NOREPLACE) }
                .map_err(|errno| refused(layout::ARENA, errno))?;
            sys::in_core_files(layout::ARENA, layout::ARENA_BYTES, false);
            if s.several_nodes() {
                // SAFETY: NOREPLACE: nothing that exists is touched.
                unsafe { files.map(layout::ALIAS, 0, layout::ARENA_BYTES, libc::MAP_FIXED_NOREPLACE) }
                    .map_err(|errno| refused(layout::ALIAS, errno))?;
                sys::in_core_files(layout::ALIAS, layout::ARENA_BYTES, false);
            }
            files
        }
    };
    let tables_fd = sys::memfd(c"atoll-tables", 0, layout::TABLES_BYTES as u64)
        .map_err(kernel("make the tables' file"))?;
    map_at(layout::TABLES, layout::TABLES_BYTES, tables_fd)?;
    TABLES_FD.store(tables_fd, Ordering::Relaxed);

    let limit_bytes = s.near_bytes.min(physical_bytes() * 2);
    let capacity = (limit_bytes >> shift).clamp(64, u64::from(MAX_FRAMES)) as u32;
    if huge && s.near_bytes != u64::MAX {
        let (need, have) = (u64::from(capacity), free_huge_pages());
        if have < need {
            return Err(SetupError::HugePages { need, have });
        }
    }
    let tables = if s.shared_tables() { 1 } else { MAX_WORKERS };
    let users = MAX_WORKERS + MAX_THREADS;
    let mut cut = Cutter { at: layout::TABLES };
    let words = cut.take(pages * 4)?;
    let touched = cut.take((pages >> 9).div_ceil(64) * 8 + 8)?;
    let stretches = (pages << shift).div_ceil(1 << huge::SHIFT);
    let stretch_words = cut.take(stretches * 8)?;
    let (protections, protection_chunks) = Protections::words(total);
    let protection_words = cut.take(protections * 8)?;
    let protection_chunk_words = cut.take(protection_chunks * 8)?;
    let frame_table = cut.take(capacity as usize * Frames::bytes_per_frame(tables))?;
    // Without a limit nothing is ever evicted: no policy is asked, and none needs memory for all frames.
    let ordered = if s.near_bytes == u64::MAX {
        policy = PolicySpec::ALL[0];
        1
    } else {
        capacity
    };
    let policy_words = policy.words(ordered);
    let order = cut.take(policy_words * 4)?.cast::<u32>();
    let free = cut.take(capacity as usize * 4)?.cast::<u32>();
    let leaving = Leaving::capacity(ordered);
    let entries = cut.take(leaving * size_of::<leaving::Entry>())?;
    let announced = cut.take(leaving.next_power_of_two() * 8)?;
    let executors = cut.take(users * size_of::<Executor>())?.cast::<Executor>();
    let drops = cut.take(size_of::<crate::pager::scan::DropRing>())?;
    // A batch of pages: 64 of 4K, 8 of 64K, one of 2M.
    let scratch_bytes = if shift == 12 { 256 << 10 } else { (512 << 10).max(1usize << shift) };
    let scratch = cut.take(users * scratch_bytes)?;
    // What a file is told only its user knows.
    let tried = if matches!(far, FarSpec::File(_)) { cut.take(probe::BYTES)? } else { std::ptr::null_mut() };
    let parts = [(order as usize, policy_words * 4), (scratch as usize, cut.at - scratch as usize)];
    for ([from, to], (at, bytes)) in BY_LIMIT.iter().zip(parts) {
        from.store(at - layout::TABLES, Ordering::Relaxed);
        to.store(at - layout::TABLES + bytes, Ordering::Relaxed);
    }
    let rights = if s.several_nodes() { Some(cut.take(pages)?) } else { None };
    let zero = cut.take(1 << 21)?;
    ZERO_PAGE.store(zero as usize, Ordering::Relaxed);

    // SAFETY: the pieces are disjoint, zeroed, mapped for ever and shared by all workers to come.
    let (frames, words, touched, stretches, notes, chunks, free, order, entries, announced) = unsafe {
        (
            Frames::new(frame_table, capacity as usize, tables),
            std::slice::from_raw_parts(words.cast(), pages),
            std::slice::from_raw_parts(touched.cast(), (pages >> 9).div_ceil(64) + 1),
            std::slice::from_raw_parts(stretch_words.cast(), stretches),
            std::slice::from_raw_parts(protection_words.cast(), protections),
            std::slice::from_raw_parts(protection_chunk_words.cast(), protection_chunks),
            std::slice::from_raw_parts_mut(free, capacity as usize),
            std::slice::from_raw_parts_mut(order, policy_words),
            std::slice::from_raw_parts_mut(entries.cast(), leaving),
            std::slice::from_raw_parts(announced.cast(), leaving.next_power_of_two()),
        )
    };
    let storage = Storage::new(&policy, ordered, order)
        .ok_or(SetupError::Kernel { what: "number so many frames", errno: Errno(libc::EINVAL) })?;
    let any_policy = AnyPolicy::new(policy, storage);
    let limit = (s.far_bytes != u64::MAX).then_some(s.far_bytes);
    let config = FarConfig {
        page_size: 1 << shift,
        pages: pages as u64,
        // And one for the thread that gives lenders back what they want.
        lanes: users as u32 + 1,
        limit_bytes: limit,
        memory_bytes: s.far_memory_bytes,
        counts_as_near: s.near_automatic != 0,
        lenders: Some(control.lenders()),
    };
    let store = AnyFar::new(&far, &config).map_err(|e: FarError| SetupError::Far(format!("{far}: {e}")))?;
    // SAFETY: zeroed memory of its size; atomics are valid when zero.
    let drops = unsafe { &*drops.cast() };
    let parts = Parts {
        words,
        touched,
        stretches,
        protections: (notes, chunks),
        frames,
        frame_limit: capacity,
        free,
        leaving: Leaving::new(entries),
        announced: leaving::Announced::new(announced),
        policy: any_policy,
        executors: Executors {
            at: executors,
            scratch,
            scratch_bytes,
            max_window: atoll_pages::pacing::window(shift),
            frames: capacity.into(),
            threads: Threads::new(),
        },
        far: store,
        drops,
        // SAFETY: null, or a piece of its own of as many bytes, zeroed and shared.
        probe: unsafe { Probe::new(tried) },
    };
    let pager = Pager::new(control, files, parts);
    if let Some(rights) = rights {
        // SAFETY: a piece of its own of as many bytes, zeroed and shared; atomics are valid when zero.
        let rights = unsafe { std::slice::from_raw_parts(rights.cast(), pages) };
        pager.set_rights(NodeRights::new(rights, s.node, s.nodes, shift));
    }
    Ok(Box::leak(Box::new(pager)))
}
