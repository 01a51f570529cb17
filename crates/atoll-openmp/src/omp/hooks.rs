//! What the rest of the runtime wants to know about regions: called where they begin, pass barriers and end.
//!
//! Every function runs in the worker it speaks of, outside of any lock of the OpenMP runtime.

use atoll_memory::control::{Figures, MAX_WORKERS};
use atoll_memory::region_counts::Key;

use super::spread::measure;
use crate::{journal, start, state, wrap};

/// The calling worker is about to send a team off; the team does not run yet.
#[inline]
pub(super) fn before_region() {
    start::late::share();
}

/// The calling worker starts its part of the region of `key`.
#[inline]
pub(super) fn region_enter(key: Key) {
    if let Some(pager) = state::pager() {
        let index = state::executor_index().min(MAX_WORKERS);
        let control = pager.control();
        Figures::add(&control.figures[index].regions, 1);
        if control.settings.count_regions != 0 {
            // Where memory is shared, a function is a region wherever it is called from.
            let alike = Key { function: key.function, ..Key::default() };
            let key = if control.settings.several_nodes() { key } else { alike };
            control.regions.enter(index, key, &control.figures[index]);
        }
        measure::enter(index);
        wrap::replay::catch_up();
        if index == 0 {
            journal::region_enter(key.function as usize);
            pager.mark(number(key.function as usize, key.call_site as usize));
        }
    }
}

/// The calling worker has passed a barrier, from which it returns to `site` (0 where the entry point does not tell).
#[inline]
pub(super) fn barrier_passed(site: usize) {
    if let Some(pager) = state::pager()
        && state::executor_index() == 0
    {
        pager.mark(number(1, site));
    }
}

/// Two addresses in one number, which differ where the addresses do, or nearly always.
#[inline]
fn number(one: usize, other: usize) -> u32 {
    one.wrapping_mul(0x9e37_79b1).wrapping_add(other) as u32
}

/// The calling worker has ended its part of the region; it has not yet told the team.
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
