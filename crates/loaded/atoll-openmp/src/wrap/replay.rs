//! Changes that one worker makes to its own address space or signal handlers, repeated in the other workers.
//!
//! File mappings, protections and signal actions belong to a process. Once there are several, each such change is written to a
//! log in shared memory, and every worker repeats those that it lacks when it enters its next region ([`catch_up`]). So other
//! workers see a change from the next region on.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use atoll_memory::control::MAX_WORKERS;
use atoll_memory::spin::Spin;
use atoll_memory::sys;

use crate::arch;
use crate::heap::protected_elsewhere;
use crate::start::{segment, signal};
use crate::state::{self, SignalsBlocked};

use super::{growth, keys, system_v};

/// The kernel's `struct sigaction`.
type KernelAction = [u64; 4];

#[derive(Clone, Copy)]
enum Change {
    /// A file was mapped.
    Map { at: usize, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64 },
    /// Memory was unmapped.
    Unmap { at: usize, len: usize },
    /// System V shared memory was attached.
    Attach { id: c_int, at: usize, flags: c_int },
    /// System V shared memory was detached.
    Detach { at: usize },
    /// The arena's own pages were put back where a file lay.
    Arena { at: usize, len: usize },
    /// A protection was changed.
    Protect { at: usize, len: usize, prot: c_int },
    /// A signal's action was changed.
    Action { signal: c_int, action: KernelAction },
}

/// The changes, each with the page table that it was made in.
static LOG: Spin<Vec<(usize, Change)>> = Spin::new(Vec::new());
/// The number of changes, to be read without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The number of changes that each page table has caught up with.
static DONE: [AtomicUsize; MAX_WORKERS] = [const { AtomicUsize::new(0) }; MAX_WORKERS];

/// Whether there is another process that must repeat changes.
pub(crate) fn needed() -> bool {
    state::control().is_some_and(|c| !c.settings.shared_tables() && c.workers.load(Ordering::Acquire) > 1)
}

fn note(change: Change) {
    note_of(state::table(), change);
}

/// A number that is the page table of none of this node's workers.
const NOBODY: usize = usize::MAX;

fn note_of(table: usize, change: Change) {
    let _blocked = SignalsBlocked::new();
    let mut log = LOG.lock();
    log.push((table, change));
    // Release: pairs with the Acquire in `catch_up`.
    COUNT.store(log.len(), Ordering::Release);
}

/// Logs that this worker mapped a file (`mmap` with a descriptor, successful, at `at`).
pub(crate) fn mapped(at: usize, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) {
    if !needed() {
        return;
    }
    // The program may close its descriptor at once; all workers share the table of descriptors.
    // SAFETY: values only.
    let copy =
        unsafe { sys::syscall(libc::SYS_fcntl, [fd as usize, libc::F_DUPFD_CLOEXEC as usize, 0, 0, 0, 0]) };
    match copy {
        Ok(fd) => note(Change::Map { at, len, prot, flags, fd: fd as c_int, offset }),
        Err(_) => sys::complain(
            "atoll: out of descriptors: a file that was mapped just now is mapped in one worker only\n",
        ),
    }
}

/// Logs a mapping that other workers make, too; the descriptor stays open.
pub(crate) fn also_map(at: usize, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: u64) {
    if needed() {
        note(Change::Map { at, len, prot, flags, fd, offset: offset as i64 });
    }
}

/// On a node, for its agent: its workers are to map what another node has, by this descriptor.
pub(crate) fn file_came(map: &atoll_nodes::files::Mapped, fd: c_int) {
    let (at, len) = (map.at as usize, map.len as usize);
    note_of(NOBODY, Change::Map { at, len, prot: map.prot, flags: map.flags, fd, offset: map.offset });
}

/// Makes this node's workers unmap a file that another node has unmapped.
pub(crate) fn file_went(at: usize, len: usize) {
    note_of(NOBODY, Change::Unmap { at, len });
}

/// Whether the calling worker has changes to repeat.
pub(crate) fn is_behind() -> bool {
    DONE[state::table()].load(Ordering::Relaxed) < COUNT.load(Ordering::Acquire)
}

