//! `ordered` regions of loops with the `ordered` clause: a chunk's turn comes when all chunks before it are done.
//!
//! The work share holds the iteration whose turn it is; `loop_calls` passes the turn on at each chunk's end.

use super::team::{Thread, me};
use super::workshare;
use std::sync::atomic::Ordering;

/// Waits until the calling member's chunk has its turn.
pub(super) fn wait_for_turn(thread: &Thread) {
    if thread.team().spans() {
        atoll_nodes::unsupported("an ordered loop");
    }
    let (from, to) = thread.state.get().chunk;
    if from == to {
        return;
    }
    let ordered = &workshare::current(thread).cursor.ordered;
    // Other side: the store in `pass_on`.
    if ordered.load(Ordering::Acquire) != from {
        thread.team().turns.wait_until(|| ordered.load(Ordering::Acquire) == from);
    }
}

/// Ends the calling member's chunk and passes the turn to the next.
pub(crate) fn pass_on(thread: &Thread) {
    let (from, to) = thread.state.get().chunk;
    if from == to {
        return;
    }
    wait_for_turn(thread);
    workshare::current(thread).cursor.ordered.store(to, Ordering::Release);
    thread.team().turns.notify();
    thread.update(|state| state.chunk = (0, 0));
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_ordered_start() {
    wait_for_turn(me());
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_ordered_end() {}
