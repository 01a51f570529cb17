//! Near memory gives way to the stacks of the program's own threads, which grow by no fault that the pager hears of.
//!
//! `wrap::threads` starts this with the first such thread that is made in a managed program. A helper thread looks how much is pinned now and then; at
//! faults, and between regions, the pager looks by itself. A program without such threads gets no helper: some calls, as `unshare`, are only for
//! processes with one thread.
//!
//! Rules for the helper: no allocation, no locks the program could hold, no access to paged memory.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use atoll_memory::pager::Pager;
use atoll_memory::sys;

use super::process;
use crate::state;

/// How often is looked, nanoseconds.
const LOOK_NS: i64 = 100_000_000;

/// Starts the helper, if there is a limit, all memory is this process's, and there is no helper yet.
pub(crate) fn watch(pager: &'static Pager) {
    static STARTED: AtomicBool = AtomicBool::new(false);
    let settings = &pager.control().settings;
    let is_limited = settings.near_bytes != u64::MAX && !settings.several_nodes() && !pager.is_segment();
    // A thread of another process than the first one would not be counted among the first one's helpers.
    if is_limited && state::table() == 0 && !STARTED.swap(true, Ordering::Relaxed) {
        // Without it all goes on as well as before.
        let _ = process::helper(pager, run);
    }
}

extern "C" fn run(pager: *mut c_void) -> *mut c_void {
    // SAFETY: the leaked pager.
    let pager: &'static Pager = unsafe { &*pager.cast::<Pager>() };
    loop {
        sys::sleep_ns(LOOK_NS);
        pager.pinned_bytes();
        if pager.exceeds_limit() {
            give_way(pager);
        }
    }
}

/// Evicts pages until near memory is within its limit, or can give no more.
fn give_way(pager: &'static Pager) {
    // Asked for only now: near memory is divided among all that have one.
    let Ok(index) = pager.borrow_executor(0, false) else { return };
    // SAFETY: this thread's own executor, which it has no other reference to.
    let x = unsafe { pager.executor(index) };
    if let Err(lost) = pager.give_back(x) {
        atoll_memory::ending::end(lost);
    }
    pager.give_back_executor(index, 0);
}
