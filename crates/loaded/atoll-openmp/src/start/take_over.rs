//! Programs without OpenMP, such as Python, R and servers: managed from the moment at which they need much memory.
//!
//! `constructor` has a process watched that has no OpenMP at its start, or has it in libraries only and calls `fork`
//! (`imports`). The first process of a run is often a shell, `env` or a small helper of a script, so none is taken for the
//! program before it asks for memory. A helper of a program, such as the daemon that an MPI program starts for itself, must
//! need more than that program does. Then the heap, the arena and the pager are set up, and what the process asks for from
//! then on is paged. Its threads share one page table. An OpenMP runtime that it loads later is ours (`omp`), whose workers are
//! threads, too. `forked` handles processes that it forks. A later program of the run gets a control block of its own
//! (`own_control`).

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use atoll_memory::arena::{self, SetupError};
use atoll_memory::control::{Control, EXIT_FAR, EXIT_SETUP, Handle, PageTables};
use atoll_memory::{layout, limits, sys};

use super::cancelling::Uncancelled;
use super::share::PinnedFile;
use super::{constructor, forked, newer_libc, objects, own_control, process, signal};
use crate::{heap, state, wrap};

/// The process is not watched: there is no limit, or it is an OpenMP program, or one that is left alone.
const NOT: u32 = 0;
/// The process has not needed much memory yet.
const WATCHED: u32 = 1;
/// One of its threads is making it managed.
const STARTING: u32 = 2;
/// The process is managed.
const TAKEN: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(NOT);
static HEAP_PRIVATE: AtomicBool = AtomicBool::new(false);
static CONTROL: AtomicPtr<Control> = AtomicPtr::new(std::ptr::null_mut());
/// The process that started this one's program; 0 if that was the launcher, or has ended.
static PARENT: AtomicI32 = AtomicI32::new(0);
/// The bytes that all threads have asked for.
static ASKED: AtomicU64 = AtomicU64::new(0);

/// The bytes that a thread asks for between two looks at the process's memory.
const STEP: usize = 256 << 10;
/// The bounds in bytes of the memory in use at which a process is taken over: an eighth of near memory, but no less than
/// `LEAST` and no more than the value below.
const LEAST: u64 = 4 << 20;
const MOST: u64 = 64 << 20;
/// A process that reserves this many bytes of unused addresses at once hands them out itself, as Java and JavaScript do.
const RESERVED: usize = 1 << 30;
/// The least number of bytes of such a reservation if the process also chooses the address.
const CHOSEN: usize = 128 << 10;

thread_local! {
    /// Bytes that the thread has asked for since its last look.
    static SINCE: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread is the one that makes the process managed.
    static SETTING_UP: Cell<bool> = const { Cell::new(false) };
}

/// Whether programs without OpenMP are managed in this run: there is a limit, one node, and memory that is paged. `--require` without
/// a limit asks for a program with OpenMP.
pub(super) fn applies(control: &Control) -> bool {
    let s = &control.settings;
    (s.has_asked_limit() || s.require == 0)
        && s.near_bytes != u64::MAX
        && !s.several_nodes()
        && !s.segment.is_on()
}

/// Watches this process, which has no OpenMP, if there is a limit.
pub(super) fn watch(handle: Handle) {
    let Some((control, _)) = handle.map() else { return };
    if !applies(control) {
        return;
    }
    CONTROL.store(std::ptr::from_ref(control).cast_mut(), Ordering::Relaxed);
    // SAFETY: no pointers.
    let parent = unsafe { libc::getppid() };
    PARENT.store(if parent == handle.launcher || parent == 1 { 0 } else { parent }, Ordering::Relaxed);
    forked::begin();
    wrap::begin_ends();
    heap::overflow::begin();
    STATE.store(WATCHED, Ordering::Release);
}

/// Whether the process may be managed later.
#[inline]
pub(crate) fn is_watched() -> bool {
    matches!(STATE.load(Ordering::Relaxed), WATCHED | STARTING)
}

/// Whether the process is managed although it had no OpenMP at its start.
#[inline]
pub(crate) fn is_taken() -> bool {
    STATE.load(Ordering::Relaxed) == TAKEN
}

/// Stops managing, in a process that a managed one forked.
pub(super) fn leave() {
    STATE.store(NOT, Ordering::Relaxed);
    HEAP_PRIVATE.store(true, Ordering::Relaxed);
    state::set_first_without_number(false);
}

/// Corrects the state in a forked process, which lacks the thread that was making its parent managed.
pub(super) fn stop_starting() {
    let _ = STATE.compare_exchange(STARTING, NOT, Ordering::Relaxed, Ordering::Relaxed);
}

/// Whether the heap is private memory of this process, as in a process that was taken over and in those that it forks.
#[inline]
pub(crate) fn is_heap_private() -> bool {
    HEAP_PRIVATE.load(Ordering::Relaxed)
}

