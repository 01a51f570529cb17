//! Registered memory: a range somewhere that transfers may name, kept until the last of them is finished.
//!
//! `transfer.rs` names parts of it, engines copy between them. What it stands for is one of a few kinds: a
//! mapping of this process, a range of another process, a range of a file, or what a transport means by it.
//!
//! A value is a counted reference: an engine holds one for as long as a transfer uses the memory, so no order
//! of drops in safe code frees memory under a copy. As other processes, and copies that are under way, write
//! to it at any time, no reference to its bytes is ever given out: they are read and written by copying.
//!
//! Source: the barrelfish paper, section 6.9.3 (memory is registered once, requests name registered memory).

use std::any::Any;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::bulk::error::{CopyError, MemoryError};
use crate::bulk::kernel;
use crate::bulk::mapping::{self, MOST_BYTES, Writers};
use crate::bulk::transfer::within;
use atoll_transport::Peer;
use atoll_transport::memory_file::Mapping;

/// What transfers may do with memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Copy from it.
    pub read: bool,
    /// Copy to it.
    pub write: bool,
}

impl Access {
    /// Copy from it only.
    pub const READ: Access = Access { read: true, write: false };
    /// Copy to it only.
    pub const WRITE: Access = Access { read: false, write: true };
    /// Both.
    pub const READ_WRITE: Access = Access { read: true, write: true };
}

/// Kinds of memory, as engines tell them apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Mapped in this process.
    Mapping,
    /// In another process's address space.
    Process,
    /// In a file.
    File,
    /// Known to a transport.
    Remote,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 4] = [Kind::Mapping, Kind::Process, Kind::File, Kind::Remote];

    /// Its name in messages and tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mapping => "a mapping",
            Kind::Process => "another process",
            Kind::File => "a file",
            Kind::Remote => "another node",
        }
    }
}

/// A file as the kernel knows it, whatever its name or descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileId {
    device: u64,
    inode: u64,
    /// Where in it the memory begins.
    offset: u64,
}

enum Place {
    Mapping { base: NonNull<u8>, _keeper: Arc<dyn Any + Send + Sync> },
    Process { peer: Peer, number: u32, address: u64 },
    File { file: OwnedFd, offset: u64 },
    Remote(Box<dyn Any + Send + Sync>),
}

// SAFETY: the pointer is to memory that the keeper keeps; it is used for copies that are opaque to the
// compiler.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

struct Registered {
    place: Place,
    bytes: u64,
    access: Access,
    file: Option<FileId>,
}

/// A registered range of memory. Clones stand for the same memory, which is kept until the last of them, and
/// the last transfer of it, is gone. No reference to its bytes is given out, as others may write them at any
/// time.
#[derive(Clone)]
pub struct Memory {
    registered: Arc<Registered>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes of {}, {:?}", self.bytes(), self.kind().name(), self.access())
    }
}

impl Memory {
    fn register(place: Place, bytes: u64, access: Access, file: Option<FileId>) -> Memory {
        Memory { registered: Arc::new(Registered { place, bytes, access, file }) }
    }

    fn mapped(mapping: Mapping, access: Access, file: Option<FileId>) -> Memory {
        let (base, bytes) = (mapping.base(), mapping.bytes() as u64);
        let place = Place::Mapping { base, _keeper: Arc::new(mapping) };
        Memory::register(place, bytes, access, file)
    }

    /// `bytes` zeros of this process's own; pages are allocated as they are touched.
    pub fn new(bytes: u64) -> Result<Memory, MemoryError> {
        Ok(Memory::mapped(mapping::anonymous(bytes)?, Access::READ_WRITE, None))
    }

    /// `bytes` zeros in shared memory, and the descriptor by which others map them (`Memory::attach`). All of
    /// it is allocated here and now, its size is sealed, and `writers` says who else can be given the right
    /// to write.
    pub fn shared(bytes: u64, writers: Writers) -> Result<(Memory, OwnedFd), MemoryError> {
        let (file, mapping) = mapping::create("atoll-bulk", bytes, writers)?;
        let id = identity(file.as_fd(), 0)?;
        Ok((Memory::mapped(mapping, Access::READ_WRITE, Some(id)), file))
    }

    /// Maps shared memory that was handed over, the whole of it. Only a file whose size is sealed is taken.
    pub fn attach(file: BorrowedFd<'_>, access: Access) -> Result<Memory, MemoryError> {
        let id = identity(file, 0)?;
        Ok(Memory::mapped(mapping::attach(file, access)?, access, Some(id)))
    }

    /// Memory that is mapped in this process already: `bytes` from `base`, which `keeper` keeps.
    ///
    /// # Safety
    /// The range is mapped, for writing too if `access` says so, until `keeper` is dropped; while it
    /// is registered no reference to its bytes is used but what may change, or be read, at any time (atomics,
    /// raw pointers).
    pub unsafe fn from_raw(
        base: NonNull<u8>,
        bytes: u64,
        access: Access,
        keeper: Arc<dyn Any + Send + Sync>,
    ) -> Result<Memory, MemoryError> {
        let start = base.as_ptr().addr() as u64;
        let bytes = checked(start, bytes)?;
        Ok(Memory::register(Place::Mapping { base, _keeper: keeper }, bytes, access, None))
    }

