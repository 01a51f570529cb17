//! What an owner tells a holder about where a capability's memory is.
//!
//! `owner.rs` writes it, `import.rs` reads it and believes nothing. It travels in a message; the file that may belong
//! to it goes over a Unix socket beside it (`hand_over.rs`), or is fetched from the owner by its number.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::capability::handle::Handle;
use crate::capability::rights::Rights;

/// Bytes that the key of a transport has at most.
pub const MOST_KEY: usize = 4096;

/// A capability's memory, as its holder is to reach it.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Description {
    /// The capability.
    pub handle: Handle,
    /// How many bytes.
    pub length: u64,
    /// Reading and writing, or one of them.
    pub rights: Rights,
    /// Where they are.
    pub place: Place,
}

/// Where memory is.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Place {
    /// In a file, from its beginning.
    File(FileId),
    /// In the owner's process.
    Process {
        /// Where it begins there.
        address: u64,
    },
    /// Behind a transport.
    Remote {
        /// Where it begins, as the transport counts.
        base: u64,
        /// What the transport needs to reach it.
        key: Vec<u8>,
    },
}

/// A file, as its owner sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct FileId {
    /// The owner's descriptor.
    pub number: i32,
    /// The number of its file system.
    pub device: u64,
    /// Its number there. The descriptor may be another file's by now, but this is not.
    pub inode: u64,
}

/// What an owner sends to a holder.
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
