//! Registered memory: a range that transfers may name, kept until the last of them is finished.
//!
//! `transfer.rs` names parts of it, engines copy between them. It is of one of a few kinds: a mapping of this process, a range
//! of another process, a range of a file, or memory known to a transport.
//!
//! A value is a counted reference: an engine holds one while a transfer uses the memory, so no order of drops in safe code
//! frees memory under a copy. As other processes, and copies under way, write to it at any time, no reference to its bytes is
//! ever given out: they are read and written by copying.
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

/// The rights that transfers have on memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Whether transfers may copy from it.
    pub read: bool,
    /// Whether transfers may copy to it.
    pub write: bool,
}

impl Access {
    /// Transfers may only copy from it.
    pub const READ: Access = Access { read: true, write: false };
    /// Transfers may only copy to it.
    pub const WRITE: Access = Access { read: false, write: true };
    /// Transfers may copy from it and to it.
    pub const READ_WRITE: Access = Access { read: true, write: true };
}

/// The kinds of memory that engines distinguish.
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
    /// All kinds.
    pub const ALL: [Kind; 4] = [Kind::Mapping, Kind::Process, Kind::File, Kind::Remote];

    /// The kind's name in messages and tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mapping => "a mapping",
            Kind::Process => "another process",
            Kind::File => "a file",
            Kind::Remote => "another node",
        }
    }
}

/// A file's identity in the kernel, whatever its name or descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileId {
    device: u64,
    inode: u64,
    /// The offset in the file at which the memory begins.
    offset: u64,
}

enum Place {
    Mapping { base: NonNull<u8>, _keeper: Arc<dyn Any + Send + Sync> },
    Process { peer: Peer, number: u32, address: u64 },
    File { file: OwnedFd, offset: u64 },
    Remote(Box<dyn Any + Send + Sync>),
}

// SAFETY: the pointer is to memory that the keeper keeps, and is used for copies that the compiler cannot see into.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

struct Registered {
    place: Place,
    bytes: u64,
    access: Access,
    file: Option<FileId>,
}

