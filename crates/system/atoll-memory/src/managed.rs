//! What is asked first in a process of a managed program: where is the pager, and which worker is the calling thread?
//!
//! The runtime sets it once. The fault path, wrappers of libc and a node's agent ask. The statics lie in the memory of the library
//! that this is linked into, which all workers share; what is a thread's own lies in its thread-local storage.
//!
//! Rules: no allocation, no locks, no arena access.

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::control::{Control, MAX_WORKERS};
use crate::ending::end;
use crate::pager::executor::Executor;
use crate::pager::{FaultError, Pager};
use crate::signals::{self, SignalsBlocked};

static PAGER: AtomicPtr<Pager> = AtomicPtr::new(std::ptr::null_mut());

const UNKNOWN: u32 = u32::MAX;

thread_local! {
    static EXECUTOR: Cell<u32> = const { Cell::new(UNKNOWN) };
    static TABLE: Cell<u32> = const { Cell::new(0) };
}

/// The pager, once the program is managed.
#[inline]
pub fn pager() -> Option<&'static Pager> {
    // SAFETY: null or a leaked Pager. Acquire: pairs with the Release in `manage`.
    unsafe { PAGER.load(Ordering::Acquire).as_ref() }
}

/// The control block, once the program is managed.
#[inline]
pub fn control() -> Option<&'static Control> {
    pager().map(Pager::control)
}

/// From now on the program is managed.
pub fn manage(pager: &'static Pager) {
    PAGER.store(std::ptr::from_ref(pager).cast_mut(), Ordering::Release);
}

/// The program is managed no longer.
pub fn manage_no_more() {
    PAGER.store(std::ptr::null_mut(), Ordering::Release);
}

/// The calling thread is worker `index` and runs on page table `table`: it gets its executor.
pub fn become_worker(index: usize, table: usize) {
    EXECUTOR.set(index as u32);
    TABLE.set(table as u32);
    if let Some(pager) = pager() {
        // SAFETY: each index becomes a worker once.
        if let Err(e) = unsafe { pager.make_executor(index, table, true, index) } {
            end(FaultError::Far(e));
        }
    }
}

/// The page table of the calling thread.
#[inline]
pub fn table() -> usize {
    TABLE.get() as usize
}

/// The calling thread runs on page table `table`.
pub fn set_table(table: usize) {
    TABLE.set(table as u32);
}

/// Number of the calling thread's executor, if it has one.
#[inline]
pub fn own_executor() -> Option<usize> {
    let index = EXECUTOR.get();
    (index != UNKNOWN).then_some(index as usize)
}

/// Number of the calling thread's executor; a thread that is no worker borrows one, for ever unless
/// [`end_thread`] gives it back.
#[inline]
pub fn executor_index() -> usize {
    own_executor().unwrap_or_else(borrow_executor)
}

#[cold]
fn borrow_executor() -> usize {
    let Some(pager) = pager() else { return MAX_WORKERS };
    let _blocked = (!signals::is_handling()).then(SignalsBlocked::new);
    let index = pager.borrow_executor(table(), false).unwrap_or_else(|e| end(e));
    EXECUTOR.set(index as u32);
    index
}

/// The thread that had executor `index` on page table `table` has ended.
pub fn end_thread(index: usize, table: usize) {
    if let Some(pager) = pager() {
        let _blocked = SignalsBlocked::new();
        pager.give_back_executor(index, table);
    }
}

/// The calling thread's executor.
///
/// # Safety
/// One reference at a time: not while a fault of this thread is being handled, so block signals around it.
#[expect(clippy::mut_from_ref, reason = "executors are disjoint; each thread has its own")]
pub unsafe fn executor(pager: &'static Pager) -> &'static mut Executor {
    // SAFETY: the index is this thread's own; one reference by the caller.
    unsafe { pager.executor(executor_index()) }
}
