//! Descriptors that are closed without libc.
//!
//! Threads of the program's open and close files of far memory within a fault. libc's `close`, which the standard library calls, is a
//! point at which a cancelled thread ends: glibc would unwind it out of the handler of the fault.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::sys;

/// A descriptor that is closed by the kernel's own call when it is dropped.
#[derive(Debug)]
pub(crate) struct Descriptor(ManuallyDrop<OwnedFd>);

impl From<OwnedFd> for Descriptor {
    fn from(fd: OwnedFd) -> Self {
        Self(ManuallyDrop::new(fd))
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        sys::close(self.as_raw_fd());
    }
}