/// Logs that this worker unmapped memory that is not the arena's.
pub(crate) fn unmapped(at: usize, len: usize) {
    if needed() {
        note(Change::Unmap { at, len });
    }
}

/// This worker attached System V shared memory, at `at`.
pub(super) fn attached(id: c_int, at: usize, flags: c_int) {
    if needed() {
        note(Change::Attach { id, at, flags });
    }
}

/// This worker detached what was attached at `at`.
pub(super) fn detached(at: usize) {
    if needed() {
        note(Change::Detach { at });
    }
}

/// The arena's own pages were put back by this worker where a file lay.
pub(crate) fn arena_again(at: usize, len: usize) {
    if needed() {
        note(Change::Arena { at, len });
    }
}

/// Logs that this worker set a signal's action.
pub(super) fn action(signal: c_int) {
    let several = atoll_nodes::active();
    if !needed() && !several {
        return;
    }
    let mut action: KernelAction = [0; 4];
    if signal::is_ours(signal) {
        // All of the node's workers see the action of such a signal.
        let (handler, flags) = signal::program_handler(signal);
        action = [handler as u64, flags as u64, 0, signal::program_mask(signal)];
    } else {
        // SAFETY: the kernel's structure is four words, eight mask bytes.
        let read = unsafe {
            sys::syscall(libc::SYS_rt_sigaction, [signal as usize, 0, action.as_mut_ptr() as usize, 8, 0, 0])
        };
        if read.is_err() {
            return;
        }
        if needed() {
            note(Change::Action { signal, action });
        }
    }
    if several && let Some(place) = ACTIONS.get(signal as usize) {
        place.iter().zip(action).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        // Release: pairs with the Acquire in `new_actions`.
        NEW_ACTIONS.fetch_or(1 << signal, Ordering::Release);
    }
}

/// The action of each signal, by number, and below, bits of those that other nodes have not been told. There is no lock because
/// the agent reads them.
static ACTIONS: [[AtomicU64; 4]; 64] = [const { [const { AtomicU64::new(0) }; 4] }; 64];
static NEW_ACTIONS: AtomicU64 = AtomicU64::new(0);

/// The actions set since the last call, for the other nodes. Called on the origin by its agent.
pub(crate) fn new_actions() -> Vec<(i32, KernelAction)> {
    if NEW_ACTIONS.load(Ordering::Relaxed) == 0 {
        return Vec::new();
    }
    let new = NEW_ACTIONS.swap(0, Ordering::Acquire);
    let action = |signal: usize| ACTIONS[signal].each_ref().map(|word| word.load(Ordering::Relaxed));
    (0..64).filter(|signal| new >> signal & 1 != 0).map(|signal| (signal as i32, action(signal))).collect()
}

/// Sets actions that the origin set, whose functions lie at the same addresses here. Called on another node by its agent.
pub(crate) fn actions_came(actions: &[(i32, KernelAction)]) {
    for &(signal, action) in actions {
        if signal::is_ours(signal) {
            signal::set_program_handler(signal, action[0] as usize, action[1] as c_int, action[3]);
        } else if (1..64).contains(&signal) {
            note_of(NOBODY, Change::Action { signal, action });
        }
    }
}

/// Records that the new process of page table `table` has the state of its maker, of page table `maker`.
pub(crate) fn inherit(table: usize, maker: usize) {
    DONE[table].store(DONE[maker].load(Ordering::Relaxed), Ordering::Relaxed);
    keys::inherit(table, maker);
    protected_elsewhere::inherit(table, maker);
}

/// Repeats the changes of other workers that this one lacks. Costs five loads if there are none.
#[inline]
pub(crate) fn catch_up() {
    // Acquire: pairs with the Release in `note`.
    let count = COUNT.load(Ordering::Acquire);
    let table = state::table();
    if DONE[table].load(Ordering::Relaxed) < count {
        repeat(table);
    }
    protected_elsewhere::catch_up();
    keys::catch_up();
    // Called after the mappings, to which the linker's state may refer.
    crate::start::linker_state::catch_up();
}

