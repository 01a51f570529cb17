//! Memory that other nodes may reach while this one uses it: it is never borrowed, only copied in and out.
//!
//! Transports register it; `buffer.rs` names pieces of it. A peer on the same machine maps the file that it lies in.

use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::mm::{MapFlags, ProtFlags};

use crate::memory_file::PAGE;

/// Memory for puts and gets. A write of another node during a read here may be seen in part, each byte old or new; messages and
/// flushes give order.
#[derive(Debug)]
pub struct Memory {
    base: *mut u8,
    bytes: usize,
    /// The sealed file that it is mapped from, and the offset in the file.
    file: Option<(OwnedFd, u64)>,
    /// Whether this value made the mapping, and so unmaps it.
    mapped: bool,
    /// The owner of a range that is not this value's own.
    _keeper: Option<Box<dyn Any + Send + Sync>>,
}

// SAFETY: an address range that lives as long as the value and is reached by copying only.
unsafe impl Send for Memory {}
// SAFETY: as above. Of copies that meet, some bytes of each are seen, and every value of a byte is valid.
unsafe impl Sync for Memory {}

/// A range that is not completely in the memory.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("{length} bytes from byte {offset} on are not all in a memory of {bytes} bytes")]
pub struct OutOfRange {
    /// The start of the range.
    pub offset: usize,
    /// The length of the range.
    pub length: usize,
    /// The length of the memory.
    pub bytes: usize,
}

/// The reason why there is no such memory.
#[derive(thiserror::Error, Debug)]
#[error("no {bytes} bytes of memory to register: {why}")]
pub struct OutOfMemory {
    bytes: usize,
    #[source]
    why: io::Error,
}

impl Memory {
    /// New memory of zeros, at least one byte.
    pub fn new(bytes: usize) -> Result<Memory, OutOfMemory> {
        let failed = |why: io::Error| OutOfMemory { bytes, why };
        if bytes == 0 || bytes > isize::MAX as usize - PAGE {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        }
        let file = crate::channel::create("atoll-memory", bytes.next_multiple_of(PAGE)).map_err(failed)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file.as_fd(), 0)
        };
        let base = base.map_err(|e| failed(e.into()))?.cast();
        Ok(Memory { base, bytes, file: Some((file, 0)), mapped: true, _keeper: None })
    }

    /// Existing memory. If it is a shared mapping of a file whose size is sealed against shrinking, `file` and the offset of
    /// the range in it let nodes on this machine map it, too; others copy through the kernel.
    ///
    /// # Safety
    ///
    /// The range must be readable and writable until the value is dropped; a transport that it is registered with drops it when
    /// it is dropped itself. The program must expect it to change at any time, so it must not hold Rust references into it
    /// while others have its key.
    pub unsafe fn existing(base: *mut u8, bytes: usize, file: Option<(OwnedFd, u64)>) -> Memory {
        Memory { base, bytes, file, mapped: false, _keeper: None }
    }

    /// A range that is valid while `keeper` lives, for one operation.
    ///
    /// # Safety
    ///
    /// As for `existing`, until the keeper is dropped; it need not be writable if the operation only reads.
    pub unsafe fn kept(base: *mut u8, bytes: usize, keeper: Box<dyn Any + Send + Sync>) -> Memory {
        Memory { base, bytes, file: None, mapped: false, _keeper: Some(keeper) }
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The first address, valid while the memory lives.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Copies the bytes from `offset` on to `to`.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), OutOfRange> {
        self.check(offset, to.len())?;
        // SAFETY: in range; nobody has a reference to it, and `to` is the caller's own. Bytes are copied, whoever writes them
        // meanwhile.
        unsafe { std::ptr::copy(self.base.add(offset), to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    /// Copies `from` to `offset`.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), OutOfRange> {
        self.check(offset, from.len())?;
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy(from.as_ptr(), self.base.add(offset), from.len()) };
        Ok(())
    }

    /// Whether `length` bytes at `offset` lie in the memory.
    pub fn check(&self, offset: usize, length: usize) -> Result<(), OutOfRange> {
        match offset.checked_add(length) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(OutOfRange { offset, length, bytes: self.bytes }),
        }
    }

    /// The file that it lies in, and the offset in the file.
    pub fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        self.file.as_ref().map(|(file, offset)| (file.as_fd(), *offset))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.mapped {
            // SAFETY: our own mapping, to which no reference is left.
            let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_is_read_or_written() {
        let memory = Memory::new(100).unwrap();
        memory.write(98, b"ab").unwrap();
        let mut two = [0; 2];
        memory.read(98, &mut two).unwrap();
        assert_eq!(&two, b"ab");
        assert!(memory.write(99, b"ab").is_err());
        assert!(memory.read(usize::MAX, &mut two).is_err());
        memory.write(100, b"").unwrap();
        assert!(memory.write(101, b"").is_err());
        assert!(Memory::new(0).is_err() && Memory::new(usize::MAX).is_err());
    }
}
