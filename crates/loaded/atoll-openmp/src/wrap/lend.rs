//! Strings and structures lent to the kernel for a call: as a copy in memory that is never paged.
//!
//! Used by the wrappers. Memory kept near in its place (`paged`) is not enough: another node, another thread's fault or the kernel, where it
//! looks for memory to page out, may unmap it for a moment. A call that failed with EFAULT in the middle would lose what it had done.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::paged::{self, Hold};

/// The most bytes that are copied: longer buffers are those of programs that do not know how much will come.
const MOST: usize = 1 << 20;

/// An argument of one of libc's functions.
pub(super) trait Argument {
    /// The address that is passed on.
    fn at(&self) -> usize;

    /// The address for the caller where libc returned `result`: in its own memory, not in the copy.
    fn returned(&self, result: usize) -> usize {
        result
    }
}

impl Argument for usize {
    fn at(&self) -> usize {
        *self
    }
}

/// A value, with a guard that is kept until the call is over.
pub(super) struct With<G>(pub(super) usize, pub(super) G);

impl<G> Argument for With<G> {
    fn at(&self) -> usize {
        self.0
    }
}

/// Memory that is lent while this lives.
pub(super) struct Lent {
    at: usize,
    how: How,
}

enum How {
    /// The memory itself, which is not paged, or too long for a copy and kept near.
    Itself {
        _held: Hold,
    },
    Copied(Copy),
}

/// The bytes of a place for small copies.
const PLACE: usize = 2048;
const PLACES: usize = 64;

/// Places for small copies, in this library's data, which is pinned: a signal handler of the program that interrupted `malloc`
/// may come here, too, as the functions it calls are allowed there.
struct Places(UnsafeCell<[[u128; PLACE / size_of::<u128>()]; PLACES]>);

// SAFETY: each place is used only by the owner of its bit in `TAKEN`.
unsafe impl Sync for Places {}

static SMALL: Places = Places(UnsafeCell::new([[0; PLACE / size_of::<u128>()]; PLACES]));
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Pinned memory, aligned for every structure.
enum Memory {
    Small(usize),
    Large(Vec<u128>),
}

impl Memory {
    fn new(len: usize) -> Memory {
        let take = |taken: u64| {
            let free = (!taken).trailing_zeros();
            (free < PLACES as u32).then(|| taken | 1 << free)
        };
        // Acquire: pairs with the Release in `drop`.
        if len <= PLACE
            && let Ok(before) = TAKEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, take)
        {
            return Memory::Small((!before).trailing_zeros() as usize);
        }
        Memory::Large(vec![0; len.div_ceil(size_of::<u128>())])
    }

    fn at(&self) -> *mut u8 {
        match self {
            // SAFETY: within the array.
            Memory::Small(place) => unsafe { SMALL.0.get().cast::<u8>().add(place * PLACE) },
            Memory::Large(words) => words.as_ptr().cast_mut().cast(),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Memory::Small(place) = self {
            // Release: pairs with the Acquire in `new`.
            TAKEN.fetch_and(!(1 << *place), Ordering::Release);
        }
    }
}

/// A copy of the caller's memory, which gets back the bytes that the call changed.
struct Copy {
    /// The copy; if the call may write, its initial content follows, so that it is twice as long.
    memory: Memory,
    write: bool,
    original: usize,
    len: usize,
}

impl Copy {
    /// # Safety
    /// `len` bytes at `original` are valid for reads.
    unsafe fn new(original: usize, len: usize, write: bool) -> Copy {
        let memory = Memory::new(if write { 2 * len } else { len });
        // SAFETY: the caller's promise; the memory is as long.
        unsafe {
            std::ptr::copy_nonoverlapping(original as *const u8, memory.at(), len);
            if write {
                std::ptr::copy_nonoverlapping(memory.at(), memory.at().add(len), len);
            }
        }
        Copy { memory, write, original, len }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if !self.write {
            return;
        }
        // SAFETY: the memory is twice as long as the copy, and nobody writes it any more.
        let all = unsafe { std::slice::from_raw_parts(self.memory.at(), 2 * self.len) };
        let (now, before) = all.split_at(self.len);
        // Unchanged bytes are left alone: they may be others', where a structure is shorter than the most it can be.
        for (offset, (now, before)) in now.iter().zip(before).enumerate() {
            if now != before {
                // SAFETY: within the caller's memory, which the kernel would have written.
                unsafe { ((self.original + offset) as *mut u8).write(*now) };
            }
        }
    }
}

impl Lent {
    fn itself(start: usize) -> Lent {
        Lent { at: start, how: How::Itself { _held: Hold::NOTHING } }
    }

    fn new(start: usize, len: usize, write: bool) -> Lent {
        if len <= MOST
            && let Some(pager) = paged::active()
            && let Some((from, to)) = pager.first_paged(start, len)
            && from == start
        {
            // SAFETY: paged memory is valid for reads, whatever it holds.
            let copy = unsafe { Copy::new(start, to - from, write) };
            return Lent { at: copy.memory.at() as usize, how: How::Copied(copy) };
        }
        Lent { at: start, how: How::Itself { _held: paged::hold(start, len, write) } }
    }
}

impl Argument for Lent {
    fn at(&self) -> usize {
        self.at
    }

    fn returned(&self, result: usize) -> usize {
        match &self.how {
            How::Copied(copy) if result == self.at => copy.original,
            _ => result,
        }
    }
}

/// Lends `start..start + len`, which the kernel also writes if `write`. Memory beyond what a call may pin is not kept near.
#[inline]
pub(super) fn memory(start: usize, len: usize, write: bool) -> Lent {
    match paged::active() {
        // Of what the program forbids itself there is no copy: the kernel says so.
        Some(pager) if start != 0 && pager.allowed_bytes(start, len, write) == len => {
            Lent::new(start, len, write)
        }
        _ => Lent::itself(start),
    }
}

/// Lends a string.
///
/// # Safety
/// A string or null, or an address that is not paged memory.
#[inline]
pub(super) unsafe fn string(start: usize, write: bool) -> Lent {
    if !paged::active().is_some_and(|pager| paged::is_paged(pager, start)) {
        return Lent::itself(start);
    }
    // SAFETY: paged memory is valid for reads; the caller says that a string is there.
    let len = unsafe { libc::strnlen(start as *const libc::c_char, libc::PATH_MAX as usize) } + 1;
    Lent::new(start, len, write)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_comes_back() {
        for len in [5, 900, PLACE / 2, 4 * PLACE] {
            let mut caller = vec![7u8; len];
            // SAFETY: alive, and not used through `caller` while the copy lives.
            let copy = unsafe { Copy::new(caller.as_mut_ptr() as usize, len, true) };
            // The last byte belongs to another object behind a short structure.
            // SAFETY: as above; the copy's memory is as long.
            unsafe {
                caller.as_mut_ptr().add(len - 1).write(1);
                copy.memory.at().write(9);
            }
            drop(copy);
            assert_eq!((caller[0], caller[1], caller[len - 1]), (9, 7, 1));
        }
    }

    #[test]
    fn places_are_given_back_and_never_shared() {
        let all: Vec<Memory> = (0..PLACES + 3).map(|_| Memory::new(100)).collect();
        let mut places: Vec<usize> = all.iter().map(|memory| memory.at() as usize).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 100));
        drop(all);
        assert!(matches!(Memory::new(PLACE), Memory::Small(_)));
    }
}
