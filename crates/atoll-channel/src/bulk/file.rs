//! The engine for files that waits for each call: `pread` and `pwrite`, finished when it was started.
//!
//! Quick for what the page cache holds, and for small ranges; `uring.rs` has many under way at once, and
//! falls back on this where the kernel refuses it.

use std::os::fd::{AsRawFd, RawFd};

use crate::bulk::engine::{Engine, Started};
use crate::bulk::error::CopyError;
use crate::bulk::memory::{Kind, Memory};
use crate::bulk::transfer::{Ends, Transfer};

/// Most bytes of one call; the kernel's own limit is a little below 2 GiB.
pub(crate) const MOST: u64 = 1 << 30;

/// What is to be done with a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileCopy {
    /// From the file to memory.
    pub(crate) reading: bool,
    pub(crate) file: RawFd,
    pub(crate) offset: u64,
    pub(crate) memory: *mut u8,
    pub(crate) bytes: u64,
}

impl FileCopy {
    /// Of a transfer between a file and a mapping.
    pub(crate) fn new(transfer: &Transfer<'_>) -> Result<FileCopy, CopyError> {
        let unreachable = || CopyError::unreachable(transfer);
        let Ends { reading, address, far, far_offset, .. } = transfer.ends().ok_or_else(unreachable)?;
        let (file, begin) = far.in_file().ok_or_else(unreachable)?;
        let (offset, bytes) = (begin + far_offset, transfer.bytes());
        Ok(FileCopy { reading, file: file.as_raw_fd(), offset, memory: address, bytes })
    }

    /// What is left of it behind its first `done` bytes.
    pub(crate) fn rest(self, done: u64) -> FileCopy {
        let done = done.min(self.bytes);
        FileCopy {
            offset: self.offset + done,
            memory: self.memory.wrapping_add(done as usize),
            bytes: self.bytes - done,
            ..self
        }
    }

    /// What a call without effect means: 0 bytes were copied.
    pub(crate) fn nothing(&self) -> CopyError {
        if self.reading { CopyError::EndOfFile } else { CopyError::NoSpace }
    }

    /// What a failed call means.
    pub(crate) fn error(&self, code: i32) -> CopyError {
        match code {
            libc::ENOSPC | libc::EDQUOT => CopyError::NoSpace,
            // A seal of a file in memory against growing or writing.
            libc::EFBIG | libc::EPERM if !self.reading => CopyError::TooLarge,
            libc::EIO => CopyError::Medium,
            libc::EBADF if self.reading => CopyError::NotAllowed { end: "source", needed: "reading" },
            libc::EBADF => CopyError::NotAllowed { end: "destination", needed: "writing" },
            code => CopyError::Os {
                call: if self.reading { "reading the file" } else { "writing the file" },
                code,
            },
        }
    }

    /// Makes it, call by call.
    ///
    /// # Safety
    /// It is of a transfer whose two memories live still.
    pub(crate) unsafe fn run(mut self) -> Result<(), CopyError> {
        while self.bytes > 0 {
            let (bytes, offset) = (self.bytes.min(MOST) as usize, self.offset.cast_signed());
            // SAFETY: the transfer was checked: the range is inside its mapping, and writable where it is
            // written.
            let copied = unsafe {
                if self.reading {
                    libc::pread(self.file, self.memory.cast(), bytes, offset)
                } else {
                    libc::pwrite(self.file, self.memory.cast(), bytes, offset)
                }
            };
            match u64::try_from(copied) {
                Ok(0) => return Err(self.nothing()),
                Ok(copied) => self = self.rest(copied),
                Err(_) => match std::io::Error::last_os_error().raw_os_error().unwrap_or(0) {
                    libc::EINTR => {}
                    code => return Err(self.error(code)),
                },
            }
        }
        Ok(())
    }
}

/// Copies between a file and a mapping, either way.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileIo;

impl Engine for FileIo {
    fn name(&self) -> &'static str {
        "pread"
    }

    fn reaches(&self, to: &Memory, from: &Memory) -> bool {
        matches!((to.kind(), from.kind()), (Kind::Mapping, Kind::File) | (Kind::File, Kind::Mapping))
    }

    fn start(&mut self, transfer: &Transfer<'_>, _number: u64) -> Result<Started, CopyError> {
        let copy = FileCopy::new(transfer)?;
        // SAFETY: the transfer borrows both memories.
        unsafe { copy.run() }.map(|()| Started::Done)
    }
}
