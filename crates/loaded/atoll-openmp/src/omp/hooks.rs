//! The events of regions that the rest of the runtime follows: `omp` calls these functions, which pass them on to the pager,
//! the journal and the nodes.
//!
//! Each function runs in the worker that it is about, and holds no lock of the OpenMP runtime.

use atoll_memory::control::{Figures, MAX_WORKERS};
use atoll_memory::pager::Pager;
use atoll_memory::region_counts::Key;

use super::spread::measure;
use crate::{journal, start, state, wrap};

/// Called when the worker is about to start a team, before the team runs.
#[inline]
pub(super) fn before_region() {
    start::late::share();
}

/// Called when the worker starts its part of the region of `key`.
#[inline]
pub(super) fn region_enter(key: Key) {
    if let Some(pager) = state::pager() {
        let index = state::executor_index().min(MAX_WORKERS);
        let control = pager.control();
        Figures::add(&control.figures[index].regions, 1);
        if control.settings.count_regions != 0 {
            // Where memory is shared, a function is one region wherever it is called from.
            let alike = Key { function: key.function, ..Key::default() };
            let key = if control.settings.several_nodes() { key } else { alike };
            control.regions.enter(index, key, &control.figures[index]);
        }
        measure::enter(index);
        wrap::replay::catch_up();
        if index == 0 {
            journal::region_enter(key.function as usize);
            mark(pager, number(key.function as usize, key.call_site as usize));
        }
    }
}

/// Called when the worker has passed a barrier, from which it returns to `site` (0 where the entry point does not tell).
#[inline]
pub(super) fn barrier_passed(site: usize) {
    if let Some(pager) = state::pager()
        && state::executor_index() == 0
    {
        mark(pager, number(1, site));
    }
}

/// Tells the pager that the first worker passed a point known by `id`, and gives memory back that the machine needs.
#[inline]
fn mark(pager: &'static Pager, id: u32) {
    pager.mark(id);
    if pager.is_beyond_limit() {
        wrap::paged::give_back(pager);
    }
}

/// Combines two addresses in one number, which nearly always differs where the addresses differ.
#[inline]
fn number(one: usize, other: usize) -> u32 {
    one.wrapping_mul(0x9e37_79b1).wrapping_add(other) as u32
}

/// Called when the worker has ended its part of the region but has not yet told the team.
#[inline]
pub(super) fn region_leave() {
    let Some(pager) = state::pager() else { return };
    let (control, index) = (pager.control(), state::executor_index().min(MAX_WORKERS));
    if control.settings.count_regions != 0 {
        control.regions.leave(index, &control.figures[index]);
    }
    measure::leave(index);
    if index == 0 {
        journal::region_leave();
    }
}
