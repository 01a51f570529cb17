//! Processes that the program forks: each gets a copy of its parent's memory as it was, and goes on by itself, not managed.
//!
//! Paged memory, the heap and, where workers are processes, globals, stacks and thread-local storage are shared memory, which a
//! fork does not copy, and whose absent pages nobody would fetch in the new process. So `plan` notes what is shared, `catch` takes
//! the place of the system call in libc's `fork`, in which `child` exchanges what is shared for private memory, and `serve` fills
//! that memory from the parent. If the parent is killed meanwhile, `watch` ends the new process.
//!
//! libc's handlers of forks call this module. They are registered before the program's first instruction, so they run next to
//! the fork itself on both sides.

mod catch;
mod child;
mod plan;
mod serve;
mod watch;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

use atoll_memory::pager::Pager;
use atoll_memory::spin::Spin;
use atoll_memory::sys::{self, Errno};
use atoll_memory::uffd::Uffd;
use atoll_memory::{far, layout, limits};

use super::cancelling::Uncancelled;
use super::{own_threads, process, signal, take_over};
use crate::heap::{large, mapped_over};
use crate::state::SignalsBlocked;
use crate::wrap::growth;
use crate::{journal, omp, state, wrap};
use plan::{Meeting, Plan};
use serve::End;

/// The plan of the fork that is under way; null if there is none.
static PLAN: AtomicPtr<Plan> = AtomicPtr::new(std::ptr::null_mut());
/// In a forked process, the page by which it knows whether its memory is complete.
static MEETING: AtomicPtr<Meeting> = AtomicPtr::new(std::ptr::null_mut());
/// Whether the fork that is under way failed after the new process had begun.
static FAILED: AtomicBool = AtomicBool::new(false);
/// Whether the copy for the fork that is under way fits into the machine's memory.
static FITS: AtomicBool = AtomicBool::new(true);
/// In a process that a worker forked: the worker's process, and the program's, which the program takes for its parent.
static PARENT: [AtomicI32; 2] = [const { AtomicI32::new(0) }; 2];
/// A lock that lets one thread fork at a time.
static FORKING: Mutex<()> = Mutex::new(());

/// Locks held during the fork, so that no other thread is in the middle of a change.
struct Locks {
    _extents: large::Kept,
    _over: mapped_over::Kept,
    _threads: own_threads::Kept,
    streams: wrap::stdio::Kept,
    _random: wrap::random::Kept,
    _blocked: SignalsBlocked,
}

static LOCKS: Spin<Option<Locks>> = Spin::new(None);