    /// A part of this memory as memory of its own, kept by `keeper` besides; none for what is not mapped here.
    pub(crate) fn part(
        &self,
        offset: u64,
        bytes: u64,
        access: Access,
        keeper: Arc<dyn Any + Send + Sync>,
    ) -> Option<Memory> {
        let Place::Mapping { base, .. } = &self.registered.place else { return None };
        if bytes == 0 || !within(offset, bytes, self.bytes()) {
            return None;
        }
        // SAFETY: within the mapping, as was just checked.
        let base = unsafe { base.add(offset as usize) };
        let file = self.registered.file.map(|file| FileId { offset: file.offset + offset, ..file });
        let keeper: Arc<dyn Any + Send + Sync> = Arc::new((self.clone(), keeper));
        Some(Memory::register(Place::Mapping { base, _keeper: keeper }, bytes, access, file))
    }

    /// `bytes` from `address` in the address space of `process`. Whether something is mapped there shows when
    /// it is copied.
    ///
    /// The process is held by its pidfd, so the number of one that has ended is never taken for it. A process
    /// that replaces its program (`exec`) has another address space under the same pidfd: nobody but the
    /// process itself can tell.
    pub fn of_process(
        process: &Peer,
        address: u64,
        bytes: u64,
        access: Access,
    ) -> Result<Memory, MemoryError> {
        // Safe code could write to any of its own bytes.
        if this_process(process) {
            return Err(MemoryError::OwnProcess);
        }
        // SAFETY: nothing of this process can be reached by it.
        unsafe { Memory::of_any_process(process, address, bytes, access) }
    }

    /// As `of_process`, for this process, too.
    ///
    /// # Safety
    /// If the process is this one, the range is as `from_raw` has it, as long as the memory is held.
    pub(crate) unsafe fn of_any_process(
        process: &Peer,
        address: u64,
        bytes: u64,
        access: Access,
    ) -> Result<Memory, MemoryError> {
        let bytes = checked(address, bytes)?;
        let number = process.number().ok_or(MemoryError::NoProcess)?;
        let place = Place::Process { peer: process.clone(), number, address };
        Ok(Memory::register(place, bytes, access, None))
    }

    /// `bytes` from `offset` of a file, which may be shorter: writing makes it longer, reading beyond its end
    /// is an error of the transfer. The descriptor must be open for what `access` says.
    pub fn of_file(
        file: impl Into<OwnedFd>,
        offset: u64,
        bytes: u64,
        access: Access,
    ) -> Result<Memory, MemoryError> {
        let bytes = checked(offset, bytes)?;
        let file = file.into();
        let flags = rustix::fs::fcntl_getfl(&file).map_err(|e| MemoryError::Os("fcntl", e.into()))?;
        if access.write && flags.contains(rustix::fs::OFlags::APPEND) {
            return Err(MemoryError::Appending);
        }
        let id = identity(file.as_fd(), offset)?;
        Ok(Memory::register(Place::File { file, offset }, bytes, access, Some(id)))
    }

    /// Memory that a transport knows by `handle` (a node, an address there, a key): its own engine finds that
    /// again with `remote`. For those of `transport/` see `of_node`.
    pub fn of_transport(
        handle: Box<dyn Any + Send + Sync>,
        bytes: u64,
        access: Access,
    ) -> Result<Memory, MemoryError> {
        let bytes = checked(0, bytes)?;
        Ok(Memory::register(Place::Remote(handle), bytes, access, None))
    }

