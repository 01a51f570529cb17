//! The state that the whole runtime asks for first: whether the program is managed, where the pager is, and which worker the
//! calling thread is.
//!
//! Most of it is `atoll_memory::managed`, which a node's agent asks, too. Here is what only the runtime knows: what is set up
//! already, and what becomes of a thread that it makes a worker. The statics lie in this library's data, which all workers share.

use std::sync::atomic::{AtomicBool, Ordering};

use atoll_memory::control::MAX_WORKERS;
use atoll_memory::managed;
use atoll_memory::pager::Pager;
use atoll_memory::pager::executor::Executor;
use atoll_memory::sys;

pub(crate) use atoll_memory::ending::give_up;
pub(crate) use atoll_memory::managed::{control, end_thread, manage, pager, table};
pub(crate) use atoll_memory::signals::{
    SignalsBlocked, block_asynchronous, mask, set_all_blocked, set_mask, unblock,
};

static FAULTS: AtomicBool = AtomicBool::new(false);
static HEAP: AtomicBool = AtomicBool::new(false);
/// The program is managed since one of its threads needed memory. That need not be the first thread, which gets its executor when it
/// asks for it.
static FIRST_WITHOUT_NUMBER: AtomicBool = AtomicBool::new(false);

/// Says whether the first thread gets its executor when it asks for it: see [`FIRST_WITHOUT_NUMBER`].
pub(crate) fn set_first_without_number(without: bool) {
    FIRST_WITHOUT_NUMBER.store(without, Ordering::Relaxed);
}

/// Whether faults are served. Before that no page is missing, and none can be fetched.
#[inline]
pub(crate) fn serves_faults() -> bool {
    FAULTS.load(Ordering::Relaxed)
}

/// Stops managing, in a process that the program forked, which has copies of all memory. Its heap stays.
pub(crate) fn manage_no_more() {
    managed::manage_no_more();
    FAULTS.store(false, Ordering::Relaxed);
}

/// Leaves the heap as it is from now on, in a process that the program forked: nothing is taken from it or given back to it.
pub(crate) fn leave_heap() {
    HEAP.store(false, Ordering::Relaxed);
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
    managed::become_worker(index, table);
    // It asks for the time, with a buffer on a stack that may be paged: it needs the executor.
    crate::journal::worker(index);
}

/// Number of the calling thread's executor; a thread that is no worker borrows one, for ever unless
/// [`end_thread`] gives it back.
#[inline]
pub(crate) fn executor_index() -> usize {
    managed::own_executor().unwrap_or_else(without_number)
}

/// Number of the executor that the calling thread gets, which has none yet.
#[cold]
fn without_number() -> usize {
    let _blocked = (!atoll_memory::signals::is_handling()).then(SignalsBlocked::new);
    if pager().is_some() && FIRST_WITHOUT_NUMBER.load(Ordering::Relaxed) && is_first_of_process() {
        become_worker(0, 0);
        return 0;
    }
    managed::executor_index()
}

/// Gives the calling thread, which is no worker, page table `table`; returns the number of its executor, for [`end_thread`].
pub(crate) fn begin_thread(table: usize) -> usize {
    managed::set_table(table);
    executor_index()
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
        return managed::own_executor() == Some(0);
    }
    is_first_of_process()
}

fn is_first_of_process() -> bool {
    // SAFETY: no arguments.
    unsafe { sys::syscall(libc::SYS_gettid, [0; 6]) == sys::syscall(libc::SYS_getpid, [0; 6]) }
}

/// Whether the calling thread is the program's first one, or a worker.
pub(crate) fn is_worker() -> bool {
    managed::own_executor().is_some_and(|index| index < MAX_WORKERS)
}

/// Whether the program's workers are processes, which see only shared memory.
pub(crate) fn are_workers_processes() -> bool {
    control().is_some_and(|control| !control.settings.shared_tables())
}

/// Lets the launcher know which signals the program itself blocks, if the calling thread is its first.
pub(crate) fn publish_mask() {
    if is_first_thread()
        && let Some(control) = control()
    {
        let blocked = SignalsBlocked::new();
        control.blocked.store(blocked.before(), Ordering::Relaxed);
    }
}