#[cold]
fn repeat(table: usize) {
    let _set_up = segment::SetUp::begin(None);
    let _blocked = SignalsBlocked::new();
    loop {
        // Several threads of the program may begin regions on one page table: each change is repeated by one of them.
        let Some((by, change)) = next(table) else { return };
        if by != table && !apply(change) {
            sys::complain("atoll: a mapping that one worker made could not be repeated in another\n");
        }
    }
}

/// The next change that page table `table` lacks.
fn next(table: usize) -> Option<(usize, Change)> {
    let log = LOG.lock();
    let index = DONE[table].load(Ordering::Relaxed);
    let change = log.get(index).copied();
    DONE[table].store(index + usize::from(change.is_some()), Ordering::Relaxed);
    change
}

fn apply(change: Change) -> bool {
    // SAFETY: the program itself did the same in another worker, at the same addresses.
    unsafe {
        match change {
            Change::Map { at, len, prot, flags, fd, offset } => {
                let filled = if segment::is_on() { libc::MAP_POPULATE } else { 0 };
                let flags = (flags & !libc::MAP_FIXED_NOREPLACE) | libc::MAP_FIXED | filled;
                sys::mmap(at, len, prot, flags, fd, offset as u64).is_ok()
            }
            Change::Unmap { at, len } => sys::syscall(libc::SYS_munmap, [at, len, 0, 0, 0, 0]).is_ok(),
            // A segment that is gone by now has been detached since.
            Change::Attach { id, at, flags } => match system_v::attach(id, at, flags | libc::SHM_REMAP) {
                Ok(_) => true,
                Err(e) => [libc::EINVAL, libc::EIDRM].contains(&e.0),
            },
            Change::Detach { at } => {
                let _ = system_v::detach(at);
                true
            }
            Change::Arena { at, len } => {
                state::pager().is_some_and(|pager| pager.map_again(state::table(), at, len).is_ok())
            }
            Change::Protect { at, len, prot } => {
                sys::syscall(libc::SYS_mprotect, [at, len, prot as usize, 0, 0, 0]).is_ok()
            }
            Change::Action { signal, action } => {
                sys::syscall(libc::SYS_rt_sigaction, [signal as usize, action.as_ptr() as usize, 0, 8, 0, 0])
                    .is_ok()
            }
        }
    }
}

/// Protects memory of the program's that is not paged, in this worker and the others.
///
/// # Errors
/// The kernel's error.
pub(crate) fn protect(at: usize, len: usize, prot: c_int) -> Result<(), sys::Errno> {
    // SAFETY: the caller's caller owns the memory.
    unsafe { sys::syscall(libc::SYS_mprotect, [at, len, prot as usize, 0, 0, 0]) }?;
    if needed() {
        note(Change::Protect { at, len, prot });
    }
    atoll_nodes::files::protected(at, len, prot);
    Ok(())
}

/// Notes that a library is about to be loaded: one of the master's is shared before the next region, one of a worker's stays
/// that worker's own.
extern "C" fn before_dlopen() {
    static SAID: AtomicBool = AtomicBool::new(false);
    growth::expect();
    if state::table() == 0 {
        crate::start::late::expect();
        return;
    }
    crate::start::linker_state::keep_own();
    if needed() && !SAID.swap(true, Ordering::Relaxed) {
        sys::complain(
            "atoll: a library loaded (dlopen) inside a parallel region is known only to the worker that loaded it\n",
        );
    }
}

/// The address of libc's `dlopen`.
extern "C" fn real_dlopen() -> usize {
    real!("dlopen", unsafe extern "C" fn()) as usize
}

/// `dlopen`: libc's own function sees the original caller, on which its search path depends.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn dlopen() {
    arch::call_then_jump!(before_dlopen, real_dlopen)
}

/// `dlclose`: workers forget the library, too, before the next region.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn dlclose(handle: usize) -> c_int {
    let call = real!("dlclose", unsafe extern "C" fn(usize) -> c_int);
    // SAFETY: the caller's promise.
    let result = unsafe { call(handle) };
    if state::table() == 0 && state::pager().is_some() {
        crate::start::late::closed();
    }
    result
}
