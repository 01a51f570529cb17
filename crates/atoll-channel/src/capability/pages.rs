//! A mapping of a file that several processes share; unmapped when dropped.
//!
//! `shared.rs` makes and maps the owner's, `import.rs` maps what was handed over.

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, MremapFlags, ProtFlags};

/// The unit in which memory is mapped, in bytes.
pub(super) const PAGE: usize = 4096;

/// An address range of this process that shows a file.
pub(super) struct Pages {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address range that lives as long as the value; its bytes are copied through raw pointers only.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps the first `bytes` of `file`, which must be that long and a multiple of pages.
    pub(super) fn map(file: impl AsFd, bytes: usize, write: bool) -> io::Result<Pages> {
        let access = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0)? };
        Pages::of(base.cast(), bytes)
    }

    fn of(base: *mut u8, bytes: usize) -> io::Result<Pages> {
        let base = NonNull::new(base).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Pages { base, bytes })
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Lets this range show what `new` shows, which is as long, from one moment to the next; returns a range that
    /// shows what this one did.
    pub(super) fn replace(&self, new: Pages) -> io::Result<Pages> {
        debug_assert_eq!(self.bytes, new.bytes);
        // SAFETY: a second mapping of the same file at an address of the kernel's choice: that is what an old length
        // of 0 means for a shared mapping.
        let old =
            unsafe { rustix::mm::mremap(self.base.as_ptr().cast(), 0, self.bytes, MremapFlags::MAYMOVE)? };
        let old = Pages::of(old.cast(), self.bytes)?;
        // SAFETY: `new` is given up, so it may move; the target is this value's own range, which stays mapped at
        // every moment, so pointers into it stay valid.
        unsafe {
            rustix::mm::mremap_fixed(
                new.base.as_ptr().cast(),
                new.bytes,
                new.bytes,
                MremapFlags::MAYMOVE,
                self.base.as_ptr().cast(),
            )?;
        }
        std::mem::forget(new);
        Ok(old)
    }

    /// Overwrites everything with zeros. The range must be a writable one.
    pub(super) fn wipe(&self) {
        // SAFETY: the range is this value's, and mapped.
        unsafe { self.base.as_ptr().write_bytes(0, self.bytes) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which no pointer is used after the last holder is gone.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
