//! The memory to which an owner's table holds capabilities: memory that others can map, or an address range of the owner's.
//!
//! `owner.rs` fills a table with it. `Direct` is a part of it, or of a mapping of another owner's memory, that this process
//! reaches with its own loads and stores.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::FallocateFlags;

use crate::bulk::{self, CopyError, Manager, MemoryError};
use crate::capability::access::AccessError;
use crate::capability::handle::Span;
use crate::capability::pages::Pages;
use crate::capability::rights::Rights;
use crate::capability::shared::Shared;

/// An owner's memory.
pub enum Memory {
    /// Memory that others can map.
    Shared(Shared),
    /// Memory that others cannot map.
    Private(Private),
}

/// An address range of this process that was not made for sharing: a heap block, the stack, an arena.
pub struct Private {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: an address range; its maker promised that it stays, and its bytes are copied through raw pointers only.
unsafe impl Send for Private {}
// SAFETY: as above.
unsafe impl Sync for Private {}

impl Private {
    /// The `length` bytes at `base`.
    ///
    /// # Safety
    ///
    /// The bytes stay readable and writable as long as the value lives: in a table, until the last capability to them was
    /// revoked and its result is dropped. Rust's rules about references hold for every holder that gets a right on them: no
    /// reference to them may be used while a holder writes.
    pub unsafe fn new(base: NonNull<u8>, length: usize) -> Private {
        Private { base, length }
    }
}

impl Memory {
    /// The start address in this process.
    pub fn base(&self) -> NonNull<u8> {
        match self {
            Memory::Shared(shared) => shared.base(),
            Memory::Private(private) => private.base,
        }
    }

    /// The length in bytes.
    pub fn length(&self) -> usize {
        match self {
            Memory::Shared(shared) => shared.length(),
            Memory::Private(private) => private.length,
        }
    }
}

/// The reasons why memory does not move to a file.
#[derive(thiserror::Error, Debug)]
pub enum MoveError {
    /// The memory is an address range that was not made for sharing.
    #[error("this memory stays where it is: it was not made as shared memory")]
    Private,
    /// The file cannot be made as long as the memory, or not be mapped; the text names the call.
    #[error("{0}: {1}")]
    Os(&'static str, #[source] io::Error),
    /// The memory or the file cannot be copied.
    #[error("{0}")]
    Registered(#[from] MemoryError),
    /// The bytes cannot be copied.
    #[error("{0}")]
    Copy(#[from] CopyError),
}

impl Memory {
    /// Moves the bytes of shared memory into `file`, an empty one on a disk that nobody else has, by the engine of `manager` that is fastest
    /// for it. The address stays, and the bytes are read from the file, and written to it, by the page cache. What others mapped before
    /// stays as it was, and they map nothing of it any more.
    ///
    /// Nobody may write to the memory during the call, or the write may be lost.
    pub fn move_to_file(self: &Arc<Memory>, file: OwnedFd, manager: &mut Manager) -> Result<(), MoveError> {
        let Memory::Shared(shared) = &**self else { return Err(MoveError::Private) };
        let bytes = self.length() as u64;
        // The file has room for all of it from now on: a page that finds none later would end this process.
        rustix::io::retry_on_intr(|| rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes))
            .map_err(|error| MoveError::Os("fallocate", error.into()))?;
        let there = file.try_clone().map_err(|error| MoveError::Os("dup", error))?;
        let to = bulk::Memory::of_file(there, 0, bytes, bulk::Access::WRITE)?;
        // SAFETY: the range is mapped as long as this memory is there, which the registered one keeps. Its bytes are never referenced.
        let from = unsafe {
            bulk::Memory::from_raw(self.base(), bytes, bulk::Access::READ, Arc::new(Arc::clone(self)))
        }?;
        manager.copy(&to, 0, &from, 0, bytes)?;
        shared.show(&file).map_err(|error| MoveError::Os("mmap", error))
    }
}

/// Bytes that this process reaches itself, with some rights. Keeps them mapped.
pub struct Direct {
    base: NonNull<u8>,
    length: usize,
    rights: Rights,
    /// The owner of the range.
    _keeps: Keeps,
}

enum Keeps {
    Memory { _memory: Arc<Memory> },
    Pages { _pages: Pages },
}

// SAFETY: an address range which the value keeps; its bytes are copied through raw pointers only.
unsafe impl Send for Direct {}
// SAFETY: as above.
unsafe impl Sync for Direct {}

impl Direct {
    /// A part of this process's own memory; `None` if it is not inside.
    pub(super) fn of(memory: &Arc<Memory>, span: Span, rights: Rights) -> Option<Direct> {
        let whole = Span { offset: 0, length: memory.length() as u64 };
        let span = whole.part(span)?;
        let (offset, length) = (usize::try_from(span.offset).ok()?, usize::try_from(span.length).ok()?);
        // SAFETY: inside the memory, as was checked.
        let base = unsafe { memory.base().add(offset) };
        Some(Direct { base, length, rights, _keeps: Keeps::Memory { _memory: memory.clone() } })
    }

    /// The first `length` bytes of a mapping, which has at least as many.
    pub(super) fn mapped(pages: Pages, length: usize, rights: Rights) -> Direct {
        Direct { base: pages.base(), length, rights, _keeps: Keeps::Pages { _pages: pages } }
    }

    /// The start address. The bytes may be read if the rights allow it, and other processes may change them at any time: make
    /// no reference to them unless something else rules that out.
    pub fn as_ptr(&self) -> *const u8 {
        self.base.as_ptr()
    }

    /// The start address, for writing; `None` without that right.
    pub fn as_mut_ptr(&self) -> Option<*mut u8> {
        self.rights.contains(Rights::WRITE).then_some(self.base.as_ptr())
    }

    /// The length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The rights: reading, writing, or both.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// Copies the bytes from `offset` on out of it.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), AccessError> {
        let at = self.at(offset, into.len(), Rights::READ)?;
        // SAFETY: all of it is inside the range, which is mapped; every value of a byte is valid. `into` may lie in the range.
        unsafe { std::ptr::copy(at.as_ptr(), into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies `from` into it, from `offset` on.
    pub fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), AccessError> {
        let at = self.at(offset, from.len(), Rights::WRITE)?;
        // SAFETY: all of it is inside the range, which is mapped writable where there is the right to write.
        unsafe { std::ptr::copy(from.as_ptr(), at.as_ptr(), from.len()) };
        Ok(())
    }

    fn at(&self, offset: u64, length: usize, right: Rights) -> Result<NonNull<u8>, AccessError> {
        AccessError::check(self.rights, right, self.length as u64, offset, length)?;
        // SAFETY: inside, as was checked, so the offset fits an address, too.
        Ok(unsafe { self.base.add(offset as usize) })
    }
}
