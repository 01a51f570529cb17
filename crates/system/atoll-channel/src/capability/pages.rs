//! A mapping of a file that several processes share; the file can be exchanged while the address stays.
//!
//! `shared.rs` makes and maps the owner's files, `import.rs` maps those that were handed over.

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::mm::MremapFlags;

use atoll_transport::memory_file::Mapping;

/// An address range of this process that shows a file.
pub(super) struct Pages(Mapping);

impl Pages {
    /// Maps the first `bytes` of `file`, which must be that long and a multiple of pages.
    pub(super) fn map(file: impl AsFd, bytes: usize, write: bool) -> io::Result<Pages> {
        Mapping::of(file, bytes, write).map(Pages)
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    /// Makes this range show the content of `new`, which has the same length, from one moment to the next; returns a range with
    /// the earlier content.
    pub(super) fn replace(&self, new: Pages) -> io::Result<Pages> {
        let (here, there) = (self.base().as_ptr().cast(), new.base().as_ptr().cast());
        let bytes = self.0.bytes();
        debug_assert_eq!(bytes, new.0.bytes());
        // SAFETY: a second mapping of the same file at an address of the kernel's choice: that is what an old length
        // of 0 means for a shared mapping.
        let old = unsafe { rustix::mm::mremap(here, 0, bytes, MremapFlags::MAYMOVE)? };
        // SAFETY: the mapping was just made, and nobody else has it.
        let old = Pages(unsafe { Mapping::adopt(old.cast(), bytes) }?);
        // SAFETY: `new` is given up, so it may move; the target is this value's own range, which stays mapped at
        // every moment, so pointers into it stay valid.
        unsafe { rustix::mm::mremap_fixed(there, bytes, bytes, MremapFlags::MAYMOVE, here)? };
        std::mem::forget(new);
        Ok(old)
    }

    /// Overwrites all bytes with zeros. The range must be writable.
    pub(super) fn wipe(&self) {
        // SAFETY: the range is this value's, and mapped.
        unsafe { self.base().as_ptr().write_bytes(0, self.0.bytes()) };
    }
}