/// Registers the handlers of forks, before anybody else does.
pub(super) fn begin() {
    // SAFETY: the functions stay. If memory is too short to register them, a fork is refused later.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// The reasons why a process cannot be forked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForkError {
    /// The copy needs more memory than is free.
    #[error(
        "a forked process gets a copy of all paged memory, which is {need} MiB, and this machine has {have} MiB free"
    )]
    NoMemory {
        /// The size of the copy in MiB.
        need: u64,
        /// Free memory in MiB.
        have: u64,
    },
    /// The program runs in a way in which its memory cannot be copied.
    #[error("{0}: posix_spawn, system and popen are")]
    Elsewhere(&'static str),
    /// The kernel cannot stop libc at the system call.
    #[error("this kernel has no syscall user dispatch (Linux 5.11 has it): {0}")]
    NoDispatch(Errno),
    /// The kernel refused something else.
    #[error("{0}")]
    Kernel(#[from] Errno),
}

impl ForkError {
    /// What `errno` says of it.
    pub(crate) fn number(&self) -> i32 {
        match self {
            ForkError::NoMemory { .. } => libc::ENOMEM,
            _ => libc::EAGAIN,
        }
    }
}

/// Forks with `call`, which returns 0 in the new process. `handlers`: libc calls its handlers of forks during the call.
///
/// # Errors
/// See [`ForkError`].
pub(crate) fn fork(handlers: bool, call: impl FnOnce() -> i32) -> Result<i32, ForkError> {
    growth::expect();
    let Some(pager) = state::pager() else {
        complete();
        return Ok(call());
    };
    let alone = FORKING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let uncancelled = Uncancelled::new();
    prepare(pager)?;
    drop(uncancelled);
    if !handlers {
        before();
    }
    let result = call();
    match result {
        0 if !handlers => in_child(),
        0 => {}
        _ => in_parent(),
    }
    drop(alone);
    if result > 0 && FAILED.swap(false, Ordering::Relaxed) {
        return Err(no_memory(pager));
    }
    Ok(result)
}

/// The most bytes that a copy of all memory has.
fn copy_bytes(pager: &Pager) -> u64 {
    let pinned = pager.pinned_file().map_or(0, |_| pager.pinned_bytes());
    pager.control().totals.touched_bytes.load(Ordering::Relaxed) + pinned
}

fn no_memory(pager: &Pager) -> ForkError {
    let have = limits::available_bytes().unwrap_or(0);
    ForkError::NoMemory { need: copy_bytes(pager) >> 20, have: have >> 20 }
}

/// Makes the plan of a fork.
fn prepare(pager: &Pager) -> Result<(), ForkError> {
    if pager.is_segment() {
        return Err(ForkError::Elsewhere("fork is not possible in a segment"));
    }
    if pager.control().settings.several_nodes() {
        return Err(ForkError::Elsewhere("fork is not possible on several nodes"));
    }
    catch::check().map_err(ForkError::NoDispatch)?;
    let (faults, in_kernel) = Uffd::of_copy()?;
    sys::close(faults.0);
    let stacks = plan::stacks_in_use();
    // The new process needs its stack at once, and the parent alone can read pages of the arena.
    let paged_stack = stacks.iter().any(|at| layout::in_arena(*at));
    let waits = !in_kernel || paged_stack || !is_quiet(pager);
    let fits = limits::available_bytes().is_none_or(|have| have >= copy_bytes(pager));
    if !fits && waits {
        return Err(no_memory(pager));
    }
    FITS.store(fits, Ordering::Relaxed);
    let mut others = far::mapped();
    others.push((layout::TABLES, layout::TABLES_BYTES));
    let pinned = pager.pinned_file().unwrap_or(-1);
    let plan = Plan::make(pinned, &pager.files().numbers(), &others, &stacks, waits)?;
    PLAN.store(plan, Ordering::Relaxed);
    Ok(())
}

/// Whether nobody but the calling thread changes memory: there are no threads of the program's own, and no region is under way.
fn is_quiet(pager: &Pager) -> bool {
    let workers = if state::are_workers_processes() {
        1
    } else {
        pager.control().workers.load(Ordering::Relaxed) as usize
    };
    let expected = workers + process::helpers();
    state::table() == 0 && !omp::in_region() && threads() == Some(expected)
}

/// The number of this process's threads, without those with which the kernel serves its io_urings.
fn threads() -> Option<usize> {
    let is_kernels = |entry: &std::fs::DirEntry| {
        std::fs::read(entry.path().join("comm")).is_ok_and(|name| name.starts_with(b"iou-"))
    };
    let entries = std::fs::read_dir("/proc/self/task").ok()?;
    Some(entries.filter(|entry| !entry.as_ref().is_ok_and(is_kernels)).count())
}

/// Prepares the fork, after all other handlers.
extern "C" fn before() {
    let Some(pager) = state::pager() else { return };
    if PLAN.load(Ordering::Relaxed).is_null()
        && let Err(e) = prepare(pager)
    {
        // libc makes this fork itself, and there is no way to refuse it.
        state::give_up(atoll_memory::control::EXIT_SETUP, &format!("fork: {e}"));
    }
    let locks = Locks {
        _blocked: SignalsBlocked::new(),
        _threads: own_threads::keep(),
        _over: mapped_over::keep(),
        _extents: large::keep(),
        streams: wrap::stdio::keep(),
        _random: wrap::random::keep(),
    };
    *LOCKS.lock() = Some(locks);
    // SAFETY: the plan stays until `in_parent` or `in_child` frees it.
    unsafe { catch::arm(PLAN.load(Ordering::Relaxed)) };
}

/// Fills the new process's memory, in the parent, before any other handler.
extern "C" fn in_parent() {
    let at = PLAN.swap(std::ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: null, or the plan, which only this thread uses.
    let Some(plan) = (unsafe { at.as_ref() }) else { return };
    catch::disarm(plan);
    let process = plan.process.load(Ordering::Relaxed);
    if process > 0
        && let Some(pager) = state::pager()
    {
        match serve::serve(pager, plan, FITS.load(Ordering::Relaxed)) {
            End::Complete(bytes) => say(pager, process, bytes),
            End::Gone => {}
            End::NoMemory => {
                wrap::process::kill(process, libc::SIGKILL);
                child::reap(process);
                FAILED.store(true, Ordering::Relaxed);
            }
        }
    }
    drop(LOCKS.lock().take());
    // SAFETY: the new process has copies of its own.
    unsafe { Plan::free(at, true) };
}

/// Says once that a process goes on with much memory of its own.
fn say(pager: &Pager, process: i32, bytes: u64) {
    /// From this many bytes on.
    const MUCH: u64 = 64 << 20;
    static SAID: AtomicBool = AtomicBool::new(false);
    if bytes >= MUCH && pager.control().settings.has_asked_limit() && !SAID.swap(true, Ordering::Relaxed) {
        sys::complain(&format!(
            "atoll: process {process}, which the program forked, goes on with a copy of {} MiB of its own, and --near is not applied to it\n",
            bytes >> 20
        ));
    }
}

/// Sets the new process up, which has one thread and does not share its memory any more. It is managed no longer.
extern "C" fn in_child() {
    omp::forget_workers();
    take_over::stop_starting();
    let at = PLAN.swap(std::ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: null, or this process's copy of the plan.
    let Some(plan) = (unsafe { at.as_ref() }) else { return };
    MEETING.store(plan.meeting.cast_mut(), Ordering::Relaxed);
    let program = state::control().map_or(0, |control| control.program.load(Ordering::Relaxed));
    let names = if sys::parent() == program { [0; 2] } else { [sys::parent(), program] };
    PARENT.iter().zip(names).for_each(|(place, name)| place.store(name, Ordering::Relaxed));
    let locks = LOCKS.lock().take();
    catch::disarm(plan);
    signal::give_back();
    journal::stop();
    if !take_over::is_taken() {
        // What other threads were doing to the heap at the fork is half done: it is left as it is, and libc's serves from now on.
        state::leave_heap();
    }
    state::manage_no_more();
    take_over::leave();
    if let Some(locks) = &locks {
        wrap::in_forked(&locks.streams);
    }
    drop(locks);
    // SAFETY: nothing of the plan is used any more.
    unsafe { Plan::free(at, false) };
}

/// In a process that a worker forked: what the program takes for its parent, whose number is `parent`.
pub(crate) fn parent_of_program(parent: i32) -> i32 {
    let [worker, program] = &PARENT;
    if parent == worker.load(Ordering::Relaxed) { program.load(Ordering::Relaxed) } else { parent }
}

/// Whether this process has all of its memory, as any has but one that was forked a moment ago.
pub(crate) fn is_complete() -> bool {
    // SAFETY: null, or a page that stays.
    unsafe { MEETING.load(Ordering::Relaxed).as_ref() }
        .is_none_or(|meeting| meeting.complete.load(Ordering::Acquire) != 0)
}

/// Waits until this process has all of its memory.
pub(crate) fn complete() {
    // SAFETY: null, or a page that stays.
    if let Some(meeting) = unsafe { MEETING.load(Ordering::Relaxed).as_ref() } {
        meeting.hurry.store(1, Ordering::Relaxed);
        child::await_memory(meeting);
    }
}
