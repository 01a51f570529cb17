//! Bytes that are near beside the pages in frames, and count against the near limit: pinned memory, and the twins of a node.
//!
//! `room` subtracts them from the limit; the runtime says where pinned memory lies.
//!
//! Rules: no allocation, no locks, no arena access.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::sys;

/// In the place of no descriptor: nothing is pinned.
const NONE: i32 = -1;
/// In the place of a descriptor: pinned memory is all of the process's private memory.
const PRIVATE: i32 = -2;

/// Where pinned memory lies, and what is counted with it.
pub(super) struct Pinned {
    file: AtomicI32,
    /// The kernel's account of what the process uses, where pinned memory is its private memory; negative if it is not open.
    memory_use: AtomicI32,
    /// Bytes of the node's twins, in runs on several nodes.
    twin_bytes: AtomicU64,
}

impl Pinned {
    /// No pinned memory.
    pub(super) const fn new() -> Pinned {
        Pinned { file: AtomicI32::new(NONE), memory_use: AtomicI32::new(NONE), twin_bytes: AtomicU64::new(0) }
    }

    /// Pinned memory lies in this file.
    pub(super) fn set_file(&self, fd: i32) {
        self.file.store(fd, Ordering::Relaxed);
    }

    /// The file's descriptor, if it lies in one.
    pub(super) fn file(&self) -> Option<i32> {
        Some(self.file.load(Ordering::Relaxed)).filter(|fd| *fd >= 0)
    }

    /// Pinned memory lies in no file: it is all of the process's private memory.
    pub(super) fn set_private(&self) {
        self.memory_use.store(sys::open_memory_use().unwrap_or(NONE), Ordering::Relaxed);
        self.file.store(PRIVATE, Ordering::Relaxed);
    }

    /// A node's twins take so many bytes.
    pub(super) fn set_twin_bytes(&self, bytes: u64) {
        self.twin_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of pinned memory and twins now. The kernel is asked.
    pub(super) fn bytes(&self) -> u64 {
        let file = match self.file.load(Ordering::Relaxed) {
            PRIVATE => match self.memory_use.load(Ordering::Relaxed) {
                statm @ 0.. => sys::private_bytes_by(statm),
                _ => sys::private_bytes(),
            },
            fd @ 0.. => sys::file_bytes(fd),
            _ => 0,
        };
        file + self.twin_bytes.load(Ordering::Relaxed)
    }
}
