//! Calls with any number of arguments, which the program decides: how `fork` and `teams` get them, and how they are passed on.
//!
//! `atoll_libgomp::frames` defines what a frame is and how its function is called.

pub(super) use atoll_libgomp::framed;
use atoll_libgomp::frames;

use super::super::team::me;

/// Calls the function of a frame in the calling member.
pub(super) extern "C" fn run(frame: *mut u8) {
    let thread = me();
    let (global, bound) = (thread.kmp.number(), thread.number() as i32);
    // SAFETY: the thread that opened the region or the league made the frame and waits for its end.
    unsafe { frames::call(frame.cast(), &raw const global, &raw const bound) };
}

/// The address of a frame's function.
pub(super) fn outlined(frame: *const u8) -> usize {
    // SAFETY: `framed` made it.
    unsafe { frames::outlined(frame) }
}
