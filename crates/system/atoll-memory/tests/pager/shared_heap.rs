//! Rust's allocator of this test program: memory that forked workers share, as the pager and what it stands on lie there.
//!
//! In a program under `atoll run` the runtime's whole data is shared. Here each block is cut from one shared mapping and never given
//! back, as a test is a short-lived process.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of addresses; what is never used takes no memory.
const BYTES: usize = 4 << 30;

/// Cuts blocks from one shared mapping.
pub(crate) struct SharedHeap {
    /// Where the mapping is. Its first word says where the next block begins, for all processes.
    at: AtomicUsize,
}

impl SharedHeap {
    pub(crate) const fn new() -> SharedHeap {
        SharedHeap { at: AtomicUsize::new(0) }
    }

    /// Maps the heap, by the program's first allocation: it has one thread then. `None` where there is no memory.
    fn begin(&self) -> Option<usize> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, access, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the mapping's first word, which nobody else has yet.
        unsafe { at.cast::<usize>().write(at as usize + 64) };
        self.at.store(at as usize, Ordering::Relaxed);
        Some(at as usize)
    }
}

// SAFETY: each block is cut once, of its size and alignment, from memory that stays.
unsafe impl GlobalAlloc for SharedHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let heap = match self.at.load(Ordering::Relaxed) {
            0 => self.begin(),
            at => Some(at),
        };
        let Some(heap) = heap else { return std::ptr::null_mut() };
        // SAFETY: the mapping's first word, used as an atomic from now on.
        let next = unsafe { AtomicUsize::from_ptr(heap as *mut usize) };
        let align = layout.align().max(16);
        // Room for the alignment is cut, too, so that one addition is enough.
        let at = next.fetch_add(layout.size() + align, Ordering::Relaxed).next_multiple_of(align);
        if at + layout.size() > heap + BYTES { std::ptr::null_mut() } else { at as *mut u8 }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}
