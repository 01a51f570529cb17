//! What one worker does to its own address space or signal handlers, repeated in the others.
//!
//! File mappings, protections and signal actions belong to a process. Once there are several, each such change is
//! written to a log in shared memory, and every worker makes up for what it missed when it enters its next region
//! ([`catch_up`]). A change is therefore seen by the others from the next region on.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use atoll_memory::control::MAX_WORKERS;
use atoll_memory::layout;
use atoll_memory::spin::Spin;
use atoll_memory::sys;

use crate::start::segment;
use crate::state::{self, SignalsBlocked};

/// The kernel's `struct sigaction`.
type KernelAction = [u64; 4];

#[derive(Clone, Copy)]
enum Change {
    /// A file was mapped.
    Map { at: usize, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64 },
    /// Memory was unmapped.
    Unmap { at: usize, len: usize },
    /// A protection was changed.
    Protect { at: usize, len: usize, prot: c_int },
    /// A signal's action was changed.
    Action { signal: c_int, action: KernelAction },
}

/// The changes, with the page table each was made in.
static LOG: Spin<Vec<(usize, Change)>> = Spin::new(Vec::new());
/// How many there are, to be read without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// How many each page table has made up for.
static DONE: [AtomicUsize; MAX_WORKERS] = [const { AtomicUsize::new(0) }; MAX_WORKERS];

/// Is there another process to tell?
pub(crate) fn needed() -> bool {
    state::control().is_some_and(|c| !c.settings.shared_tables() && c.workers.load(Ordering::Acquire) > 1)
}

fn note(change: Change) {
    let _blocked = SignalsBlocked::new();
    let mut log = LOG.lock();
    log.push((state::table(), change));
    // Release: pairs with the Acquire in `catch_up`.
    COUNT.store(log.len(), Ordering::Release);
}

/// A file was mapped by this worker (`mmap` with a descriptor, successful, at `at`).
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

/// Others shall map this, too; the descriptor stays open.
pub(crate) fn also_map(at: usize, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: u64) {
    if needed() {
        note(Change::Map { at, len, prot, flags, fd, offset: offset as i64 });
    }
}

/// Memory that is not the arena's was unmapped by this worker.
pub(crate) fn unmapped(at: usize, len: usize) {
    if needed() {
        note(Change::Unmap { at, len });
    }
}

/// A signal's action was set by this worker.
pub(super) fn action(signal: c_int) {
    if !needed() {
        return;
    }
    let mut action: KernelAction = [0; 4];
    // SAFETY: the kernel's structure is four words, eight mask bytes.
    let read = unsafe {
        sys::syscall(libc::SYS_rt_sigaction, [signal as usize, 0, action.as_mut_ptr() as usize, 8, 0, 0])
    };
    if read.is_ok() {
        note(Change::Action { signal, action });
    }
}

/// Makes up for what other workers changed. Costs two loads if that is nothing.
#[inline]
pub(crate) fn catch_up() {
    // Acquire: pairs with the Release in `note`.
    let count = COUNT.load(Ordering::Acquire);
    let table = state::table();
    if DONE[table].load(Ordering::Relaxed) < count {
        repeat(table);
    }
}

#[cold]
fn repeat(table: usize) {
    let _set_up = segment::SetUp::begin(None);
    let _blocked = SignalsBlocked::new();
    loop {
        let index = DONE[table].load(Ordering::Relaxed);
        let Some((by, change)) = LOG.lock().get(index).copied() else { return };
        DONE[table].store(index + 1, Ordering::Relaxed);
        if by != table && !apply(change) {
            sys::complain("atoll: a mapping that one worker made could not be repeated in another\n");
        }
    }
}

fn apply(change: Change) -> bool {
    // SAFETY: what the program did itself, in another worker, at the same addresses.
    unsafe {
        match change {
            Change::Map { at, len, prot, flags, fd, offset } => {
                let filled = if segment::is_on() { libc::MAP_POPULATE } else { 0 };
                let flags = (flags & !libc::MAP_FIXED_NOREPLACE) | libc::MAP_FIXED | filled;
                sys::mmap(at, len, prot, flags, fd, offset as u64).is_ok()
            }
            Change::Unmap { at, len } => sys::syscall(libc::SYS_munmap, [at, len, 0, 0, 0, 0]).is_ok(),
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

/// `mprotect`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mprotect(at: usize, len: usize, prot: c_int) -> c_int {
    // Blocks of the arena come and go without their protection being set back: they stay readable and writable.
    if state::pager().is_some() && layout::in_arena(at) && prot & libc::PROT_EXEC == 0 {
        return 0;
    }
    // SAFETY: by the caller.
    match unsafe { sys::syscall(libc::SYS_mprotect, [at, len, prot as usize, 0, 0, 0]) } {
        Ok(_) => {
            if needed() {
                note(Change::Protect { at, len, prot });
            }
            0
        }
        Err(e) => {
            // SAFETY: errno is this thread's.
            unsafe { *libc::__errno_location() = e.0 };
            -1
        }
    }
}

/// A library is about to be loaded: in the master it will be shared before the next region; a worker has it for
/// itself.
extern "C" fn before_dlopen() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if state::table() == 0 {
        crate::start::late::expect();
    } else if needed() && !SAID.swap(true, Ordering::Relaxed) {
        sys::complain(
            "atoll: a library loaded (dlopen) inside a parallel region is known only to the worker that loaded it\n",
        );
    }
}

/// Address of libc's `dlopen`.
extern "C" fn real_dlopen() -> usize {
    real!("dlopen", unsafe extern "C" fn()) as usize
}

/// `dlopen`: libc's own sees the original caller, on whom its search path depends.
///
/// # Safety
/// As libc's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn dlopen() {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {before}",
        "call {real}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        before = sym before_dlopen,
        real = sym real_dlopen,
    )
}