/// The code at `caller` asks for `size` bytes of memory.
#[inline]
pub(crate) fn asked(size: usize, caller: usize) {
    match STATE.load(Ordering::Relaxed) {
        WATCHED => look(size, caller),
        STARTING if size >= heap::large::LEAST => wait(),
        _ => {}
    }
}

/// Waits a while for the thread that is making the process managed, so that a large block can be paged. The wait is limited, as
/// the calling thread may hold a lock of libc's that the other one needs.
#[cold]
fn wait() {
    const NAP_NS: i64 = 200_000;
    const NAPS: u32 = 5_000;
    for _ in 0..NAPS {
        if STATE.load(Ordering::Acquire) != STARTING || SETTING_UP.get() {
            return;
        }
        sys::sleep_ns(NAP_NS);
    }
}

/// Notes that the program reserves `size` bytes of addresses; `chosen` if it chooses the address.
pub(crate) fn reserved(size: usize, chosen: bool) {
    let least = if chosen { CHOSEN } else { RESERVED };
    if size < least || STATE.compare_exchange(WATCHED, NOT, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    // SAFETY: null or a mapping that stays.
    let Some(control) = (unsafe { CONTROL.load(Ordering::Relaxed).as_ref() }) else { return };
    say(
        control,
        &format!(
            "reserves addresses, {} MiB at once, and hands memory out itself, as Java and JavaScript do: it runs as it is, and --near is not \
             applied to it",
            size.div_ceil(1 << 20)
        ),
    );
}

#[cold]
fn look(size: usize, caller: usize) {
    let since = SINCE.get().saturating_add(size);
    SINCE.set(since);
    // libc may hold locks of its own while it asks.
    if since < STEP || objects::is_private_code(caller) || objects::is_own_code(caller) {
        return;
    }
    SINCE.set(0);
    // SAFETY: null or a mapping that stays.
    let Some(control) = (unsafe { CONTROL.load(Ordering::Relaxed).as_ref() }) else { return };
    // Where the machine sets the limit, a program that needs little of its memory runs as it is.
    let most = if control.settings.has_asked_limit() { MOST } else { u64::MAX };
    let threshold = (control.near() / 8).clamp(LEAST, most);
    let resident = sys::private_bytes().saturating_add(size as u64);
    let needed =
        if resident < threshold { resident.max(asked_ahead(since as u64, threshold)) } else { resident };
    if needed < threshold || is_helper(needed, control.near()) {
        return;
    }
    // SAFETY: errno is this thread's, and a call for memory that succeeds leaves it alone.
    unsafe {
        let errno = *libc::__errno_location();
        let uncancelled = Uncancelled::new();
        take(control);
        drop(uncancelled);
        *libc::__errno_location() = errno;
    }
}

/// Bytes of blocks that the process has, touched or not, if it is time to ask for them, else 0: some collectors allocate ahead what they
/// touch much later. A thread asked for `bytes` since its last look. libc counts its blocks anew each time, which takes time.
fn asked_ahead(bytes: u64, threshold: u64) -> u64 {
    let before = ASKED.fetch_add(bytes, Ordering::Relaxed);
    let step = threshold / 4;
    if before / step == (before + bytes) / step { 0 } else { newer_libc::blocks_in_use() }
}

/// Whether this process, which needs `needed` bytes, is to be seen as a helper of the program that started it, and not as the program of
/// this run. A shell in front of the program is small; any other parent may be about to need more itself. A process that needs half of
/// near memory, which is `near` bytes, is no helper for its size alone.
fn is_helper(needed: u64, near: u64) -> bool {
    const SHELL: u64 = 2 << 20;
    // The daemon of Open MPI takes 17 MiB, when its parent has 4.
    const DAEMON: u64 = 24 << 20;
    const TIMES: u64 = 2;
    let parent = PARENT.load(Ordering::Relaxed);
    let parents = if parent == 0 { 0 } else { sys::private_bytes_of(parent) };
    parents >= SHELL && needed < (TIMES * parents).max(DAEMON.min(near / 2))
}

fn take(control: &'static Control) {
    if STATE.compare_exchange(WATCHED, STARTING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return wait();
    }
    SETTING_UP.set(true);
    let me = std::process::id() as i32;
    let first = control;
    let is_first = first.program.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let control = match if is_first { Ok(first) } else { own_control::make(first, me) } {
        Ok(control) => control,
        Err(why) => {
            STATE.store(NOT, Ordering::Release);
            let told = format!("needs memory, too, and is left alone, as {why}: --near is not applied to it");
            return say(first, &told);
        }
    };
    // Most programs without OpenMP are interpreters, which bring libraries as they go.
    control.expects_growth.store(1, Ordering::Relaxed);
    wrap::make_room_in_limits();
    if let Some(why) = missing(control) {
        control.program.store(0, Ordering::Release);
        STATE.store(NOT, Ordering::Release);
        return say(first, &format!("cannot be managed, and runs as it is: {why}"));
    }
    let blocked = state::SignalsBlocked::new();
    control.blocked.store(blocked.before(), Ordering::Relaxed);
    control.settings.page_tables.store(PageTables::Shared as u32, Ordering::Relaxed);
    if let Err(message) = constructor::on_large_stack(|| set_up(control)) {
        sys::complain(&format!("atoll: {message}\n"));
        let _ = control.failure.compare_exchange(0, EXIT_SETUP, Ordering::Relaxed, Ordering::Relaxed);
        // SAFETY: ends the process.
        unsafe { libc::_exit(control.failure.load(Ordering::Relaxed)) };
    }
    if !is_first {
        first.later_programs.fetch_add(1, Ordering::Relaxed);
        // What a later program prints is read by the script that started it.
        return;
    }
    let cmcp = if control.settings.policy().starts_with("cmcp") {
        ". CMCP has no core maps to go by there, and evicts first what came first"
    } else {
        ""
    };
    sys::complain(&format!(
        "atoll: {} (process {me}) is not linked with OpenMP itself: what it allocates from here on is paged, with shared page tables{cmcp}\n",
        name()
    ));
}

/// Why the process cannot be managed, found before anything is changed; `None` if it can.
fn missing(control: &Control) -> Option<String> {
    if let Err(limited) = limits::check() {
        return Some(limited.to_string());
    }
    match constructor::open_faults(control) {
        Err(why) => return Some(why),
        Ok(faults) => sys::close(faults.0),
    }
    let taken = layout::ALL.iter().find(|(start, bytes)| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: NOREPLACE: no existing mapping is touched. The test mapping is unmapped at once.
        unsafe {
            let mapped = sys::mmap(*start, *bytes, libc::PROT_NONE, flags, -1, 0);
            if let Ok(at) = mapped {
                let _ = sys::syscall(libc::SYS_munmap, [at, *bytes, 0, 0, 0, 0]);
            }
            mapped != Ok(*start)
        }
    });
    taken.map(|(start, _)| format!("addresses that atoll needs are in use, from {start:#x} on"))
}

