//! `sections` and `scope`.
//!
//! Sections are a dynamic loop (`loops`) over their numbers, from 1; 0 means that none is left.

use super::barrier;
use super::loop_calls::{self, Extras, NOTHING};
use super::loops::{self, Plan};
use super::parallel_loops::sections;
use super::team::me;
use super::workshare;

fn next() -> u32 {
    let thread = me();
    let share = workshare::current(thread);
    loops::next(thread, thread.team(), share).map_or(0, |(from, _)| from as u32 + 1)
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_sections_start(count: u32) -> u32 {
    loop_calls::meet(me(), sections(count), NOTHING, &[]);
    next()
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_sections2_start(count: u32, reductions: *mut usize, memory: *mut *mut u8) -> u32 {
    loop_calls::meet(me(), sections(count), Extras { reductions, memory }, &[]);
    next()
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_sections_next() -> u32 {
    next()
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_sections_end() {
    barrier::meet(me());
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_sections_end_nowait() {}

#[unsafe(no_mangle)]
extern "C" fn GOMP_sections_end_cancel() -> bool {
    barrier::meet_cancellable(me())
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_scope_start(reductions: *mut usize) {
    let extras = Extras { reductions, ..NOTHING };
    loop_calls::meet(me(), Plan::empty(), extras, &[]);
}
