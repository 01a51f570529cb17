//! Shared memory as a file: a memfd of a size that nobody can change, and its mapping.
//!
//! `ring_file.rs` and `set_file.rs` give it its meaning. The size is sealed, so a peer cannot cut the file under a
//! mapping, which would end this process by SIGBUS.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::channel::error::AttachError;
use crate::ring::sync::{AtomicU32, AtomicU64, Ordering};

/// The format of rings, wait sets and greetings; a change to any makes a new one.
pub const VERSION: u32 = 1;

/// Sizes are multiples of this.
pub(crate) const PAGE: usize = 4096;

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The magic number of the file system that ordinary memfds lie in, as `fstatfs` gives it.
const TMPFS: u64 = 0x0102_1994;

/// Makes a file of `bytes` zeros, sealed, closed on exec. Its memory is allocated here and now, so it is this
/// process's, and running out of it is an error and not a signal later.
pub(crate) fn create(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes as u64)?;
    rustix::fs::fcntl_add_seals(&file, SEALS)?;
    Ok(file)
}

/// Says what a file is that nobody else has yet.
pub(crate) fn identify(magic: &AtomicU64, version: &AtomicU32, ours: u64) {
    // Relaxed: handing the file over is a system call.
    version.store(VERSION, Ordering::Relaxed);
    magic.store(ours, Ordering::Relaxed);
}

/// Checks that a file that was handed over is what `identify` made, of the same format. Each word is read once: the peer may
/// change it at any time.
pub(crate) fn check_identity(magic: &AtomicU64, version: &AtomicU32, ours: u64) -> Result<(), AttachError> {
    let magic = magic.load(Ordering::Relaxed);
    if magic != ours {
        return Err(AttachError::NotAChannel(magic));
    }
    let version = version.load(Ordering::Relaxed);
    if version != VERSION {
        return Err(AttachError::Version { theirs: version, ours: VERSION });
    }
    Ok(())
}

/// A mapped file; unmapped when dropped.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address range that lives as long as the value; what is in it is used as atomics only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the whole of `file`, which must be sealed as `create` seals and hold `least` bytes.
    pub(crate) fn new(file: BorrowedFd<'_>, least: usize) -> Result<Mapping, AttachError> {
        let seals = rustix::fs::fcntl_get_seals(file).map_err(|_| AttachError::NotSealed)?;
        if !seals.contains(SEALS) {
            return Err(AttachError::NotSealed);
        }
        // Pages of other kinds of memory (huge ones) can be missing when they are touched.
        let kind = rustix::fs::fstatfs(file).map_err(|e| AttachError::Os("fstatfs", e.into()))?.f_type;
        if kind as u64 != TMPFS {
            return Err(AttachError::NotMemory);
        }
        // Behind the seals: the size cannot change any more.
        let size = rustix::fs::fstat(file).map_err(|e| AttachError::Os("fstat", e.into()))?.st_size;
        let bytes = usize::try_from(size).unwrap_or(0);
        if bytes < least || bytes > isize::MAX as usize {
            return Err(AttachError::Truncated { bytes, least });
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // Populated: the first message does not pay for page faults.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, access, flags, file, 0) }
            .map_err(|e| AttachError::Os("mmap", e.into()))?;
        let base = NonNull::new(base.cast()).ok_or(AttachError::Truncated { bytes, least })?;
        Ok(Mapping { base, bytes })
    }

    /// Where it begins, aligned to a page.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which no pointer is used after the last holder is gone.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
