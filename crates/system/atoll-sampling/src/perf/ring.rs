//! The ring buffer through which an event's records come, shared with the kernel.
//!
//! Only `event` uses it. The kernel writes and moves `data_head`; this side reads and moves `data_tail`.

use std::io;
use std::mem::offset_of;
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
    /// The second buffer, and its number of bytes (a power of two).
    aux: Option<(NonNull<u8>, usize)>,
}

// SAFETY: the mapping is this value's alone; the kernel is the only other user.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the buffer of event `fd` with `bytes` (a power of two of at least a page) for records, and a second buffer of
    /// `aux_bytes` where that is not 0.
    pub(super) fn map(fd: RawFd, bytes: usize, aux_bytes: usize) -> io::Result<Ring> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping of the event's buffer.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), PAGE + bytes, protection, libc::MAP_SHARED, fd, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut ring = Ring { at, bytes, aux: None };
        if aux_bytes > 0 {
            ring.map_aux(fd, aux_bytes)?;
        }
        Ok(ring)
    }

    fn map_aux(&mut self, fd: RawFd, bytes: usize) -> io::Result<()> {
        let offset = PAGE + self.bytes;
        self.counter(offset_of!(perf_event_mmap_page, aux_offset)).store(offset as u64, Ordering::Relaxed);
        self.counter(offset_of!(perf_event_mmap_page, aux_size)).store(bytes as u64, Ordering::Relaxed);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping of the event's second buffer, at the offset that was announced.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, offset as i64)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        self.aux = NonNull::new(at.cast()).map(|at| (at, bytes));
        Ok(())
    }

    fn counter(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the first page is a perf_event_mmap_page, whose 64-bit counters are aligned and shared with the kernel.
        unsafe { AtomicU64::from_ptr(self.at.as_ptr().add(offset).cast()) }
    }

    /// Appends what the kernel wrote since the last call.
    pub(super) fn take(&mut self, to: &mut Vec<u8>) -> usize {
        // SAFETY: the data begins behind the first page and has this many bytes.
        let data = unsafe { self.at.as_ptr().add(PAGE) };
        let (head, tail) =
            (offset_of!(perf_event_mmap_page, data_head), offset_of!(perf_event_mmap_page, data_tail));
        // SAFETY: as above.
        unsafe { self.take_from(data, self.bytes, head, tail, to) }
    }

    /// Appends what came to the second buffer since the last call.
    pub(super) fn take_aux(&mut self, to: &mut Vec<u8>) {
        if let Some((at, bytes)) = self.aux {
            let (head, tail) =
                (offset_of!(perf_event_mmap_page, aux_head), offset_of!(perf_event_mmap_page, aux_tail));
            // SAFETY: the second buffer is mapped there with this many bytes.
            unsafe { self.take_from(at.as_ptr(), bytes, head, tail, to) };
        }
    }

    /// # Safety
    /// `data` must be a buffer of `bytes`, a power of two, whose counters are at `head` and `tail` of the first page.
    unsafe fn take_from(
        &self,
        data: *const u8,
        bytes: usize,
        head: usize,
        tail: usize,
        to: &mut Vec<u8>,
    ) -> usize {
        // Acquire: pairs with the kernel's barrier between the records and the head.
        let head = self.counter(head).load(Ordering::Acquire);
        let tail = self.counter(tail);
        let from = tail.load(Ordering::Relaxed);
        let len = (head.wrapping_sub(from) as usize).min(bytes);
        let start = from as usize & (bytes - 1);
        let first = len.min(bytes - start);
        // SAFETY: both pieces lie within the buffer, and the kernel does not write between tail and head.
        unsafe {
            to.extend_from_slice(std::slice::from_raw_parts(data.add(start), first));
            to.extend_from_slice(std::slice::from_raw_parts(data, len - first));
        }
        // Release: the kernel may write here again only after we have read.
        tail.store(head, Ordering::Release);
        len
    }

    /// Returns the kernel's clock, from the time stamp counter and the factors in the first page.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn kernel_clock(&self) -> Option<u64> {
        const TIME_ZERO: u64 = 1 << 5;
        let word = |offset| self.counter(offset).load(Ordering::Relaxed);
        if word(offset_of!(perf_event_mmap_page, __bindgen_anon_1)) & TIME_ZERO == 0 {
            return None;
        }
        // The width, the shift and the factor share a word.
        let packed = word(offset_of!(perf_event_mmap_page, pmc_width));
        let (shift, factor) = ((packed >> 16) as u16 & 63, packed >> 32);
        // SAFETY: every x86-64 processor has the instruction.
        let ticks = unsafe { core::arch::x86_64::_rdtsc() };
        let passed = (u128::from(ticks) * u128::from(factor)) >> shift;
        Some(word(offset_of!(perf_event_mmap_page, time_zero)).wrapping_add(passed as u64))
    }

    /// Returns `None`: the kernel's clock is not known on this processor.
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn kernel_clock(&self) -> Option<u64> {
        None
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with these lengths, and used by nobody else.
        unsafe {
            if let Some((at, bytes)) = self.aux {
                libc::munmap(at.as_ptr().cast(), bytes);
            }
            libc::munmap(self.at.as_ptr().cast(), PAGE + self.bytes);
        }
    }
}