/// A registered range of memory. Clones stand for the same memory, which is kept until the last of them, and the last transfer
/// of it, is gone. No reference to its bytes is given out, as others may write them at any time.
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

    /// Memory of `bytes` zeros of this process; pages are allocated when they are touched.
    pub fn new(bytes: u64) -> Result<Memory, MemoryError> {
        Ok(Memory::mapped(mapping::anonymous(bytes)?, Access::READ_WRITE, None))
    }

    /// Shared memory of `bytes` zeros, and the descriptor by which others map it (`Memory::attach`). All of it is allocated at
    /// once, its size is sealed, and `writers` tells which other processes can write.
    pub fn shared(bytes: u64, writers: Writers) -> Result<(Memory, OwnedFd), MemoryError> {
        let (file, mapping) = mapping::create("atoll-bulk", bytes, writers)?;
        let id = identity(file.as_fd(), 0)?;
        Ok((Memory::mapped(mapping, Access::READ_WRITE, Some(id)), file))
    }

    /// Maps all of the shared memory that was handed over. Its size must be sealed.
    pub fn attach(file: BorrowedFd<'_>, access: Access) -> Result<Memory, MemoryError> {
        let id = identity(file, 0)?;
        Ok(Memory::mapped(mapping::attach(file, access)?, access, Some(id)))
    }

    /// Memory that is mapped in this process already: `bytes` from `base`, which `keeper` keeps.
    ///
    /// # Safety
    /// The range is mapped, for writing too if `access` says so, until `keeper` is dropped. While it is registered, its bytes
    /// are referenced only in ways that allow them to change or be read at any time (atomics, raw pointers).
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

    /// A part of this memory as memory of its own, which `keeper` keeps, too; `None` if it is not mapped here.
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

    /// The `bytes` from `address` in the address space of `process`. Whether something is mapped there is found out when it is
    /// copied.
    ///
    /// The process is held by its pidfd, so a later process with the same number is never taken for it. A process that replaces
    /// its program (`exec`) has another address space under the same pidfd, which only the process itself can tell.
    pub fn of_process(
        process: &Peer,
        address: u64,
        bytes: u64,
        access: Access,
    ) -> Result<Memory, MemoryError> {
        // Otherwise safe code could write to any of its own bytes.
        if this_process(process) {
            return Err(MemoryError::OwnProcess);
        }
        // SAFETY: the process is another one, so no memory of this process can be reached.
        unsafe { Memory::of_any_process(process, address, bytes, access) }
    }

    /// Registers memory as `of_process` does, but also of this process.
    ///
    /// # Safety
    /// If the process is this one, the promises of `from_raw` hold for the range while the memory is held.
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

    /// The `bytes` from `offset` of a file, which may be shorter: writing makes it longer, reading beyond its end is an error
    /// of the transfer. The descriptor must be open for `access`.
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

    /// Memory that a transport knows by `handle` (a node, an address there, a key), which the transport's own engine gets with
    /// `remote`. For the transports of `atoll-transport` see `of_node`.
    pub fn of_transport(
        handle: Box<dyn Any + Send + Sync>,
        bytes: u64,
        access: Access,
    ) -> Result<Memory, MemoryError> {
        let bytes = checked(0, bytes)?;
        Ok(Memory::register(Place::Remote(handle), bytes, access, None))
    }

    /// The size in bytes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.registered.bytes
    }

    /// The rights of transfers on it.
    #[inline]
    pub fn access(&self) -> Access {
        self.registered.access
    }

    /// The memory's kind.
    #[inline]
    pub fn kind(&self) -> Kind {
        match self.registered.place {
            Place::Mapping { .. } => Kind::Mapping,
            Place::Process { .. } => Kind::Process,
            Place::File { .. } => Kind::File,
            Place::Remote(_) => Kind::Remote,
        }
    }

    /// The address where it is mapped in this process, if it is. The bytes may change at any time; the address is valid while
    /// the memory is held.
    #[inline]
    pub fn mapped_at(&self) -> Option<NonNull<u8>> {
        match &self.registered.place {
            Place::Mapping { base, .. } => Some(*base),
            _ => None,
        }
    }

    /// For memory of a process: the process, its number, and the address there.
    pub(crate) fn in_process(&self) -> Option<(&Peer, u32, u64)> {
        match &self.registered.place {
            Place::Process { peer, number, address } => Some((peer, *number, *address)),
            _ => None,
        }
    }

    /// For memory in a file: the file and the offset in it.
    pub(crate) fn in_file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        match &self.registered.place {
            Place::File { file, offset } => Some((file.as_fd(), *offset)),
            _ => None,
        }
    }

    /// The handle that a transport registered, if it is of this type.
    pub fn remote<T: 'static>(&self) -> Option<&T> {
        match &self.registered.place {
            Place::Remote(handle) => handle.downcast_ref(),
            _ => None,
        }
    }

    /// Whether nobody else holds this memory, so that no transfer of it is under way.
    pub(crate) fn is_alone(&self) -> bool {
        let alone = Arc::strong_count(&self.registered) == 1;
        // Pairs with the release of the last other holder, whose copies are then visible.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        alone
    }

    /// Copies the bytes from `offset` on to `bytes`. Only for memory mapped here.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), CopyError> {
        let from = self.local("source", self.access().read, "reading", offset, bytes.len())?;
        // SAFETY: the range is within the mapping, which `self` keeps; `bytes` is ours alone, so they cannot
        // overlap.
        unsafe { kernel::plain(bytes.as_mut_ptr(), from, bytes.len()) };
        Ok(())
    }

    /// Copies `bytes` to `offset`. Only for memory mapped here.
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

    /// Whether `bytes` from `offset` here share a byte with `bytes` from `other_offset` of `other`, as far as can be
    /// determined: the same addresses of one process, or the same bytes of one file, mapped or not.
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
    /// Makes memory of the bytes; an empty vector becomes one byte, as there is no empty memory.
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

/// Bytes of the heap, used only through the pointer.
struct Owned(NonNull<[u8]>);

// SAFETY: it owns the bytes behind the pointer.
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
