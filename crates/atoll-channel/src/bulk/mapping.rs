//! Shared memory of this process: a file in memory whose size nobody can change, and its mapping.
//!
//! Stands on `memory_file.rs`; `memory.rs` registers it, `pool/` keeps its buffers in it. Unlike the rings' files it can be
//! mapped for reading only, and its maker can keep the right to write to itself.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::SealFlags;

use crate::bulk::error::MemoryError;
use crate::bulk::memory::Access;
use atoll_transport::memory_file::{self, FIXED, FileError, Mapping};

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

/// Makes `bytes` zeros that only this process and its children have.
pub(crate) fn anonymous(bytes: u64) -> Result<Mapping, MemoryError> {
    Mapping::anonymous(in_memory(bytes)?).map_err(os("mmap"))
}

/// Makes a file of `bytes` zeros in memory, allocated here and now, closed on exec, and maps it for reading and writing.
pub(crate) fn create(name: &str, bytes: u64, writers: Writers) -> Result<(OwnedFd, Mapping), MemoryError> {
    let size = in_memory(bytes)?;
    let file = memory_file::create(name, bytes).map_err(os("making a file in memory"))?;
    // Populated: it is allocated already, so the first copy need not pay for page faults. Who attaches does not know
    // that, and a hole that is populated takes memory.
    let mapping = Mapping::populated(&file, size).map_err(os("mmap"))?;
    // Behind our own mapping, which the seal of the maker would not allow any more.
    let seals = match writers {
        Writers::Everyone => FIXED,
        Writers::Maker => FIXED | SealFlags::FUTURE_WRITE,
    };
    memory_file::seal(&file, seals).map_err(os("sealing the file"))?;
    Ok((file, mapping))
}

/// Maps the whole of a file that was handed over, after a check that it cannot be cut under the mapping.
pub(crate) fn attach(file: BorrowedFd<'_>, access: Access) -> Result<Mapping, MemoryError> {
    let size = in_memory(memory_file::sealed_size(file, SealFlags::SHRINK)?)?;
    // Readable even where only writing is allowed: no processor maps otherwise.
    Mapping::of(file, size, access.write).map_err(os("mmap"))
}

fn os(call: &'static str) -> impl Fn(io::Error) -> MemoryError {
    move |why| MemoryError::Os(call, why)
}

/// A size that can be mapped.
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
