//! Scratch memory: what one piece of work allocates is given back to the kernel as a whole when the work is done.
//!
//! The examination of a region's code allocates megabytes for some milliseconds (`omp/spread/safety.rs`). Among small blocks, which are pinned, their
//! memory would stay near for ever: on several nodes mimalloc gives nothing back. `small` sends this library's own requests here while a thread is in
//! [`within`]; the program's never come here.

use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_memory::futex::Lock;
use atoll_memory::signals::SignalsBlocked;
use atoll_memory::spin::Spin;
use atoll_memory::sys;
use rlsf::Tlsf;

/// Bytes of addresses for scratch memory; what does not fit comes from elsewhere.
const BYTES: usize = 256 << 20;
/// In the place of an address: there is no scratch memory. No block is within [`BYTES`] of it.
const NONE: usize = usize::MAX - BYTES;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Held by the thread that is in [`within`].
static USER: Lock<()> = Lock::new(());
static BLOCKS: Spin<Blocks> = Spin::new(Blocks(Tlsf::new()));
/// Where scratch memory begins. Written by the holder of [`USER`]; a block of anybody else's is outside before, while and after it is there.
static AT: AtomicUsize = AtomicUsize::new(NONE);

struct Blocks(Tlsf<'static, u32, u32, 32, 32>);

// SAFETY: the pointers are into scratch memory, which only the holder of `USER` uses.
unsafe impl Send for Blocks {}

/// Scratch memory that is mapped; gone when this is dropped.
struct Mapped(usize);

impl Mapped {
    fn new() -> Option<Mapped> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the kernel chooses the place, where nothing is.
        let at = unsafe { sys::mmap(0, BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }.ok()?;
        let all = NonNull::new(std::ptr::slice_from_raw_parts_mut(at as *mut u8, BYTES))?;
        let mut blocks = Blocks(Tlsf::new());
        // SAFETY: the stretch was mapped just now, and is unmapped when nothing uses these blocks.
        unsafe { blocks.0.insert_free_block_ptr(all) };
        *BLOCKS.lock() = blocks;
        AT.store(at, Ordering::Relaxed);
        Some(Mapped(at))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        AT.store(NONE, Ordering::Relaxed);
        // SAFETY: this is our mapping, and `within` has let go of all that lay in it.
        let _ = unsafe { sys::syscall(libc::SYS_munmap, [self.0, BYTES, 0, 0, 0, 0]) };
    }
}

/// Does `work`, whose allocations come from scratch memory, and returns a copy of its result, as the result goes with scratch memory.
/// Work must not leave anything that it allocated anywhere else.
pub(crate) fn within<T: Clone>(work: impl FnOnce() -> T) -> T {
    let _user = USER.lock();
    let mapped = Mapped::new();
    let result = {
        // A handler of the program's that interrupts may keep what this library allocates for it.
        let _blocked = SignalsBlocked::new();
        INSIDE.set(mapped.is_some());
        let result = work();
        INSIDE.set(false);
        result
    };
    let copy = result.clone();
    drop(result);
    drop(mapped);
    copy
}

/// Whether the calling thread's allocations come from here.
#[inline]
pub(super) fn is_inside() -> bool {
    INSIDE.get()
}

/// Whether the block is in scratch memory.
#[inline]
pub(super) fn contains(block: usize) -> bool {
    block.wrapping_sub(AT.load(Ordering::Relaxed)) < BYTES
}

/// A block for a thread inside [`within`]; null if there is no room.
pub(super) fn alloc(layout: Layout) -> *mut u8 {
    BLOCKS.lock().0.allocate(layout).map_or(std::ptr::null_mut(), NonNull::as_ptr)
}

/// Frees a block of scratch memory.
///
/// # Safety
/// The block is from here, was made with this layout, and nobody uses it.
pub(super) unsafe fn free(block: *mut u8, layout: Layout) {
    if let Some(block) = NonNull::new(block) {
        // SAFETY: the caller's promise.
        unsafe { BLOCKS.lock().0.deallocate(block, layout.align()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Held by each test: the kernel gives the next user the same addresses.
    static TURN: Lock<()> = Lock::new(());

    /// What the examination of a region's code allocated stayed among small blocks.
    #[test]
    fn memory_of_work_that_is_done_stayed_near() {
        let _turn = TURN.lock();
        let place = Cell::new(0);
        let work = || {
            let words: Vec<String> = (0..10_000).map(|n| format!("word {n}")).collect();
            place.set(words[5_000].as_ptr() as usize);
            assert!(contains(place.get()));
            words
        };
        let kept = within(work);
        assert!(!is_inside());
        assert_eq!(kept[9_999], "word 9999");
        assert!(!contains(kept[9_999].as_ptr() as usize));
        assert!(!contains(place.get()));
        let mut there = 0u8;
        let words = [place.get() & !4095, 4096, (&raw mut there) as usize, 0, 0, 0];
        // SAFETY: asks about a page that is not mapped; one byte is written at most.
        assert!(unsafe { sys::syscall(libc::SYS_mincore, words) }.is_err());
    }

    #[test]
    fn threads_use_it_in_turn() {
        let _turn = TURN.lock();
        let sum = |thread: usize| {
            let all = within(|| (0..1_000).map(|n| vec![n * thread; 64]).collect::<Vec<_>>());
            all.iter().flatten().sum::<usize>()
        };
        std::thread::scope(|scope| {
            for thread in 1..5 {
                scope.spawn(move || {
                    for _ in 0..20 {
                        assert_eq!(sum(thread), 999 * 500 * 64 * thread);
                    }
                });
            }
        });
    }

    /// More than there is room for comes from elsewhere.
    #[test]
    fn what_does_not_fit_is_allocated_all_the_same() {
        let _turn = TURN.lock();
        let place = within(|| {
            let block = Vec::<u8>::with_capacity(BYTES + 1);
            (block.as_ptr() as usize, contains(block.as_ptr() as usize))
        });
        assert!(place.0 != 0 && !place.1);
    }
}
