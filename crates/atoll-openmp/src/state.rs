//! The state that the whole runtime asks for first: whether the program is managed, where the pager is, and which worker the
//! calling thread is.
//!
//! Set once by `start`; read by every wrapper. The statics lie in this library's data, which all workers share.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use atoll_memory::control::{Control, MAX_WORKERS};
use atoll_memory::pager::executor::Executor;
use atoll_memory::pager::{FaultError, Pager};
use atoll_memory::sys;

static PAGER: AtomicPtr<Pager> = AtomicPtr::new(std::ptr::null_mut());
static FAULTS: AtomicBool = AtomicBool::new(false);
static HEAP: AtomicBool = AtomicBool::new(false);

const UNKNOWN: u32 = u32::MAX;

thread_local! {
    static EXECUTOR: Cell<u32> = const { Cell::new(UNKNOWN) };
    static TABLE: Cell<u32> = const { Cell::new(0) };
}

/// The pager, once the program is managed.
#[inline]
pub(crate) fn pager() -> Option<&'static Pager> {
    // SAFETY: null or a leaked Pager. Acquire: pairs with the Release in `manage`.
    unsafe { PAGER.load(Ordering::Acquire).as_ref() }
}

/// The control block, once the program is managed.
pub(crate) fn control() -> Option<&'static Control> {
    pager().map(Pager::control)
}

/// Makes the program managed from now on.
pub(crate) fn manage(pager: &'static Pager) {
    PAGER.store(std::ptr::from_ref(pager).cast_mut(), Ordering::Release);
}

/// Whether faults are served. Before that no page is missing, and none can be fetched.
#[inline]
pub(crate) fn serves_faults() -> bool {
    FAULTS.load(Ordering::Relaxed)
}

/// Stops managing, in a process that the program forked, which has copies of all memory. Its heap stays.
pub(crate) fn manage_no_more() {
    PAGER.store(std::ptr::null_mut(), Ordering::Release);
    FAULTS.store(false, Ordering::Relaxed);
}

/// Serves faults from now on.
pub(crate) fn set_serves_faults() {
    FAULTS.store(true, Ordering::Relaxed);
}

/// Whether `malloc` hands out shared memory.
#[inline]
pub(crate) fn heap_ready() -> bool {
    HEAP.load(Ordering::Relaxed)
}

/// Makes `malloc` hand out shared memory from now on.
pub(crate) fn set_heap_ready() {
    HEAP.store(true, Ordering::Relaxed);
}

/// Makes the calling thread worker `index` on page table `table`, with an executor.
pub(crate) fn become_worker(index: usize, table: usize) {
    EXECUTOR.set(index as u32);
    TABLE.set(table as u32);
    if let Some(pager) = pager() {
        // SAFETY: each index becomes a worker once.
        if let Err(e) = unsafe { pager.make_executor(index, Some(table), index) } {
            crate::start::signal::end(FaultError::Far(e));
        }
    }
    // Called after the executor exists: it reads the clock with a buffer on a stack that may be paged.
    crate::journal::worker(index);
}

/// The page table of the calling thread.
#[inline]
pub(crate) fn table() -> usize {
    TABLE.get() as usize
}

/// The number of the calling thread's executor. A thread that is no worker borrows one, for ever unless [`end_thread`] gives it
/// back.
#[inline]
pub(crate) fn executor_index() -> usize {
    let index = EXECUTOR.get();
    if index != UNKNOWN { index as usize } else { borrow_executor() }
}

#[cold]
fn borrow_executor() -> usize {
    let Some(pager) = pager() else { return MAX_WORKERS };
    let _blocked = (!crate::start::signal::is_handling()).then(SignalsBlocked::new);
    // The first thread of a program that another of its threads made managed.
    if crate::start::take_over::is_first_without_number() {
        become_worker(0, 0);
        return 0;
    }
    let index = pager.borrow_executor(table(), false).unwrap_or_else(|e| crate::start::signal::end(e));
    EXECUTOR.set(index as u32);
    index
}

/// Gives the calling thread, which is no worker, page table `table`; returns the number of its executor, for [`end_thread`].
pub(crate) fn begin_thread(table: usize) -> usize {
    TABLE.set(table as u32);
    executor_index()
}

/// Gives back executor `index` of a thread that has ended, on page table `table`.
pub(crate) fn end_thread(index: usize, table: usize) {
    if let Some(pager) = pager() {
        let _blocked = SignalsBlocked::new();
        pager.give_back_executor(index, table);
    }
}

