//! Files in memory that processes share: makes them, checks those that a peer handed over, and maps them.
//!
//! Rings and wait sets (`channel/file.rs`), a transport's memory (`transport/memory.rs`), and the capabilities and bulk memory
//! of `atoll-channel` are such files; each module defines their content. The size is sealed, so a peer cannot truncate the file
//! under a mapping, which would end this process by SIGBUS.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// The unit in which memory is mapped, in bytes.
pub const PAGE: usize = 4096;

/// The seals after which neither the size nor the seals can be changed.
pub const FIXED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The magic number of the file system of ordinary memfds, as `fstatfs` returns it.
const TMPFS: u64 = 0x0102_1994;

/// The reasons why a file that was handed over must not be mapped.
#[derive(Debug)]
pub enum FileError {
    /// The file's size could be changed while it is mapped.
    NotSealed,
    /// The file is not ordinary memory.
    NotMemory,
    /// The system refuses a call; the text names it.
    Os(&'static str, io::Error),
}

/// Makes a file of `bytes` zeros, closed on exec, which the caller then seals. The memory is allocated at once, so that running
/// out of it is an error here and not a signal later.
pub fn create(name: &str, bytes: u64) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, bytes)?;
    rustix::io::retry_on_intr(|| rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes))?;
    Ok(file)
}

/// Adds seals to a file.
pub fn seal(file: impl AsFd, seals: SealFlags) -> io::Result<()> {
    Ok(rustix::fs::fcntl_add_seals(file, seals)?)
}

/// The size of a file that was handed over, which must have at least these `seals`; they must include that it cannot shrink.
pub fn sealed_size(file: BorrowedFd<'_>, seals: SealFlags) -> Result<u64, FileError> {
    debug_assert!(seals.contains(SealFlags::SHRINK));
    let has = rustix::fs::fcntl_get_seals(file).map_err(|_| FileError::NotSealed)?;
    if !has.contains(seals) {
        return Err(FileError::NotSealed);
    }
    // Pages of other kinds of memory (huge ones) may be missing when they are touched.
    let kind = rustix::fs::fstatfs(file).map_err(|e| FileError::Os("fstatfs", e.into()))?.f_type;
    if kind as u64 != TMPFS {
        return Err(FileError::NotMemory);
    }
    // Read after the seals were checked, so the size cannot shrink any more.
    let size = rustix::fs::fstat(file).map_err(|e| FileError::Os("fstat", e.into()))?.st_size;
    Ok(u64::try_from(size).unwrap_or(0))
}

/// A mapped range; unmapped when dropped.
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address range that lives as long as the value; its content is used only as atomics, or copied through raw
// pointers.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` of `file` for reading, and for writing if `write`. The file must be that long and stay so.
    pub fn of(file: impl AsFd, bytes: usize, write: bool) -> io::Result<Mapping> {
        Mapping::with(file, 0, bytes, write, MapFlags::SHARED)
    }

    /// Maps `bytes` of `file` from `offset` on, a multiple of [`PAGE`], for reading and writing. The file must be that long and
    /// stay so.
    pub fn part(file: impl AsFd, offset: u64, bytes: usize) -> io::Result<Mapping> {
        Mapping::with(file, offset, bytes, true, MapFlags::SHARED)
    }

    /// Maps the first `bytes` of `file` for reading and writing, with all pages present, so that the first use has no page
    /// faults. Memory that was not allocated is allocated here: `bytes` must be no more than this process has a use for,
    /// whatever a peer's file holds.
    pub fn populated(file: impl AsFd, bytes: usize) -> io::Result<Mapping> {
        Mapping::with(file, 0, bytes, true, MapFlags::SHARED | MapFlags::POPULATE)
    }

    fn with(file: impl AsFd, offset: u64, bytes: usize, write: bool, flags: MapFlags) -> io::Result<Mapping> {
        let access = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, access, flags, file, offset) }?;
        // SAFETY: the mapping was just made, and nobody else has it.
        unsafe { Mapping::adopt(base.cast(), bytes) }
    }

    /// Maps `bytes` zeros that only this process and its children have.
    pub fn anonymous(bytes: usize) -> io::Result<Mapping> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE) }?;
        // SAFETY: the mapping was just made, and nobody else has it.
        unsafe { Mapping::adopt(base.cast(), bytes) }
    }

    /// Takes over a range that the kernel mapped.
    ///
    /// # Safety
    ///
    /// `bytes` are mapped at `base`, and nobody else unmaps them.
    pub unsafe fn adopt(base: *mut u8, bytes: usize) -> io::Result<Mapping> {
        let base = NonNull::new(base).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Mapping { base, bytes })
    }

    /// The range's first address, aligned to a page.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The size in bytes, as it was asked for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which no pointer is used after the value is dropped.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sealed_memory_has_a_size() {
        let file = create("atoll-test", 5000).unwrap();
        let size = || sealed_size(file.as_fd(), FIXED);
        assert!(matches!(size(), Err(FileError::NotSealed)));
        seal(&file, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        assert!(matches!(size(), Err(FileError::NotSealed)));
        assert_eq!(sealed_size(file.as_fd(), SealFlags::SHRINK).unwrap(), 5000);
        seal(&file, SealFlags::SEAL).unwrap();
        assert_eq!(size().unwrap(), 5000);
        let disk = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(matches!(sealed_size(disk.as_fd(), FIXED), Err(FileError::NotSealed)));
        // Huge pages can be sealed, and can be missing nevertheless.
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        match rustix::fs::memfd_create("atoll-test", flags) {
            Ok(huge) => {
                seal(&huge, FIXED).unwrap();
                assert!(matches!(sealed_size(huge.as_fd(), FIXED), Err(FileError::NotMemory)));
            }
            Err(e) => atoll_skips::skip_part!("no huge pages here: {e}"),
        }
    }
}
