//! Blocks of this library's own Rust code in a program that brings a `malloc` of its own, until there is pinned memory.
//!
//! Used by `small`. libc's heap would serve as well, but moves the program break, which such a program may take for its own: the image of a
//! Lisp system (Maxima's) knows where its heap ends, and failed where the break lay farther on. Blocks come from one mapping, in sizes of
//! powers of two, each size with a list of its free blocks.

use std::alloc::Layout;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use atoll_memory::spin::{Backoff, Held, Spin};
use atoll_memory::sys;

/// Bytes of the mapping, of which only what is used takes memory.
const BYTES: usize = 16 << 20;
/// The smallest blocks have `1 << LEAST` bytes.
const LEAST: u32 = 4;
/// How often a thread tries to get the lock. A forked process may find it held by a thread that it does not have.
const TRIES: u32 = 10_000;

/// The `malloc` that the program's code finds is this library's.
const OURS: u32 = 1;
/// The `malloc` that it finds is the program's own.
const THE_PROGRAMS: u32 = 2;

struct Blocks {
    /// Bytes of the mapping that were handed out at some time.
    used: usize,
    /// The first free block of each size, which holds the address of the next one; 0 if there is none.
    free: [usize; usize::BITS as usize],
}

static BLOCKS: Spin<Blocks> = Spin::new(Blocks { used: 0, free: [0; usize::BITS as usize] });
/// Where the mapping begins; 0 before the first block.
static START: AtomicUsize = AtomicUsize::new(0);

/// Whether the program's libraries find a `malloc` of the program's, and not the one here.
fn is_needed() -> bool {
    static WHOSE: AtomicU32 = AtomicU32::new(0);
    if WHOSE.load(Ordering::Relaxed) == 0 {
        // SAFETY: a C string.
        let found = object_of(unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) });
        let whose = if found == object_of(is_needed as *const c_void) { OURS } else { THE_PROGRAMS };
        WHOSE.store(whose, Ordering::Relaxed);
    }
    WHOSE.load(Ordering::Relaxed) == THE_PROGRAMS
}

/// Where the program or library begins that has this code.
fn object_of(code: *const c_void) -> usize {
    // SAFETY: plain data, for which zeros are valid.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: valid for writes; the function allocates nothing.
    unsafe { libc::dladdr(code, &raw mut info) };
    info.dli_fbase as usize
}

/// The power of two that a block has bytes of.
fn order(layout: Layout) -> u32 {
    layout.size().max(layout.align()).next_power_of_two().trailing_zeros().max(LEAST)
}

fn lock() -> Option<Held<'static, Blocks>> {
    let mut wait = Backoff::new();
    for _ in 0..TRIES {
        if let Some(held) = BLOCKS.try_lock() {
            return Some(held);
        }
        wait.pause();
    }
    None
}

/// Allocates a block; `None` where libc's heap does, or there is no more room.
pub(super) fn alloc(layout: Layout) -> Option<*mut u8> {
    if !is_needed() || layout.size() > BYTES || layout.align() > 4096 {
        return None;
    }
    let order = order(layout);
    let mut blocks = lock()?;
    let first = blocks.free[order as usize];
    if first != 0 {
        // SAFETY: a free block of the mapping, which holds the next one's address.
        blocks.free[order as usize] = unsafe { (first as *const usize).read() };
        return Some(first as *mut u8);
    }
    let start = match START.load(Ordering::Relaxed) {
        0 => {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: a new mapping.
            let start =
                unsafe { sys::mmap(0, BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }.ok()?;
            START.store(start, Ordering::Relaxed);
            start
        }
        start => start,
    };
    let bytes = 1_usize << order;
    let at = blocks.used.next_multiple_of(bytes.min(4096));
    if at + bytes > BYTES {
        return None;
    }
    blocks.used = at + bytes;
    Some((start + at) as *mut u8)
}

/// Whether the block came from [`alloc`].
pub(super) fn contains(block: usize) -> bool {
    let start = START.load(Ordering::Relaxed);
    start != 0 && (start..start + BYTES).contains(&block)
}

/// Frees a block.
///
/// # Safety
/// [`alloc`] made the block, for this layout, and nobody uses it any longer.
pub(super) unsafe fn free(block: *mut u8, layout: Layout) {
    let order = order(layout) as usize;
    // Without the lock the block stays as it is.
    let Some(mut blocks) = lock() else { return };
    // SAFETY: the caller's promise; a block has room for an address.
    unsafe { block.cast::<usize>().write(blocks.free[order]) };
    blocks.free[order] = block as usize;
}
