//! The engine for files that waits for each call: `pread` and `pwrite`, finished when `start` returns.
//!
//! The engine is fast for data in the page cache, and for small ranges. `uring.rs` has many transfers under way at once, and
//! falls back on this one where the kernel refuses it.

use std::os::fd::{AsRawFd, RawFd};

use crate::bulk::engine::{Engine, Started};
use crate::bulk::error::CopyError;
use crate::bulk::memory::{Kind, Memory};
use crate::bulk::transfer::{Ends, Transfer};

/// The most bytes of one call; the kernel's own limit is a little below 2 GiB.
pub(crate) const MOST: u64 = 1 << 30;

/// The transfer of a range between a file and memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileCopy {
    /// Whether bytes go from the file to memory.
    pub(crate) reading: bool,
    pub(crate) file: RawFd,
    pub(crate) offset: u64,
    pub(crate) memory: *mut u8,
    pub(crate) bytes: u64,
}

impl FileCopy {
    /// The file's part of a transfer between a file and a mapping.
    pub(crate) fn new(transfer: &Transfer<'_>) -> Result<FileCopy, CopyError> {
        let unreachable = || CopyError::unreachable(transfer);
        let Ends { reading, address, far, far_offset, .. } = transfer.ends().ok_or_else(unreachable)?;
        let (file, begin) = far.in_file().ok_or_else(unreachable)?;
        let (offset, bytes) = (begin + far_offset, transfer.bytes());
        Ok(FileCopy { reading, file: file.as_raw_fd(), offset, memory: address, bytes })
    }

    /// The part that is left after its first `done` bytes.
    pub(crate) fn rest(self, done: u64) -> FileCopy {
        let done = done.min(self.bytes);
        FileCopy {
            offset: self.offset + done,
            memory: self.memory.wrapping_add(done as usize),
            bytes: self.bytes - done,
            ..self
        }
    }

    /// The error for a call that copied 0 bytes.
    pub(crate) fn nothing(&self) -> CopyError {
        if self.reading { CopyError::EndOfFile } else { CopyError::NoSpace }
    }

    /// The error for a call that failed.
    pub(crate) fn error(&self, code: i32) -> CopyError {
        match code {
            libc::ENOSPC | libc::EDQUOT => CopyError::NoSpace,
            // The file is in memory, with a seal against growing or writing.
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

    /// Copies the range, call by call.
    ///
    /// # Safety
    /// The transfer's two memories still live.
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

/// The engine: copies between a file and a mapping, in either direction.
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
