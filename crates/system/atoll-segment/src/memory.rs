//! The one contiguous region that holds a program's segment, as it is mapped in this process.
//!
//! A backend owns it; every other part works through its `Window`.

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, RawFd};

use crate::backend::{SegmentError, machine};
use crate::window::Window;

/// A mapping that ends with its owner.
#[derive(Debug)]
pub(crate) struct Memory {
    base: *mut u8,
    bytes: usize,
    shared: bool,
}

// SAFETY: the value is an address range; the program alone uses what is in it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// Huge pages on x86-64, in bytes.
pub(crate) const HUGE: usize = 2 << 20;

impl Memory {
    /// Maps `bytes` of zeros at `address`, or anywhere on a boundary of huge pages. The mapping has huge pages where the kernel
    /// has them.
    ///
    /// # Errors
    /// The kernel's error; EEXIST if something is mapped at `address`.
    pub(crate) fn private(address: Option<usize>, bytes: usize) -> io::Result<Memory> {
        let (at, fixed, span) = match address {
            Some(at) => (at, libc::MAP_FIXED_NOREPLACE, bytes),
            None => (0, 0, bytes + HUGE),
        };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        // SAFETY: a new mapping that replaces nothing.
        let base = unsafe { libc::mmap(at as *mut libc::c_void, span, all, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mut memory = Memory { base: base.cast(), bytes: span, shared: false };
        if address.is_none() {
            memory.align(bytes);
        }
        // SAFETY: the mapping just made; without huge pages it stays as it is.
        unsafe { libc::madvise(memory.base.cast(), memory.bytes, libc::MADV_HUGEPAGE) };
        Ok(memory)
    }

    /// Maps a file that another process maps, too.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn shared(file: RawFd, bytes: usize) -> io::Result<Memory> {
        let all = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping that replaces nothing.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, all, libc::MAP_SHARED, file, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping just made; where shared memory has no huge pages it stays as it is.
        unsafe { libc::madvise(base, bytes, libc::MADV_HUGEPAGE) };
        Ok(Memory { base: base.cast(), bytes, shared: true })
    }

    /// Unmaps what lies before the first boundary of huge pages, and what lies behind `bytes` from there.
    fn align(&mut self, bytes: usize) {
        let before = (self.base as usize).next_multiple_of(HUGE) - self.base as usize;
        let behind = self.bytes - before - bytes;
        // SAFETY: both ends of our own mapping, which nothing uses yet.
        unsafe {
            if before > 0 {
                libc::munmap(self.base.cast(), before);
            }
            if behind > 0 {
                libc::munmap(self.base.wrapping_add(before + bytes).cast(), behind);
            }
        }
        self.base = self.base.wrapping_add(before);
        self.bytes = bytes;
    }

    /// Returns the address of the memory's beginning in this process.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns the memory's size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the window of `low..limit`, whose offset 0 is `origin` bytes into this memory, or before it if negative.
    ///
    /// The memory must be kept for as long as the window is used.
    pub(crate) fn window(&self, origin: i64, low: u64, limit: u64) -> Window {
        let inside = low as i64 + origin >= 0 && limit as i64 + origin <= self.bytes as i64;
        assert!(inside, "the window is larger than its memory");
        // SAFETY: inside the mapping, which is readable and writable.
        unsafe { Window::new(self.base.wrapping_offset(origin as isize), low, limit) }
    }

    /// Returns how ranges of this memory are made zeros again, which gives their pages back.
    pub(crate) fn discard(&self) -> Discard {
        if self.shared { Discard::Remove } else { Discard::Forget }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping; its owner ends after the cores.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// Makes a file in memory that a child process has, too, by the same number.
pub(crate) fn file(name: &std::ffi::CStr) -> Result<File, SegmentError> {
    // SAFETY: a C string; no flags, as the child is to have it.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), 0) };
    if fd < 0 {
        return Err(machine("making a file in memory")(io::Error::last_os_error()));
    }
    // SAFETY: a fresh descriptor.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// The ways in which pages are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discard {
    /// Private memory: the kernel forgets the pages.
    Forget,
    /// A shared file: a hole is punched into it.
    Remove,
}

impl Discard {
    /// Makes the `len` bytes at offset `at` zeros.
    pub(crate) fn zero(self, window: &Window, at: u64, len: u64) {
        let Ok(from) = window.address(at, len) else { return };
        let page = 4096;
        let (start, end) = (from as usize, from as usize + len as usize);
        let (first, last) = (start.next_multiple_of(page), end & !(page - 1));
        let fill = |from: usize, to: usize| {
            // SAFETY: within the range that was checked.
            unsafe { std::ptr::write_bytes(from as *mut u8, 0, to - from) };
        };
        if first >= last {
            fill(start, end);
            return;
        }
        fill(start, first);
        fill(last, end);
        let advice = if self == Discard::Forget { libc::MADV_DONTNEED } else { libc::MADV_REMOVE };
        // SAFETY: whole pages of the segment that the program has given up.
        if unsafe { libc::madvise(first as *mut libc::c_void, last - first, advice) } != 0 {
            fill(first, last);
        }
    }
}
