//! The program break (`brk`, `sbrk`), moved to memory that workers share, because the kernel's would be private to each worker.
//!
//! Called by programs with an allocator of their own; libc's allocator does not use the break.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::heap::os;
use crate::state;

/// Bytes from the start of [`os::program_break`] to the program break.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Whether the break is the one here. It goes on in processes that the program forks, where the heap is not.
fn is_ours() -> bool {
    state::heap_ready() || USED.load(Ordering::Relaxed) != 0
}

fn no_memory() {
    // SAFETY: errno is this thread's.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
}

fn move_break(to: usize) -> bool {
    let range = os::program_break();
    if !(range.start..=range.end).contains(&to) {
        return false;
    }
    let before = range.start + USED.swap(to - range.start, Ordering::AcqRel);
    if to < before {
        // Memory that is given back reads as zeros when it is taken again.
        // SAFETY: the program's own memory above its new break.
        unsafe { std::ptr::write_bytes(to as *mut u8, 0, before - to) };
    }
    true
}

/// C's `sbrk`.
///
/// # Safety
/// The same as for C's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sbrk(increment: isize) -> *mut c_void {
    if !is_ours() {
        let call = real!("sbrk", unsafe extern "C" fn(isize) -> *mut c_void);
        // SAFETY: the caller's promise.
        return unsafe { call(increment) };
    }
    let before = os::program_break().start + USED.load(Ordering::Acquire);
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
/// The same as for C's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn brk(to: *mut c_void) -> c_int {
    if !is_ours() {
        let call = real!("brk", unsafe extern "C" fn(*mut c_void) -> c_int);
        // SAFETY: the caller's promise.
        return unsafe { call(to) };
    }
    if move_break(to as usize) {
        0
    } else {
        no_memory();
        -1
    }
}
