//! Processes that a taken-over program forks (`take_over`): each gets a copy of all paged memory and goes on by itself, not
//! managed.
//!
//! The arena is shared memory, which a fork does not copy, and whose absent pages nobody would fetch in the new process. So the
//! parent first copies all that the arena holds to private memory of the same layout, the mirror; the new process moves the
//! mirror to the arena's place. Pinned memory and stacks are private there, so the kernel copies them when they are written.
//! libc's handlers of forks call this module. They are registered before the program's first instruction, so they run next to
//! the fork itself on both sides.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_memory::spin::Spin;
use atoll_memory::sys::{self, Errno};
use atoll_memory::{layout, limits};

use super::{own_threads, signal, take_over};
use crate::heap::{large, mapped_over};
use crate::state::SignalsBlocked;
use crate::{omp, state};

/// The greatest number of bytes of the arena that are copied at once.
const PIECE: usize = 1 << 20;

/// The address of the mirror; 0 if there is none.
static MIRROR: AtomicUsize = AtomicUsize::new(0);
/// Not 0 if the copy is made, so that the new process has to take it.
static FILLED: AtomicUsize = AtomicUsize::new(0);
/// A lock that lets one thread fork at a time.
static FORKING: Mutex<()> = Mutex::new(());

/// Locks held during the fork, so that no other thread is in the middle of a change.
struct Locks {
    _extents: large::Kept,
    _over: mapped_over::Kept,
    _threads: own_threads::Kept,
    _blocked: SignalsBlocked,
}

static LOCKS: Spin<Option<Locks>> = Spin::new(None);

/// Registers the handlers of forks, before anybody else does. Called when the process begins to be watched.
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
    /// There is no free address range.
    #[error("there is no free address range for a copy of the paged memory: {0}")]
    NoAddresses(Errno),
}

/// Forks with `call`, which returns 0 in the new process. `handlers`: libc calls its handlers of forks during the call.
///
/// # Errors
/// See [`ForkError`].
pub(crate) fn fork(handlers: bool, call: impl FnOnce() -> i32) -> Result<i32, ForkError> {
    let _alone = FORKING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    reserve()?;
    if !handlers {
        before();
    }
    let result = call();
    match result {
        0 if !handlers => in_child(),
        0 => {}
        _ => in_parent(),
    }
    Ok(result)
}

fn reserve() -> Result<(), ForkError> {
    let Some(control) = state::control() else { return Ok(()) };
    let need = control.totals.touched_bytes.load(Ordering::Relaxed);
    if let Some(have) = limits::available_bytes().filter(|have| *have < need) {
        return Err(ForkError::NoMemory { need: need >> 20, have: have >> 20 });
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping.
    let mirror = unsafe { sys::mmap(0, layout::ARENA_BYTES, prot, flags, -1, 0) };
    MIRROR.store(mirror.map_err(ForkError::NoAddresses)?, Ordering::Relaxed);
    Ok(())
}

/// Prepares the fork, after all other handlers.
extern "C" fn before() {
    let Some(pager) = state::pager().filter(|_| take_over::is_taken()) else { return };
    if MIRROR.load(Ordering::Relaxed) == 0
        && let Err(e) = reserve()
    {
        // libc makes this fork itself, and there is no way to refuse it.
        state::give_up(atoll_memory::control::EXIT_SETUP, &format!("fork: {e}"));
    }
    let mirror = MIRROR.load(Ordering::Relaxed);
    let (mut at, mut copied) = (layout::ARENA, 0);
    while let Some((start, end)) = pager.next_held(at) {
        copied += (end - start) as u64;
        pager.set_copied_bytes(copied);
        copy(start, end, mirror);
        at = end;
        if at >= layout::ARENA + layout::ARENA_BYTES {
            break;
        }
    }
    let locks = Locks {
        _blocked: SignalsBlocked::new(),
        _threads: own_threads::keep(),
        _over: mapped_over::keep(),
        _extents: large::keep(),
    };
    *LOCKS.lock() = Some(locks);
    FILLED.store(1, Ordering::Relaxed);
}

/// Copies `start..end` of the arena to its place in the mirror. Far pages come near for it, a page at a time.
fn copy(start: usize, end: usize, mirror: usize) {
    for from in (start..end).step_by(PIECE) {
        let to = (from + PIECE).min(end);
        for (a, b) in mapped_over::between(from, to) {
            // SAFETY: the arena's own pages, which are readable; only this thread uses the mirror.
            unsafe {
                std::ptr::copy_nonoverlapping(a as *const u8, (mirror + a - layout::ARENA) as *mut u8, b - a);
            }
        }
    }
}

/// Unmaps the mirror after the fork, in the program.
extern "C" fn in_parent() {
    FILLED.store(0, Ordering::Relaxed);
    drop(LOCKS.lock().take());
    let mirror = MIRROR.swap(0, Ordering::Relaxed);
    if mirror != 0 {
        // SAFETY: a mapping of ours that nobody uses.
        let _ = unsafe { sys::syscall(libc::SYS_munmap, [mirror, layout::ARENA_BYTES, 0, 0, 0, 0]) };
    }
    if let Some(pager) = state::pager() {
        pager.set_copied_bytes(0);
    }
}

/// Takes the copy after the fork, in the new process, which has one thread.
extern "C" fn in_child() {
    omp::forget_workers();
    take_over::stop_starting();
    if FILLED.swap(0, Ordering::Relaxed) == 0 {
        return;
    }
    let mirror = MIRROR.swap(0, Ordering::Relaxed);
    let files = state::pager().map(|pager| pager.files().numbers());
    let (arena, end) = (layout::ARENA, layout::ARENA + layout::ARENA_BYTES);
    let locks = LOCKS.lock().take();
    for (a, b) in locks.iter().flat_map(|locks| locks._over.between(arena, end)) {
        let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
        // SAFETY: the copy takes the place of the memory it is a copy of.
        let moved =
            unsafe { sys::syscall(libc::SYS_mremap, [mirror + a - arena, b - a, b - a, flags, a, 0]) };
        if moved.is_err() {
            sys::complain(
                "atoll: a forked process cannot move its copy of paged memory to its place, so it ends\n",
            );
            // SAFETY: ends this process.
            unsafe { libc::_exit(atoll_memory::control::EXIT_SETUP) };
        }
    }
    signal::give_back();
    state::manage_no_more();
    take_over::leave();
    drop(locks);
    // Closed so that the parent's pages are freed when the parent ends.
    files.into_iter().flatten().for_each(sys::close);
}
