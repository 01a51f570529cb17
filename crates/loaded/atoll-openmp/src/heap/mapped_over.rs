//! Parts of the program's anonymous memory over which it has something else: files that it maps there (`MAP_FIXED`), as ring
//! buffers and loaders do, memory that it moves there, and code.
//!
//! Called by `mapping` and `moving`, and by `large` when blocks are freed. Such a part of the arena is the other mapping's until the program unmaps or
//! frees it, or maps anonymous memory there. Then the arena's own pages are put back, here and in the other workers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use atoll_memory::spin::{Held, Spin};
use atoll_memory::sys::Errno;

use super::{large, protections};
use crate::state::{self, SignalsBlocked};
use crate::wrap::replay;

/// The ranges that something lies over: start → end.
static OVER: Spin<BTreeMap<usize, usize>> = Spin::new(BTreeMap::new());
/// Whether there was ever one.
static ANY: AtomicBool = AtomicBool::new(false);

/// Whether nothing lies over any part of the arena, nor ever did.
pub(super) fn lies_nothing() -> bool {
    !ANY.load(Ordering::Relaxed)
}

/// The same, and all of the arena has its usual rights.
pub(crate) fn are_none() -> bool {
    lies_nothing() && !protections::are_any()
}

/// Maps something over `start..end`, by `map`; the memory there is given up. The edges are pinned: see `pin_edges`.
///
/// # Errors
/// Those of `map`. The memory is the arena's own then, and empty.
pub(super) fn cover<E>(start: usize, end: usize, map: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    let _blocked = SignalsBlocked::new();
    if let Some(pager) = state::pager() {
        pager.cover(start, end, large::figures(pager), map)?;
    } else {
        map()?;
    }
    let mut over = OVER.lock();
    take_out(&mut over, start, end);
    over.insert(start, end);
    ANY.store(true, Ordering::Relaxed);
    Ok(())
}

/// Pins the pages of which `start..end` is only a part, before anything is done to the range.
pub(super) fn pin_edges(start: usize, end: usize) {
    let Some(pager) = state::pager() else { return };
    let table = state::table();
    atoll_nodes::stack::off_paged(move || {
        let _blocked = SignalsBlocked::new();
        // SAFETY: signals are blocked and no memory that faults is touched while the reference lives.
        let x = unsafe { state::executor(pager) };
        if let Err(e) = pager.pin_edges(x, table, start, end) {
            atoll_memory::ending::end(e);
        }
    });
}

/// A guard that keeps these ranges unchanged while it lives.
pub(crate) struct Kept {
    _over: Held<'static, BTreeMap<usize, usize>>,
}

/// Locks the ranges for a fork. The caller blocks signals.
pub(crate) fn keep() -> Kept {
    Kept { _over: OVER.lock() }
}

/// The parts of `start..end` that are the arena's own.
pub(crate) fn between(start: usize, end: usize) -> Vec<(usize, usize)> {
    if lies_nothing() {
        return if start < end { vec![(start, end)] } else { Vec::new() };
    }
    let _blocked = SignalsBlocked::new();
    gaps(&OVER.lock(), start, end)
}

/// The parts of `start..end` over which something else lies.
pub(super) fn within(start: usize, end: usize) -> Vec<(usize, usize)> {
    if lies_nothing() {
        return Vec::new();
    }
    let _blocked = SignalsBlocked::new();
    parts(&OVER.lock(), start, end)
}

fn parts(over: &BTreeMap<usize, usize>, start: usize, end: usize) -> Vec<(usize, usize)> {
    over.range(..end).filter(|(_, b)| **b > start).map(|(a, b)| ((*a).max(start), (*b).min(end))).collect()
}

fn gaps(over: &BTreeMap<usize, usize>, start: usize, end: usize) -> Vec<(usize, usize)> {
    let mut gaps = Vec::new();
    let mut at = start;
    for (&a, &b) in over.range(..end).filter(|(_, b)| **b > start) {
        if at < a {
            gaps.push((at, a));
        }
        at = at.max(b);
    }
    if at < end {
        gaps.push((at, end));
    }
    gaps
}

/// Removes `start..end` from the ranges; returns the parts of it that were in them.
fn take_out(over: &mut BTreeMap<usize, usize>, start: usize, end: usize) -> Vec<(usize, usize)> {
    let touched: Vec<_> = over.range(..end).filter(|(_, b)| **b > start).map(|(a, b)| (*a, *b)).collect();
    for &(a, b) in &touched {
        over.remove(&a);
        if a < start {
            over.insert(a, start);
        }
        if end < b {
            over.insert(end, b);
        }
    }
    touched.into_iter().map(|(a, b)| (a.max(start), b.min(end))).collect()
}

/// Maps the arena's own pages at `start..end` again, with the usual rights.
///
/// # Errors
/// The kernel's error.
pub(super) fn put_back(start: usize, end: usize) -> Result<(), Errno> {
    protections::lift(start, end)?;
    if lies_nothing() {
        return Ok(());
    }
    let _blocked = SignalsBlocked::new();
    let parts = take_out(&mut OVER.lock(), start, end);
    let Some(pager) = state::pager() else { return Ok(()) };
    for (a, b) in parts {
        pager.map_again(state::table(), a, b - a)?;
        replay::arena_again(a, b - a);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_stretches_are_taken_out() {
        let mut over = BTreeMap::from([(0, 10), (20, 30), (40, 50)]);
        assert_eq!(take_out(&mut over, 5, 25), [(5, 10), (20, 25)]);
        assert_eq!(over, BTreeMap::from([(0, 5), (25, 30), (40, 50)]));
        assert_eq!(take_out(&mut over, 30, 40), []);
        let over = BTreeMap::from([(10, 20), (30, 40)]);
        assert_eq!(gaps(&over, 0, 50), [(0, 10), (20, 30), (40, 50)]);
        assert_eq!(gaps(&over, 12, 35), [(20, 30)]);
        assert_eq!(gaps(&over, 12, 18), []);
        assert_eq!(parts(&over, 12, 35), [(12, 20), (30, 35)]);
    }
}
