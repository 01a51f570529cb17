//! Shared memory of this process: a file in memory whose size nobody can change, and its mapping.
//!
//! `memory.rs` registers it, `pool/` keeps its buffers in it. It differs from the rings' files
//! (`channel/file.rs`) in that it can be mapped for reading only and that its maker can keep the right to
//! write to itself.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::bulk::error::MemoryError;
use crate::bulk::memory::Access;

/// The magic number of the file system that ordinary memfds lie in, as `fstatfs` gives it.
const TMPFS: u64 = 0x0102_1994;
/// Most bytes of anything registered: what keeps every sum of an offset and a size inside 64 bits.
pub(crate) const MOST_BYTES: u64 = 1 << 62;

/// Who can map a file for writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writers {
    /// Everybody who gets the descriptor.
    Everyone,
    /// Its maker alone, through the mapping it made before it gave the descriptor away; the kernel refuses
    /// all others (`F_SEAL_FUTURE_WRITE`).
    Maker,
}

/// A mapped range; unmapped when dropped.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address range that lives as long as the value; its bytes are only touched through kernel.rs,
// whose copies are opaque to the compiler.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Makes `bytes` zeros that only this process and its children have.
    pub(crate) fn anonymous(bytes: u64) -> Result<Mapping, MemoryError> {
        let size = in_memory(bytes)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), size, access, MapFlags::PRIVATE) }
                .map_err(|e| MemoryError::Os("mmap", e.into()))?;
        Ok(Mapping { base: NonNull::new(base.cast()).ok_or(MemoryError::Size(bytes))?, bytes: size })
    }

    /// Makes a file of `bytes` zeros in memory, allocated here and now, closed on exec, and maps it for
    /// reading and writing.
    pub(crate) fn create(
        name: &str,
        bytes: u64,
        writers: Writers,
    ) -> Result<(OwnedFd, Mapping), MemoryError> {
        let os = |call| move |e: rustix::io::Errno| MemoryError::Os(call, e.into());
        let size = in_memory(bytes)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(name, flags).map_err(os("memfd_create"))?;
        rustix::fs::ftruncate(&file, bytes).map_err(os("ftruncate"))?;
        rustix::io::retry_on_intr(|| rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes))
            .map_err(os("fallocate"))?;
        // Populated: it is allocated already, so the first copy need not pay for page faults. Who attaches
        // does not know that, and a hole that is populated takes memory.
        let mapping = Mapping::shared(file.as_fd(), size, Access::READ_WRITE, MapFlags::POPULATE)?;
        // Behind our own mapping, which the seal of the maker would not allow any more.
        let mut seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        if writers == Writers::Maker {
            seals |= SealFlags::FUTURE_WRITE;
        }
        rustix::fs::fcntl_add_seals(&file, seals).map_err(os("sealing the file"))?;
        Ok((file, mapping))
    }

    /// Maps the whole of a file that was handed over, after a check that it cannot be cut under the mapping.
    pub(crate) fn attach(file: BorrowedFd<'_>, access: Access) -> Result<Mapping, MemoryError> {
        let seals = rustix::fs::fcntl_get_seals(file).map_err(|_| MemoryError::NotSealed)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(MemoryError::NotSealed);
        }
        // Pages of other kinds of memory (huge ones) can be missing when they are touched.
        let kind = rustix::fs::fstatfs(file).map_err(|e| MemoryError::Os("fstatfs", e.into()))?.f_type;
        if kind as u64 != TMPFS {
            return Err(MemoryError::NotMemory);
        }
        // Behind the seal: it cannot become less any more.
        let size = rustix::fs::fstat(file).map_err(|e| MemoryError::Os("fstat", e.into()))?.st_size;
        Mapping::shared(file, in_memory(u64::try_from(size).unwrap_or(0))?, access, MapFlags::empty())
    }

    fn shared(
        file: BorrowedFd<'_>,
        bytes: usize,
        access: Access,
        flags: MapFlags,
    ) -> Result<Mapping, MemoryError> {
        // Readable even where only writing is allowed: no processor maps otherwise.
        let mut protection = ProtFlags::READ;
        if access.write {
            protection |= ProtFlags::WRITE;
        }
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED | flags, file, 0)
        }
        .map_err(|e| MemoryError::Os("mmap", e.into()))?;
        Ok(Mapping { base: NonNull::new(base.cast()).ok_or(MemoryError::Size(bytes as u64))?, bytes })
    }

    /// Where it begins, aligned to a page.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes as u64
    }
}

/// A size that can be mapped.
fn in_memory(bytes: u64) -> Result<usize, MemoryError> {
    match usize::try_from(bytes) {
        Ok(size) if size > 0 && size <= isize::MAX as usize && bytes <= MOST_BYTES => Ok(size),
        _ => Err(MemoryError::Size(bytes)),
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which no pointer is used after the last holder is gone.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
