//! Takes pages out of the page table of the calling process, whose content stays in the arena's files: one stretch, or many by one call.
//!
//! Used by `leaving`, `kernel_maps`, `in_place` and all who have a mapping that nobody may find. A call for a stretch of its own takes
//! 1.3 µs on a virtual machine, and 0.75 µs as one of many.
//!
//! Rules: no allocation, no locks, no arena access.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use super::FaultError;
use super::evict::VICTIMS;
use crate::sys::{self, Errno};

/// Takes mappings away, locked ones too, as the program may have locked them.
pub(super) const DROP: c_int = libc::MADV_DONTNEED_LOCKED;
/// Takes mappings away and puts a guard in their place, at which an access raises SIGSEGV: `MADV_GUARD_INSTALL`.
pub(super) const GUARD: c_int = 102;
/// Takes guards away: `MADV_GUARD_REMOVE`.
pub(super) const UNGUARD: usize = 103;

/// Stretches of one call at most: as many as the pages of a batch of victims are.
const MOST: usize = VICTIMS;
/// The calling process in place of a descriptor of one: `PIDFD_SELF_THREAD_GROUP`, since Linux 6.14.
const SELF: c_int = -10001;

/// Drops this process's mappings of pages that lie in the arena's files.
pub(super) fn unmap_here(at: usize, len: usize) -> Result<(), FaultError> {
    advise(at, len, DROP as usize).map_err(FaultError::Kernel)
}

/// Advises the kernel on mappings of the arena's own memory.
pub(super) fn advise(at: usize, len: usize, advice: usize) -> Result<(), Errno> {
    // SAFETY: the pages are a shared file's; their content stays in the file.
    unsafe { sys::syscall(libc::SYS_madvise, [at, len, advice, 0, 0, 0]) }.map(drop)
}

/// The kernel's `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Stretch {
    at: usize,
    len: usize,
}

/// Stretches of addresses that are unmapped together.
pub(super) struct Stretches {
    each: [Stretch; MOST],
    count: usize,
}

impl Stretches {
    pub(super) const fn new() -> Stretches {
        Stretches { each: [Stretch { at: 0, len: 0 }; MOST], count: 0 }
    }

    /// Adds one, unless there are as many as one call takes.
    pub(super) fn push(&mut self, at: usize, len: usize) {
        if let Some(place) = self.each.get_mut(self.count) {
            *place = Stretch { at, len };
            self.count += 1;
        }
    }

    /// Makes the last one end at `end`.
    pub(super) fn lengthen(&mut self, end: usize) {
        if let Some(last) = self.count.checked_sub(1).and_then(|last| self.each.get_mut(last)) {
            last.len = end - last.at;
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.count == MOST
    }

    /// Unmaps all of them, by [`DROP`] or [`GUARD`]. Returns of how many, from the first on, that was done.
    pub(super) fn unmap(&self, advice: c_int) -> usize {
        let mut done = self.unmap_together(advice);
        while done < self.count && advise(self.each[done].at, self.each[done].len, advice as usize).is_ok() {
            done += 1;
        }
        done
    }

    /// The same by one call, as far as the kernel has that.
    fn unmap_together(&self, advice: c_int) -> usize {
        static IS_REFUSED: AtomicBool = AtomicBool::new(false);
        if self.count < 2 || IS_REFUSED.load(Ordering::Relaxed) {
            return 0;
        }
        let words = [SELF as usize, self.each.as_ptr().addr(), self.count, advice as usize, 0, 0];
        // SAFETY: the array holds so many stretches, of each of which the caller says what `advise` asks for.
        match unsafe { sys::syscall(libc::SYS_process_madvise, words) } {
            Ok(mut bytes) => self.each[..self.count]
                .iter()
                .take_while(|stretch| {
                    let is_done = stretch.len <= bytes;
                    bytes = bytes.saturating_sub(stretch.len);
                    is_done
                })
                .count(),
            Err(e) => {
                if [libc::EBADF, libc::EINVAL, libc::ENOSYS, libc::EPERM].contains(&e.0) {
                    IS_REFUSED.store(true, Ordering::Relaxed);
                }
                0
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn stretches_are_unmapped_from_the_first_on() {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping of the test's own.
        let at = unsafe { sys::mmap(0, 16 << 12, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }.unwrap();
        let is_mapped = |page: usize| {
            let file = sys::open_page_map().unwrap();
            let mut entry = 0_u64;
            let place = ((at >> 12) + page) as u64 * 8;
            // SAFETY: eight bytes.
            unsafe { sys::pread_exact(file, (&raw mut entry).cast(), 8, place) }.unwrap();
            sys::close(file);
            entry >> 63 != 0
        };
        for page in 0..16 {
            // SAFETY: the test's mapping.
            unsafe { ((at + (page << 12)) as *mut u8).write_volatile(page as u8 + 1) };
        }
        let mut stretches = Stretches::new();
        stretches.push(at, 2 << 12);
        stretches.push(at + (4 << 12), 1 << 12);
        // Nothing lies at the next one.
        stretches.push(1 << 46, 1 << 12);
        stretches.push(at + (8 << 12), 1 << 12);
        assert_eq!(stretches.unmap(DROP), 2);
        assert_eq!([0, 1, 2, 4, 8].map(is_mapped), [false, false, true, false, true]);
        // SAFETY: the test's mapping.
        let content = [0, 1, 4].map(|page| unsafe { ((at + (page << 12)) as *const u8).read_volatile() });
        assert_eq!(content, [1, 2, 5]);
        for page in 0..MOST + 6 {
            stretches.push(at + ((page % 16) << 12), 1 << 12);
        }
        assert!(stretches.is_full());
    }
}
