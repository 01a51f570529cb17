//! A description: what an owner tells a holder about a capability's memory and its place.
//!
//! `owner.rs` writes it, `import.rs` reads it and believes nothing. It travels in a message; the file that may belong to it
//! goes over a Unix socket beside it (`hand_over.rs`), or is fetched from the owner by its number.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::capability::handle::Handle;
use crate::capability::rights::Rights;

/// The most bytes of a transport's key.
pub const MOST_KEY: usize = 4096;

/// A capability's memory, as its holder can reach it.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Description {
    /// The capability's handle.
    pub handle: Handle,
    /// The length in bytes.
    pub length: u64,
    /// The rights: reading, writing, or both.
    pub rights: Rights,
    /// The memory's place.
    pub place: Place,
}

/// The place of memory.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Place {
    /// In a file, from its start.
    File(FileId),
    /// In the owner's process.
    Process {
        /// The start address in the owner.
        address: u64,
    },
    /// At a node that a transport reaches.
    Remote {
        /// The start address, as the transport counts.
        base: u64,
        /// The key by which the transport reaches it.
        key: Vec<u8>,
    },
}

/// A file, as its owner sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct FileId {
    /// The owner's descriptor.
    pub number: i32,
    /// The device number of its file system.
    pub device: u64,
    /// The inode number. The descriptor may be another file's by now, but this number tells.
    pub inode: u64,
}

/// The answer that an owner sends to a holder.
pub struct Export {
    /// The message.
    pub description: Description,
    pub(super) file: Option<Arc<OwnedFd>>,
}

impl Export {
    /// The file that belongs to it.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(|file| file.as_fd())
    }
}