fn name() -> String {
    let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    name.trim_end().to_owned()
}

/// Prints `what` about this process, once a run. Ends the process under `--require`.
fn say(control: &Control, what: &str) {
    let me = std::process::id() as i32;
    let is_first = control.late.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if is_first && (control.settings.has_asked_limit() || control.settings.require != 0) {
        sys::complain(&format!("atoll: {} (process {me}) {what}\n", name()));
    }
    if control.settings.require != 0 {
        sys::complain("atoll: --require is given, so it is ended\n");
        control.failure.store(EXIT_SETUP, Ordering::Release);
        // SAFETY: ends the process.
        unsafe { libc::_exit(EXIT_SETUP) };
    }
}

/// Sets up the process as the constructor does for an OpenMP program, without moving any memory: all of the process's threads
/// are in it.
fn set_up(control: &'static Control) -> Result<(), String> {
    let faults = constructor::open_faults(control)?;
    PinnedFile::none_but_private().map_err(|e| format!("cannot map memory at its place: {e}"))?;
    HEAP_PRIVATE.store(true, Ordering::Relaxed);
    if !heap::small::init() {
        return Err("mimalloc does not take the pinned memory".into());
    }
    state::set_heap_ready();
    let pager = arena::create(control).map_err(|e| {
        if matches!(e, SetupError::Far(_)) {
            control.failure.store(EXIT_FAR, Ordering::Relaxed);
        }
        e.to_string()
    })?;
    pager.set_pinned_private();
    pager.attach_table(0, faults).map_err(|e| format!("cannot register the arena with userfaultfd: {e}"))?;
    state::set_serves_faults();
    control.workers.store(1, Ordering::Relaxed);
    control.figures[0].pid.store(std::process::id() as i32, Ordering::Relaxed);
    signal::adopt(pager);
    state::set_first_without_number(true);
    state::manage(pager);
    STATE.store(TAKEN, Ordering::Release);
    // The calling thread's executor, which is the first one's if the thread is the first.
    let index = state::executor_index();
    if index == 0 {
        wrap::keep_alternate_stack();
        if !process::make_alternate_stack(0) {
            return Err("there is no room for stacks".into());
        }
    }
    if let Err(e) = pager.check_near() {
        atoll_memory::ending::end(e);
    }
    process::master_helpers(pager, faults)?;
    control.start_ticks.store(sys::ticks(), Ordering::Relaxed);
    Ok(())
}
