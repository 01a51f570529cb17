//! Blocks for the dynamic linker in the midst of a fault: a thread's first use of its thread-local variables after libraries were loaded may
//! make the thread's vector of them longer, and the fault handler has such variables.
//!
//! `start::signal` says when a handler begins and ends, `exports` serves the linker from here meanwhile: the code that faulted may be
//! mimalloc's, which must not be entered again.
//!
//! Rules: those of fault handlers, and no thread-local variables.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::arch;
use crate::start::objects;

/// Bytes of a block, enough for the vector of a thread with some 200 libraries that have thread-local variables.
const BYTES: usize = 4096;
/// Blocks: a vector has one for good once it grew in a handler. More of them come from mimalloc, as before.
const BLOCKS: usize = 512;

#[repr(align(64))]
struct Area(UnsafeCell<[[u8; BYTES]; BLOCKS]>);

// SAFETY: each block is touched only by who has it.
unsafe impl Sync for Area {}

static AREA: Area = Area(UnsafeCell::new([[0; BYTES]; BLOCKS]));
/// Whether each block is in use: 0 or 1. Who takes one (Acquire) sees what its last user left (Release).
static USED: [AtomicUsize; BLOCKS] = [const { AtomicUsize::new(0) }; BLOCKS];
/// The control blocks of threads that are in a handler, each near the place that its address gives; 0: none.
static WITHIN: [AtomicUsize; 1024] = [const { AtomicUsize::new(0) }; 1024];
/// Places in which a thread's mark may lie.
const NEAR: usize = 8;

fn places(thread: usize) -> impl Iterator<Item = &'static AtomicUsize> {
    let first = thread.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
    (first..first + NEAR).map(|place| &WITHIN[place % WITHIN.len()])
}

/// A thread's stay in a handler. It ends when this is dropped.
pub(crate) struct Within(Option<&'static AtomicUsize>);

/// The calling thread enters a handler.
#[inline]
pub(crate) fn enter() -> Within {
    let thread = arch::thread_pointer();
    // Only this thread reads its mark, so no other memory is ordered by it.
    let is_taken = |place: &&AtomicUsize| {
        place.compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    };
    Within(places(thread).find(is_taken))
}

impl Drop for Within {
    #[inline]
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.store(0, Ordering::Relaxed);
        }
    }
}

/// Whether the linker, whose code is at `caller`, asks in the midst of a fault of the calling thread.
#[inline]
pub(super) fn asks(caller: usize) -> bool {
    objects::is_linker_code(caller) && is_within()
}

#[cold]
fn is_within() -> bool {
    let thread = arch::thread_pointer();
    places(thread).any(|place| place.load(Ordering::Relaxed) == thread)
}

/// A block of zeros for the linker; none if it is longer than these, or all are in use.
pub(super) fn take(size: usize) -> Option<*mut c_void> {
    if size > BYTES {
        return None;
    }
    let is_free = |used: &AtomicUsize| {
        used.load(Ordering::Relaxed) == 0
            && used.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    let index = USED.iter().position(is_free)?;
    let block = AREA.0.get().cast::<u8>().wrapping_add(index * BYTES);
    // SAFETY: the block is this call's alone.
    unsafe { block.write_bytes(0, BYTES) };
    Some(block.cast())
}

/// Whether the block is one of these.
#[inline]
pub(super) fn contains(block: *const c_void) -> bool {
    (block as usize).wrapping_sub(AREA.0.get() as usize) < BYTES * BLOCKS
}

/// Bytes of each block.
pub(super) fn size() -> usize {
    BYTES
}

/// Gives a block back.
pub(super) fn give(block: *const c_void) {
    let index = (block as usize - AREA.0.get() as usize) / BYTES;
    USED[index].store(0, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_the_threads_own_and_blocks_come_back() {
        assert!(!is_within());
        let within = enter();
        assert!(is_within());
        std::thread::spawn(|| assert!(!is_within())).join().unwrap();
        drop(within);
        assert!(!is_within());
        let (one, other) = (take(100).unwrap(), take(BYTES).unwrap());
        assert!(one != other && contains(one) && contains(other) && take(BYTES + 1).is_none());
        give(one);
        assert_eq!(take(1), Some(one));
        assert!(!contains(std::ptr::from_ref(&one).cast()));
    }
}
