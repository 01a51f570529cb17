//! Files that the program maps, shared, over a part of its anonymous memory (`MAP_FIXED`), as ring buffers and loaders do.
//!
//! Called by `mapping`. Such a part of the arena is the file's until the program unmaps it or maps anonymous memory there. Then
//! the arena's own pages are put back, here and in the other workers.

use std::collections::BTreeMap;

use atoll_memory::spin::{Held, Spin};
use atoll_memory::sys::Errno;

use crate::state::{self, SignalsBlocked};
use crate::wrap::replay;

/// The ranges that files lie over: start → end.
static OVER: Spin<BTreeMap<usize, usize>> = Spin::new(BTreeMap::new());

/// Notes that a file lies over `start..end` from now on.
pub(super) fn note(start: usize, end: usize) {
    let _blocked = SignalsBlocked::new();
    let mut over = OVER.lock();
    take_out(&mut over, start, end);
    over.insert(start, end);
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
    let _blocked = SignalsBlocked::new();
    gaps(&OVER.lock(), start, end)
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

/// Maps the arena's own pages at `start..end` again.
///
/// # Errors
/// The kernel's error.
pub(super) fn put_back(start: usize, end: usize) -> Result<(), Errno> {
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
    }
}
