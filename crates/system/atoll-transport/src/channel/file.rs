//! The file of a ring or a wait set: makes it, identifies it, and maps one that was handed over.
//!
//! Stands on `memory_file.rs`; `ring_file.rs` and `set_file.rs` define its content.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::channel::error::AttachError;
use crate::memory_file::{self, FIXED, FileError, Mapping};
use crate::ring::sync::{AtomicU32, AtomicU64, Ordering};

/// The format of rings, wait sets and greetings; a change to any of them needs a new number.
pub const VERSION: u32 = 1;

/// Makes a sealed file of `bytes` zeros, which is closed on exec.
pub(crate) fn create(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let file = memory_file::create(name, bytes as u64)?;
    memory_file::seal(&file, FIXED)?;
    Ok(file)
}

/// Writes the magic number and the version to a file that no other process has yet.
pub(crate) fn identify(magic: &AtomicU64, version: &AtomicU32, ours: u64) {
    // Relaxed: the file is handed over by a system call, which orders the stores.
    version.store(VERSION, Ordering::Relaxed);
    magic.store(ours, Ordering::Relaxed);
}

/// Checks that a file that was handed over was identified by `identify`, in the same format. Each word is read once, because
/// the peer may change it at any time.
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

/// Maps `file`, which must be sealed as `create` seals and hold at least `least` bytes; maps at most `most`. Memory that its
/// maker did not allocate is allocated here, so `most` must be no more than a ring or a wait set has.
pub(crate) fn map(file: BorrowedFd<'_>, least: usize, most: usize) -> Result<Mapping, AttachError> {
    let bytes = usize::try_from(memory_file::sealed_size(file, FIXED)?).unwrap_or(usize::MAX);
    if bytes < least {
        return Err(AttachError::Truncated { bytes, least });
    }
    Mapping::populated(file, bytes.min(most)).map_err(|e| AttachError::Os("mmap", e))
}

impl From<FileError> for AttachError {
    fn from(why: FileError) -> AttachError {
        match why {
            FileError::NotSealed => AttachError::NotSealed,
            FileError::NotMemory => AttachError::NotMemory,
            FileError::Os(what, why) => AttachError::Os(what, why),
        }
    }
}
