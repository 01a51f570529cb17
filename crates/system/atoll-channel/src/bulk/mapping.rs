//! Shared memory of this process: a file in memory whose size nobody can change, and its mapping.
//!
//! Stands on `memory_file.rs`; `memory.rs` registers it, `pool/` keeps its buffers in it. Unlike the rings' files it can be
//! mapped for reading only, and its maker can reserve the right to write.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::SealFlags;

use crate::bulk::error::MemoryError;
use crate::bulk::memory::Access;
use atoll_transport::memory_file::{self, FIXED, FileError, Mapping};

/// The most bytes of registered memory, which keeps every sum of an offset and a size within 64 bits.
pub(crate) const MOST_BYTES: u64 = 1 << 62;

/// The processes that can map a file for writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writers {
    /// Every process that gets the descriptor.
    Everyone,
    /// The file's maker alone, through the mapping that it made before it gave the descriptor away; the kernel refuses all others
    /// (`F_SEAL_FUTURE_WRITE`).
    Maker,
}

/// Maps `bytes` zeros that only this process and its children have.
pub(crate) fn anonymous(bytes: u64) -> Result<Mapping, MemoryError> {
    Mapping::anonymous(in_memory(bytes)?).map_err(os("mmap"))
}

/// Makes a file of `bytes` zeros in memory, allocated at once and closed on exec, and maps it for reading and writing.
pub(crate) fn create(name: &str, bytes: u64, writers: Writers) -> Result<(OwnedFd, Mapping), MemoryError> {
    let size = in_memory(bytes)?;
    let file = memory_file::create(name, bytes).map_err(os("making a file in memory"))?;
    // Populated, as the memory is allocated already, so that the first copy has no page faults. A process that attaches cannot
    // know that, and populating a hole would take memory.
    let mapping = Mapping::populated(&file, size).map_err(os("mmap"))?;
    // Sealed after our own mapping, which the maker's seal would not allow any more.
    let seals = match writers {
        Writers::Everyone => FIXED,
        Writers::Maker => FIXED | SealFlags::FUTURE_WRITE,
    };
    memory_file::seal(&file, seals).map_err(os("sealing the file"))?;
    Ok((file, mapping))
}

/// Maps the whole of a file that was handed over, after checking that it cannot be truncated under the mapping.
pub(crate) fn attach(file: BorrowedFd<'_>, access: Access) -> Result<Mapping, MemoryError> {
    let size = in_memory(memory_file::sealed_size(file, SealFlags::SHRINK)?)?;
    // Readable even if only writing is allowed, as processors have no other mappings.
    Mapping::of(file, size, access.write).map_err(os("mmap"))
}

fn os(call: &'static str) -> impl Fn(io::Error) -> MemoryError {
    move |why| MemoryError::Os(call, why)
}

/// Converts a size that can be mapped.
fn in_memory(bytes: u64) -> Result<usize, MemoryError> {
    match usize::try_from(bytes) {
        Ok(size) if size > 0 && size <= isize::MAX as usize && bytes <= MOST_BYTES => Ok(size),
        _ => Err(MemoryError::Size(bytes)),
    }
}

impl From<FileError> for MemoryError {
    fn from(why: FileError) -> MemoryError {
        match why {
            FileError::NotSealed => MemoryError::NotSealed,
            FileError::NotMemory => MemoryError::NotMemory,
            FileError::Os(what, why) => MemoryError::Os(what, why),
        }
    }
}
