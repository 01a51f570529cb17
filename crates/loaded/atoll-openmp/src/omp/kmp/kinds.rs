//! The numbers of LLVM's ABI: kinds of schedules, and the flags of a source location.
//!
//! `static_loops`, `dispatch` and `reduce` read them.
//!
//! Source: LLVM's openmp/runtime/src/kmp.h.

use super::super::icv::{SCHED_DYNAMIC, SCHED_GUIDED, SCHED_GUIDED_EVEN, SCHED_MONOTONIC, SCHED_STATIC};
use super::super::team::me;

/// `ident_t`: a construct's place in the source, and flags of the compiler's.
#[repr(C)]
pub(super) struct Location {
    reserved: i32,
    flags: i32,
}

/// The flag that the compiler also made code to reduce by atomic operations.
const ATOMIC_REDUCE: i32 = 0x10;

impl Location {
    /// Whether the construct at this location may reduce by atomic operations.
    pub(super) fn may_reduce_atomically(location: *const Location) -> bool {
        // SAFETY: null, or the program's description of a place, which is constant.
        unsafe { location.as_ref() }.is_some_and(|location| location.flags & ATOMIC_REDUCE != 0)
    }
}

const MONOTONIC: i32 = 1 << 29;
const NONMONOTONIC: i32 = 1 << 30;
/// The difference between a kind and the same kind whose chunks are never joined.
const UNJOINED: i32 = 160 - 32;
/// The difference between a kind and the same kind for an ordered loop.
const ORDERED: i32 = 64 - 32;

pub(super) const STATIC_CHUNKED: i32 = 33;
const DYNAMIC_CHUNKED: i32 = 35;
const GUIDED_CHUNKED: i32 = 36;
const RUNTIME: i32 = 37;
const TRAPEZOIDAL: i32 = 39;
const GUIDED_ITERATIVE: i32 = 42;
const GUIDED_ANALYTICAL: i32 = 43;
const STATIC_STEAL: i32 = 44;
/// The kind with blocks whose size is a multiple of the chunk.
pub(super) const STATIC_ROUNDED: i32 = 45;
const GUIDED_SIMD: i32 = 46;
const RUNTIME_SIMD: i32 = 47;
/// The schedule kinds of `distribute`.
pub(super) const DISTRIBUTE_CHUNKED: i32 = 91;
pub(super) const DISTRIBUTE: i32 = 92;

/// A kind without its modifiers, and whether its loop is ordered.
pub(super) fn plain(kind: i32) -> (i32, bool) {
    let kind = kind & !(MONOTONIC | NONMONOTONIC);
    let kind = if kind > 160 { kind - UNJOINED } else { kind };
    if (65..91).contains(&kind) { (kind - ORDERED, true) } else { (kind, false) }
}

/// Whether the chunks of a dispatched loop of this kind, with its modifiers, may come in any order.
pub(super) fn any_order(kind: i32) -> bool {
    let (plain, ordered) = plain(kind);
    !ordered && kind & MONOTONIC == 0 && (kind & NONMONOTONIC != 0 || plain == STATIC_STEAL)
}

/// The runtime's schedule and chunk for the kind and chunk of a dispatched loop of `count` iterations.
pub(super) fn schedule(kind: i32, chunk: i64, count: u64) -> (u32, u64) {
    let at_least_one = chunk.max(1) as u64;
    match kind {
        STATIC_CHUNKED => (SCHED_STATIC, at_least_one),
        DYNAMIC_CHUNKED | TRAPEZOIDAL | STATIC_STEAL => (SCHED_DYNAMIC, at_least_one),
        GUIDED_CHUNKED | GUIDED_ITERATIVE | GUIDED_ANALYTICAL => (SCHED_GUIDED, at_least_one),
        GUIDED_SIMD => (SCHED_GUIDED_EVEN, at_least_one),
        STATIC_ROUNDED => rounded(at_least_one, count),
        // The chunk is the number of iterations done at once, and the schedule that the run chooses counts in such units.
        RUNTIME_SIMD => {
            let (schedule, units) = schedule(RUNTIME, 0, count);
            match schedule & !SCHED_MONOTONIC {
                SCHED_DYNAMIC => (schedule, units.max(1) * at_least_one),
                SCHED_GUIDED => (SCHED_GUIDED_EVEN, units.max(1) * at_least_one),
                _ if units > 0 => (schedule, units * at_least_one),
                _ => rounded(at_least_one, count),
            }
        }
        RUNTIME => {
            let icv = me().icv();
            (icv.schedule, icv.chunk.max(0) as u64)
        }
        // One block for each thread.
        _ => (SCHED_STATIC, 0),
    }
}

/// The schedule and chunk that give one chunk, a multiple of `unit` iterations, to each thread.
fn rounded(unit: u64, count: u64) -> (u32, u64) {
    let threads = u64::from(me().team().threads());
    (SCHED_STATIC, count.div_ceil(threads).next_multiple_of(unit).max(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_lose_what_changes_nothing() {
        assert_eq!(plain(DYNAMIC_CHUNKED | 1 << 30), (DYNAMIC_CHUNKED, false));
        assert_eq!(plain(67), (DYNAMIC_CHUNKED, true));
        assert_eq!(plain(195), (DYNAMIC_CHUNKED, true));
        assert_eq!(plain(163 | 1 << 29), (DYNAMIC_CHUNKED, false));
        assert_eq!(plain(DISTRIBUTE), (DISTRIBUTE, false));
    }

    #[test]
    fn only_loops_that_leave_their_order_open_may_have_any() {
        assert!(any_order(DYNAMIC_CHUNKED | NONMONOTONIC) && any_order(STATIC_STEAL));
        assert!(!any_order(DYNAMIC_CHUNKED) && !any_order(DYNAMIC_CHUNKED | MONOTONIC));
        assert!(!any_order(67 | NONMONOTONIC), "an ordered loop");
    }
}
