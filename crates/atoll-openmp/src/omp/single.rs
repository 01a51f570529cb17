//! `single`, with and without `copyprivate`.
//!
//! Needs no work share: members count the constructs they meet, and the first to reach a number has it.

use super::barrier;
use super::team::{Thread, me};
use std::sync::atomic::Ordering;

/// Is the calling member the first at its next `single`?
#[inline]
fn first(thread: &Thread) -> bool {
    let mine = thread.state.get().singles;
    thread.update(|state| state.singles += 1);
    let team = thread.team();
    // Members order nothing by this; a barrier follows where the program needs it.
    team.singles.compare_exchange(mine, mine + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_single_start() -> bool {
    first(me())
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_single_copy_start() -> *mut u8 {
    let thread = me();
    if first(thread) {
        return std::ptr::null_mut();
    }
    // Other side: `GOMP_single_copy_end`. The program has a barrier before it can meet the next such construct.
    barrier::meet(thread);
    thread.team().copy_private.load(Ordering::Relaxed)
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_single_copy_end(data: *mut u8) {
    let thread = me();
    thread.team().copy_private.store(data, Ordering::Relaxed);
    barrier::meet(thread);
}
