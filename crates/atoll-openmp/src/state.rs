//! What the whole runtime asks first: is this program managed, where is the pager, which worker am I?
//!
//! Set once by `start`; read by every wrapper. The statics lie in this library's data, which all workers share.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use atoll_memory::control::{Control, MAX_WORKERS};
use atoll_memory::pager::executor::Executor;
use atoll_memory::pager::{FaultError, Pager};

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

/// From now on the program is managed.
pub(crate) fn manage(pager: &'static Pager) {
    PAGER.store(std::ptr::from_ref(pager).cast_mut(), Ordering::Release);
}

/// Are faults served yet? Before, no page is missing, and none can be fetched.
#[inline]
pub(crate) fn serves_faults() -> bool {
    FAULTS.load(Ordering::Relaxed)
}

/// Faults are served from now on.
pub(crate) fn set_serves_faults() {
    FAULTS.store(true, Ordering::Relaxed);
}

/// Does `malloc` hand out shared memory yet?
#[inline]
pub(crate) fn heap_ready() -> bool {
    HEAP.load(Ordering::Relaxed)
}

/// `malloc` hands out shared memory from now on.
pub(crate) fn set_heap_ready() {
    HEAP.store(true, Ordering::Relaxed);
}

/// The calling thread is worker `index` and runs on page table `table`: it gets its executor.
pub(crate) fn become_worker(index: usize, table: usize) {
    EXECUTOR.set(index as u32);
    TABLE.set(table as u32);
    if let Some(pager) = pager() {
        // A thread that is no worker, such as a node's agent, has its page table with others.
        let alone = (index < MAX_WORKERS).then_some(table);
        // SAFETY: each index becomes a worker once.
        if let Err(e) = unsafe { pager.make_executor(index, alone, index) } {
            crate::start::signal::end(FaultError::Far(e));
        }
    }
    // It asks for the time, with a buffer on a stack that may be paged: it needs the executor.
    if index < MAX_WORKERS {
        crate::journal::worker(index);
    }
}

/// The page table of the calling thread.
#[inline]
pub(crate) fn table() -> usize {
    TABLE.get() as usize
}

/// Number of the calling thread's executor; a thread that is no worker gets one of its own.
#[inline]
pub(crate) fn executor_index() -> usize {
    let index = EXECUTOR.get();
    if index != UNKNOWN {
        return index as usize;
    }
    let Some(pager) = pager() else { return MAX_WORKERS };
    let index = pager.extra_executor();
    become_worker(index, table());
    index
}

/// The calling thread's executor.
///
/// # Safety
/// One reference at a time: not while a fault of this thread is being handled, so block signals around it.
#[expect(clippy::mut_from_ref, reason = "executors are disjoint; each thread has its own")]
pub(crate) unsafe fn executor(pager: &'static Pager) -> &'static mut Executor {
    // SAFETY: the index is this thread's own; one reference by the caller.
    unsafe { pager.executor(executor_index()) }
}

/// Ends the program: what happened on standard error, the exit status for the launcher, SIGKILL for the rest.
pub(crate) fn give_up(status: i32, message: &str) -> ! {
    use atoll_memory::sys;
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

/// Blocks every signal for as long as it lives, so that no handler of the program interrupts.
pub(crate) struct SignalsBlocked {
    before: u64,
}

/// Signals that an instruction causes: SIGBUS is how faults arrive, the others must kill, not hang.
fn synchronous() -> u64 {
    [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP]
        .iter()
        .fold(0u64, |m, s| m | 1 << (s - 1))
}

impl SignalsBlocked {
    /// Blocks them, but those an instruction causes.
    pub(crate) fn new() -> SignalsBlocked {
        SignalsBlocked { before: set_mask(!synchronous()) }
    }
}

/// Blocks them all.
pub(crate) fn set_all_blocked() -> SignalsBlocked {
    SignalsBlocked { before: set_mask(u64::MAX) }
}

/// Blocks for ever all but what the thread's own instructions cause and what stops or goes on with the whole job.
pub(crate) fn block_asynchronous() {
    let job = [libc::SIGTSTP, libc::SIGCONT].iter().fold(0u64, |m, s| m | 1 << (s - 1));
    set_mask(!(synchronous() | job));
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        set_mask(self.before);
    }
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
    while unsafe { atoll_memory::sys::syscall(libc::SYS_rt_sigprocmask, words) }.is_err() {
        // They lie on a stack that another node took at this moment: a write brings it back.
        // SAFETY: this function's own variable.
        unsafe { (&raw mut before).write_volatile(0) };
    }
    before
}
