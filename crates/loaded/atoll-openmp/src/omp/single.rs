//! `single`, with and without `copyprivate`.
//!
//! No work share is needed: members count the constructs they meet, and the first to reach a number executes that one.

use super::barrier;
use super::spread;
use super::team::{Thread, me};
use std::sync::atomic::Ordering;

/// Words of what a `single` hands to the other threads that are looked at.
const LOOKED_AT: usize = 8;

/// Whether the calling member is the first to meet its next `single`, and so executes it.
#[inline]
pub(super) fn first(thread: &Thread) -> bool {
    let mine = thread.state.get().singles;
    thread.update(|state| state.singles += 1);
    let team = thread.team();
    let span = team.span.get();
    if team.spans() && !span.first_come && !atoll_nodes::on_origin() {
        // The origin's members will come as well: asking who was first would cost more.
        return false;
    }
    // Relaxed: members order nothing by this; a barrier follows where the program needs it.
    let first =
        team.sharing.singles.compare_exchange(mine, mine + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    first && (!span.first_come || spread::take_single(mine))
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_single_start() -> bool {
    first(me())
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_single_copy_start() -> *mut u8 {
    let thread = me();
    if thread.team().spans() {
        // The copied variables lie on the stack of the executing thread, and all nodes can read the first thread's. Constructs
        // are not counted. Only regions that reach this by a way that `spread::safety` does not see are spread.
        if thread.number() == 0 {
            return std::ptr::null_mut();
        }
        barrier::meet(thread);
        return atoll_nodes::ask::published() as *mut u8;
    }
    if first(thread) {
        return std::ptr::null_mut();
    }
    // Other side: `GOMP_single_copy_end`. The program has a barrier before it can meet the next such construct.
    barrier::meet(thread);
    thread.team().sharing.copy_private.load(Ordering::Relaxed)
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_single_copy_end(data: *mut u8) {
    let thread = me();
    if thread.team().spans() {
        // SAFETY: the program's structure of values and addresses, on this thread's stack, which goes on behind it.
        let words = unsafe { std::slice::from_raw_parts(data.cast::<usize>(), LOOKED_AT) };
        if words.iter().any(|&word| spread::tls::is_main_threads(word)) {
            atoll_nodes::unsupported("single with copyprivate of variables that are private to threads");
        }
        atoll_nodes::ask::publish(data as u64);
    }
    thread.team().sharing.copy_private.store(data, Ordering::Relaxed);
    barrier::meet(thread);
}
