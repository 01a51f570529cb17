//! Memory of an owner that others can map: a file in memory of fixed size, and the owner's mapping of it. It can move to a file on a disk,
//! where its owner reaches it as before, and others do not map it any more.
//!
//! `memory.rs` puts it into the table, `owner.rs` hands out its file. A process with the file has all of it, so it is one
//! object of capabilities and never a part of one. Whether others can write to it is decided once, and sealed: a descriptor
//! that is only opened for reading can be opened again for writing, through `/proc`, by any process of the same user.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::SealFlags;

use crate::capability::pages::Pages;
use crate::capability::rights::Rights;
use atoll_transport::memory_file::{self, FIXED, PAGE};

/// The access that processes other than the owner have to memory that they map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// Others can read. The kernel refuses writing to everybody else, whatever they do with the file.
    Read,
    /// Others can read and write.
    ReadWrite,
}

impl Sharing {
    /// The rights of a process with the file.
    pub fn rights(self) -> Rights {
        match self {
            Sharing::Read => Rights::READ,
            Sharing::ReadWrite => Rights::READ | Rights::WRITE,
        }
    }
}

/// Memory that can be mapped by others. Its address here never changes.
pub struct Shared {
    pages: Pages,
    length: usize,
    sharing: Sharing,
    /// What others map; `None` once it has moved to a disk.
    file: Mutex<Option<Arc<OwnedFd>>>,
}

impl Shared {
    /// Memory of `length` zeros (rounded up to pages for those who map it). It is allocated at once, so running out of memory
    /// is an error here and not a signal later.
    pub fn new(length: usize, sharing: Sharing) -> io::Result<Shared> {
        let (file, pages) = create(length, sharing)?;
        Ok(Shared { pages, length, sharing, file: Mutex::new(Some(Arc::new(file))) })
    }

    /// The start address in this process. Other processes may change the bytes at any time: make no reference to them.
    pub fn base(&self) -> NonNull<u8> {
        self.pages.base()
    }

    /// The length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The access that others have.
    pub fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// The present file in memory; `None` once the memory has moved to a disk.
    pub(super) fn file(&self) -> Option<Arc<OwnedFd>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shows the content of `file`, to which the bytes were copied, in the place of the file in memory. The address stays.
    pub(super) fn show(&self, file: impl AsFd) -> io::Result<()> {
        let mut present = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let new = Pages::map(file, self.length.next_multiple_of(PAGE), true)?;
        drop(self.pages.replace(new)?);
        *present = None;
        Ok(())
    }

    /// Moves the bytes into a new file and overwrites the old one with zeros. The address stays.
    pub(super) fn renew(&self) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (new_file, new) = create(self.length, self.sharing)?;
        // SAFETY: both are mapped and at least `length` long, and do not overlap.
        unsafe { self.base().copy_to_nonoverlapping(new.base(), self.length) };
        let old = self.pages.replace(new)?;
        *file = Some(Arc::new(new_file));
        old.wipe();
        Ok(())
    }
}

fn create(length: usize, sharing: Sharing) -> io::Result<(OwnedFd, Pages)> {
    let most = isize::MAX as usize;
    let bytes = length.checked_next_multiple_of(PAGE).filter(|bytes| (1..=most).contains(bytes));
    let bytes = bytes.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let file = memory_file::create("atoll-memory", bytes as u64)?;
    // Done before the seal, which leaves this mapping writable and lets no other writable one be made.
    let pages = Pages::map(&file, bytes, true)?;
    let write = match sharing {
        Sharing::Read => SealFlags::FUTURE_WRITE,
        Sharing::ReadWrite => SealFlags::empty(),
    };
    memory_file::seal(&file, FIXED | write)?;
    Ok((file, pages))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use rustix::fs::{FallocateFlags, Mode, OFlags};

    use super::*;

    #[test]
    fn memory_shared_for_reading_cannot_be_written_through_its_file() {
        let shared = Shared::new(5000, Sharing::Read).unwrap();
        let file = shared.file().unwrap();
        assert!(Pages::map(file.as_fd(), 8192, true).is_err());
        assert!(rustix::io::pwrite(file.as_fd(), b"x", 0).is_err());
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert!(rustix::fs::fallocate(file.as_fd(), punch, 0, 4096).is_err());
        // Opening the file again does not help either.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let again = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        assert!(Pages::map(&again, 8192, true).is_err());
        assert!(rustix::io::pwrite(&again, b"x", 0).is_err());
        // A mapping for reading stays one.
        let pages = Pages::map(&again, 8192, false).unwrap();
        let write = rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE;
        // SAFETY: our own mapping, to which no reference exists.
        let refused = unsafe { rustix::mm::mprotect(pages.base().as_ptr().cast(), 8192, write) };
        assert_eq!(refused, Err(rustix::io::Errno::ACCESS));
    }

    #[test]
    fn renewed_memory_keeps_address_and_bytes_and_its_old_file_is_empty() {
        for sharing in [Sharing::Read, Sharing::ReadWrite] {
            let shared = Shared::new(10_000, sharing).unwrap();
            let write = |at: usize, byte| {
                // SAFETY: inside.
                unsafe { shared.base().add(at).write(byte) };
            };
            (0..10_000).for_each(|at| write(at, at as u8));
            let old_file = shared.file().unwrap();
            let theirs = Pages::map(old_file.as_fd(), 12_288, sharing == Sharing::ReadWrite).unwrap();
            // SAFETY: inside, and nobody changes it while this looks.
            let seen =
                |base: NonNull<u8>| unsafe { std::slice::from_raw_parts(base.as_ptr(), 10_000) }.to_vec();
            let bytes = seen(shared.base());
            assert_eq!(seen(theirs.base()), bytes);

            let base = shared.base();
            shared.renew().unwrap();
            assert_eq!((shared.base(), seen(shared.base())), (base, bytes));
            write(0, 77);
            assert_eq!(seen(theirs.base()), vec![0; 10_000]);
            let new = Pages::map(shared.file().unwrap().as_fd(), 12_288, false).unwrap();
            assert_eq!(seen(new.base())[0], 77);
        }
    }

    #[test]
    fn impossible_lengths_are_refused() {
        for length in [0, usize::MAX, usize::MAX - 4096, isize::MAX as usize] {
            assert!(Shared::new(length, Sharing::Read).is_err(), "{length}");
        }
    }
}
