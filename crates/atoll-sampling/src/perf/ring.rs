//! The buffer an event's records come through, shared with the kernel.
//!
//! Used by `event` only. The kernel writes and moves `data_head`; we read and move `data_tail`.

use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::perf_event_mmap_page;

const PAGE: usize = 4096;

/// A mapped buffer.
#[derive(Debug)]
pub(super) struct Ring {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is this value's alone; the kernel is the only other user.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the buffer of event `fd` with `bytes` (a power of two of at least a page) for records.
    pub(super) fn map(fd: RawFd, bytes: usize) -> io::Result<Ring> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping of the event's buffer.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), PAGE + bytes, protection, libc::MAP_SHARED, fd, 0)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Ring { at, bytes })
    }

    fn counter(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the first page is a perf_event_mmap_page, whose 64-bit counters are aligned and shared with the kernel.
        unsafe { AtomicU64::from_ptr(self.at.as_ptr().add(offset).cast()) }
    }

    /// Appends what the kernel wrote since the last time.
    pub(super) fn take(&mut self, to: &mut Vec<u8>) -> usize {
        // Acquire: pairs with the kernel's barrier between the records and the head.
        let head = self.counter(std::mem::offset_of!(perf_event_mmap_page, data_head)).load(Ordering::Acquire);
        let tail = self.counter(std::mem::offset_of!(perf_event_mmap_page, data_tail));
        let from = tail.load(Ordering::Relaxed);
        let len = (head.wrapping_sub(from) as usize).min(self.bytes);
        let start = from as usize & (self.bytes - 1);
        let first = len.min(self.bytes - start);
        // SAFETY: both pieces lie within the mapped buffer, and the kernel does not write between tail and head.
        unsafe {
            let data = self.at.as_ptr().add(PAGE);
            to.extend_from_slice(std::slice::from_raw_parts(data.add(start), first));
            to.extend_from_slice(std::slice::from_raw_parts(data, len - first));
        }
        // Release: the kernel may write here again only after we have read.
        tail.store(head, Ordering::Release);
        len
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and used by nobody else.
        unsafe { libc::munmap(self.at.as_ptr().cast(), PAGE + self.bytes) };
    }
}