/// The calling thread's executor.
///
/// # Safety
/// Only one reference exists at a time. None may exist while a fault of this thread is handled, so callers block signals around
/// it.
#[expect(clippy::mut_from_ref, reason = "executors are disjoint; each thread has its own")]
pub(crate) unsafe fn executor(pager: &'static Pager) -> &'static mut Executor {
    // SAFETY: the index is this thread's own; the caller promises that there is one reference.
    unsafe { pager.executor(executor_index()) }
}

/// Whether the calling thread is the program's first one.
pub(crate) fn is_first_thread() -> bool {
    if pager().is_some() {
        return EXECUTOR.get() == 0;
    }
    // SAFETY: no arguments.
    unsafe { sys::syscall(libc::SYS_gettid, [0; 6]) == sys::syscall(libc::SYS_getpid, [0; 6]) }
}

/// Whether the calling thread is the program's first one, or a worker.
pub(crate) fn is_worker() -> bool {
    (EXECUTOR.get() as usize) < MAX_WORKERS
}

/// Whether the program's workers are processes, which see only shared memory.
pub(crate) fn are_workers_processes() -> bool {
    control().is_some_and(|control| !control.settings.shared_tables())
}

/// Ends the program: prints what happened, leaves the exit status for the launcher, and kills all other processes.
pub(crate) fn give_up(status: i32, message: &str) -> ! {
    sys::complain("atoll: ");
    sys::complain(message);
    sys::complain("\n");
    if let Some(control) = control() {
        let _ = control.failure.compare_exchange(0, status, Ordering::Relaxed, Ordering::Relaxed);
        let master = control.program.load(Ordering::Relaxed);
        if master > 0 {
            // SAFETY: no pointers; the master is this program.
            let _ = unsafe {
                sys::syscall(libc::SYS_kill, [master as usize, libc::SIGKILL as usize, 0, 0, 0, 0])
            };
        }
    }
    loop {
        // SAFETY: ends this process.
        let _ = unsafe { sys::syscall(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// A guard that blocks every signal while it lives, so that no handler of the program interrupts.
pub(crate) struct SignalsBlocked {
    before: u64,
}

/// The signals that an instruction causes: SIGBUS is how faults arrive, the others must kill instead of hang.
const fn synchronous() -> u64 {
    const fn bit(signal: i32) -> u64 {
        1 << (signal - 1)
    }
    bit(libc::SIGBUS) | bit(libc::SIGSEGV) | bit(libc::SIGFPE) | bit(libc::SIGILL) | bit(libc::SIGTRAP)
}

impl SignalsBlocked {
    /// The mask while the guard lives, as the kernel keeps it: without the two signals that cannot be blocked.
    pub(crate) const MASK: u64 = !(synchronous() | 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1));

    /// Blocks all signals except those that an instruction causes.
    pub(crate) fn new() -> SignalsBlocked {
        SignalsBlocked { before: set_mask(SignalsBlocked::MASK) }
    }

    /// The signal mask before.
    pub(crate) fn before(&self) -> u64 {
        self.before
    }
}

/// Blocks all signals, those that an instruction causes among them.
pub(crate) fn set_all_blocked() -> SignalsBlocked {
    SignalsBlocked { before: set_mask(u64::MAX) }
}

/// Blocks for ever all signals except those that the thread itself causes, by an instruction or a system call, and those that
/// stop and continue the whole job.
pub(crate) fn block_asynchronous() {
    let others = [libc::SIGPIPE, libc::SIGXFSZ, libc::SIGSYS, libc::SIGTSTP, libc::SIGCONT];
    set_mask(others.iter().fold(SignalsBlocked::MASK, |m, s| m & !(1 << (s - 1))));
}

impl SignalsBlocked {
    /// Lets pending signals be handled now that were not blocked before.
    pub(crate) fn let_pass(&self) {
        let blocked = set_mask(self.before);
        set_mask(blocked);
    }
}

/// Tells the launcher which signals the program itself blocks, if the calling thread is its first.
pub(crate) fn publish_mask() {
    if is_first_thread()
        && let Some(control) = control()
    {
        let blocked = SignalsBlocked::new();
        control.blocked.store(blocked.before, Ordering::Relaxed);
    }
}

/// Whether a signal is pending for the calling thread, or its process, that the mask `blocked` lets pass.
pub(crate) fn signal_waits(blocked: u64) -> bool {
    let mut waiting = 0u64;
    let words = [std::ptr::from_mut(&mut waiting) as usize, 8, 0, 0, 0, 0];
    // SAFETY: eight bytes, the size the kernel is told.
    while unsafe { sys::syscall(libc::SYS_rt_sigpending, words) }.is_err() {
        // The words lie on a stack that another node took at this moment: a write brings it back.
        // SAFETY: this function's own variable.
        unsafe { (&raw mut waiting).write_volatile(0) };
    }
    waiting & !blocked != 0
}

/// Lets the calling thread, a worker, receive `signal` from now on.
pub(crate) fn unblock(signal: i32) {
    let mask = SignalsBlocked::new().before();
    set_mask(mask & !(1 << (signal - 1)));
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        set_mask(self.before);
    }
}

/// The calling thread's signal mask. Nothing is retried: a thread that asks has a stack that no other node takes.
pub(crate) fn mask() -> u64 {
    let mut now = 0u64;
    // SAFETY: eight bytes, the size the kernel is told.
    let _ = unsafe { sys::syscall(libc::SYS_rt_sigprocmask, [0, 0, (&raw mut now) as usize, 8, 0, 0]) };
    now
}

/// Sets the calling thread's signal mask (bit n−1: signal n); returns the one before.
pub(crate) fn set_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    let words = [
        libc::SIG_SETMASK as usize,
        std::ptr::from_ref(&mask) as usize,
        std::ptr::from_mut(&mut before) as usize,
        8,
        0,
        0,
    ];
    // SAFETY: both pointers are to eight bytes, the size the kernel is told.
    while unsafe { sys::syscall(libc::SYS_rt_sigprocmask, words) }.is_err() {
        // The words lie on a stack that another node took at this moment: a write brings it back.
        // SAFETY: this function's own variable.
        unsafe { (&raw mut before).write_volatile(0) };
    }
    before
}
