//! The program break (`brk`, `sbrk`), moved to memory that workers share: the kernel's would be private to each.
//!
//! Called by programs with an allocator of their own; libc's is not used.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::heap::os;
use crate::state;

/// Where the program break is; it begins at the start of its stretch.
static BREAK_AT: AtomicUsize = AtomicUsize::new(os::BREAK.start);
/// Where it may be.
static BREAK: [AtomicUsize; 2] = [AtomicUsize::new(os::BREAK.start), AtomicUsize::new(os::BREAK.end)];

/// It begins at the start of this stretch of the segment. Before the program runs.
pub(crate) fn use_segment(stretch: std::ops::Range<usize>) {
    BREAK_AT.store(stretch.start, Ordering::Relaxed);
    BREAK[0].store(stretch.start, Ordering::Relaxed);
    BREAK[1].store(stretch.end, Ordering::Relaxed);
}

fn no_memory() {
    // SAFETY: errno is this thread's.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
}

fn move_break(to: usize) -> bool {
    let [start, end] = BREAK.each_ref().map(|bound| bound.load(Ordering::Relaxed));
    if !(start..=end).contains(&to) {
        return false;
    }
    let before = BREAK_AT.swap(to, Ordering::AcqRel);
    if to < before {
        // What is given back reads as zeros when it is taken again.
        // SAFETY: the program's own memory above its new break.
        unsafe { std::ptr::write_bytes(to as *mut u8, 0, before - to) };
    }
    true
}

/// C's `sbrk`.
///
/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sbrk(increment: isize) -> *mut c_void {
    if !state::heap_ready() {
        let call = real!("sbrk", unsafe extern "C" fn(isize) -> *mut c_void);
        // SAFETY: by the caller.
        return unsafe { call(increment) };
    }
    let before = BREAK_AT.load(Ordering::Acquire);
    if increment == 0 || move_break(before.wrapping_add_signed(increment)) {
        before as *mut c_void
    } else {
        no_memory();
        usize::MAX as *mut c_void
    }
}

/// C's `brk`.
///
/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn brk(to: *mut c_void) -> c_int {
    if !state::heap_ready() {
        let call = real!("brk", unsafe extern "C" fn(*mut c_void) -> c_int);
        // SAFETY: by the caller.
        return unsafe { call(to) };
    }
    if move_break(to as usize) {
        0
    } else {
        no_memory();
        -1
    }
}