    /// Its size in bytes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.registered.bytes
    }

    /// What may be done with it.
    #[inline]
    pub fn access(&self) -> Access {
        self.registered.access
    }

    /// What kind it is.
    #[inline]
    pub fn kind(&self) -> Kind {
        match self.registered.place {
            Place::Mapping { .. } => Kind::Mapping,
            Place::Process { .. } => Kind::Process,
            Place::File { .. } => Kind::File,
            Place::Remote(_) => Kind::Remote,
        }
    }

    /// Where it is mapped in this process, if it is. What is there may change at any time; the address is good
    /// while the memory is held.
    #[inline]
    pub fn mapped_at(&self) -> Option<NonNull<u8>> {
        match &self.registered.place {
            Place::Mapping { base, .. } => Some(*base),
            _ => None,
        }
    }

    /// The process and the address there, for memory of a process: it, its number, the address.
    pub(crate) fn in_process(&self) -> Option<(&Peer, u32, u64)> {
        match &self.registered.place {
            Place::Process { peer, number, address } => Some((peer, *number, *address)),
            _ => None,
        }
    }

    /// The file and the offset in it, for memory in a file.
    pub(crate) fn in_file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        match &self.registered.place {
            Place::File { file, offset } => Some((file.as_fd(), *offset)),
            _ => None,
        }
    }

    /// What a transport registered, if it was of this type.
    pub fn remote<T: 'static>(&self) -> Option<&T> {
        match &self.registered.place {
            Place::Remote(handle) => handle.downcast_ref(),
            _ => None,
        }
    }

    /// Nobody else holds this memory: no transfer of it is under way.
    pub(crate) fn is_alone(&self) -> bool {
        let alone = Arc::strong_count(&self.registered) == 1;
        // Pairs with the release of whoever let go of it last: what was copied is there.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        alone
    }

    /// Copies to `bytes` from `offset` on; for memory mapped here.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), CopyError> {
        let from = self.local("source", self.access().read, "reading", offset, bytes.len())?;
        // SAFETY: the range is within the mapping, which `self` keeps; `bytes` is ours alone, so they cannot
        // overlap.
        unsafe { kernel::plain(bytes.as_mut_ptr(), from, bytes.len()) };
        Ok(())
    }

    /// Copies `bytes` to `offset`; for memory mapped here.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), CopyError> {
        let to = self.local("destination", self.access().write, "writing", offset, bytes.len())?;
        // SAFETY: as in `read`: nobody writes to `bytes` while they are borrowed.
        unsafe { kernel::plain(to, bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn local(
        &self,
        end: &'static str,
        allowed: bool,
        needed: &'static str,
        offset: u64,
        bytes: usize,
    ) -> Result<*mut u8, CopyError> {
        let bytes = bytes as u64;
        if !within(offset, bytes, self.bytes()) {
            return Err(CopyError::OutOfRange { end, offset, bytes, size: self.bytes() });
        }
        if !allowed {
            return Err(CopyError::NotAllowed { end, needed });
        }
        let Some(base) = self.mapped_at() else {
            let here = Kind::Mapping.name();
            let (from, to) =
                if end == "source" { (self.kind().name(), here) } else { (here, self.kind().name()) };
            return Err(CopyError::Unreachable { from, to });
        };
        Ok(base.as_ptr().wrapping_add(offset as usize))
    }

    /// Whether `bytes` from `offset` here share a byte with `bytes` from `other_offset` of `other`, as far as
    /// can be seen: the same addresses of one process, or the same bytes of one file, mapped or not.
    #[inline]
    pub(crate) fn overlaps(&self, offset: u64, other: &Memory, other_offset: u64, bytes: u64) -> bool {
        let meet = |a: u64, b: u64| a.abs_diff(b) < bytes;
        match (&self.registered.place, &other.registered.place) {
            (Place::Mapping { base: a, .. }, Place::Mapping { base: b, .. }) => {
                let (a, b) = (a.as_ptr().addr() as u64, b.as_ptr().addr() as u64);
                if meet(a + offset, b + other_offset) {
                    return true;
                }
            }
            (Place::Process { peer, address, .. }, Place::Mapping { base, .. }) => {
                let base = base.as_ptr().addr() as u64;
                if meet(*address + offset, base + other_offset) && this_process(peer) {
                    return true;
                }
            }
            (Place::Mapping { base, .. }, Place::Process { peer, address, .. }) => {
                let base = base.as_ptr().addr() as u64;
                if meet(base + offset, *address + other_offset) && this_process(peer) {
                    return true;
                }
            }
            _ => {}
        }
        match (&self.registered.file, &other.registered.file) {
            (Some(a), Some(b)) => {
                a.inode == b.inode && a.device == b.device && meet(a.offset + offset, b.offset + other_offset)
            }
            _ => false,
        }
    }
}

impl From<Vec<u8>> for Memory {
    /// The bytes become this memory's; an empty vector becomes one byte, as there is no memory of none.
    fn from(mut bytes: Vec<u8>) -> Memory {
        if bytes.is_empty() {
            bytes.push(0);
        }
        let bytes: Box<[u8]> = bytes.into_boxed_slice();
        let size = bytes.len() as u64;
        let owned = Owned(NonNull::from(Box::leak(bytes)));
        let base = owned.0.cast();
        let place = Place::Mapping { base, _keeper: Arc::new(owned) };
        Memory::register(place, size, Access::READ_WRITE, None)
    }
}

/// Bytes of the heap, reached through the pointer alone.
struct Owned(NonNull<[u8]>);

// SAFETY: it owns what it points to.
unsafe impl Send for Owned {}
// SAFETY: nothing is reached through a shared reference to it.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: leaked from a box when this was made, and given back once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

fn this_process(peer: &Peer) -> bool {
    peer.number() == Some(std::process::id())
}

fn checked(start: u64, bytes: u64) -> Result<u64, MemoryError> {
    if bytes == 0 || bytes > MOST_BYTES {
        return Err(MemoryError::Size(bytes));
    }
    match start.checked_add(bytes) {
        Some(end) if end <= i64::MAX as u64 => Ok(bytes),
        _ => Err(MemoryError::Overflow { start, bytes }),
    }
}

fn identity(file: BorrowedFd<'_>, offset: u64) -> Result<FileId, MemoryError> {
    let about = rustix::fs::fstat(file).map_err(|e| MemoryError::Os("fstat", e.into()))?;
    Ok(FileId { device: about.st_dev, inode: about.st_ino, offset })
}
