//! Sections that are dealt out one by one.
//!
//! The construct is a dynamic loop over the sections' numbers (`dispatch`); most compilers make a static loop of sections
//! instead.

use super::super::loops;
use super::super::team::me;
use super::super::workshare;
use super::dispatch;
use super::kinds::Location;

/// The schedule kind of a dynamic loop.
const DYNAMIC: i32 = 35;

/// Begins the construct; the program passes the number of its sections with each call for the next one.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_sections_init(_: *const Location, _: i32) -> i32 {
    dispatch::meet(DYNAMIC, 1, 0, 1, u64::from(u32::MAX));
    i32::from(me().team().size.get() > 1)
}

/// The number of the section that the calling thread executes next, from 0; `count` where none is left.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_next_section(_: *const Location, _: i32, count: i32) -> i32 {
    let thread = me();
    let share = workshare::current(thread);
    let next = loops::next(thread, thread.team(), share).map_or(u64::MAX, |(from, _)| from);
    i32::try_from(next).map_or(count, |next| next.min(count))
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_sections(_: *const Location, _: i32) {}
