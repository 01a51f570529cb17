//! Memory that a measurement maps for itself.

use atoll_memory::sys;

use super::{BenchError, kernel};

/// A mapping that is unmapped when this value is dropped.
pub(super) struct Mapping {
    at: usize,
    len: usize,
}

impl Mapping {
    /// Maps private memory of `len` bytes with `advice` for all of it, a `MADV_…`; no page is touched.
    pub(super) fn new(len: usize, advice: i32) -> Result<Self, BenchError> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping where the kernel likes it, and advice for nothing else.
        unsafe {
            let at = sys::mmap(0, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
                .map_err(kernel("mmap"))?;
            libc::madvise(at as *mut _, len, advice);
            Ok(Self { at, len })
        }
    }

    /// Maps memory of `len` bytes that processes share, of pages of 4K.
    pub(super) fn shared(len: usize) -> Result<Self, BenchError> {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping where the kernel likes it.
        let at = unsafe { sys::mmap(0, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        Ok(Self { at: at.map_err(kernel("mmap"))?, len })
    }

    /// Returns the mapping's address.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Returns the mapping's bytes.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: a mapping of our own; the kernel fills it with zeros.
        unsafe { std::slice::from_raw_parts_mut(self.at as *mut u8, self.len) }
    }

    /// Asks for the memory of NUMA node `node`; returns `false` where the kernel refuses.
    pub(super) fn bind(&self, node: u32) -> bool {
        const MPOL_BIND: usize = 2;
        let mask = [1_u64 << (node % 64)];
        // SAFETY: the mapping is ours; the mask has as many bits as are told (the kernel looks at one less).
        let done = unsafe {
            libc::syscall(libc::SYS_mbind, self.at, self.len, MPOL_BIND, mask.as_ptr(), 65_usize, 0_u32)
        };
        node < 64 && done == 0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `new` or `shared`, used by nobody else.
        unsafe { libc::munmap(self.at as *mut _, self.len) };
    }
}
