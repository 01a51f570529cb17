//! Finds which pages of a process are there, and which were written, with the kernel's PAGEMAP_SCAN.
//!
//! The `writes` sampler uses this. The constants are those of Linux 6.7's `linux/fs.h` and `linux/userfaultfd.h`, which older
//! headers lack.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use linux_raw_sys::general::{
    PAGE_IS_PFNZERO, PAGE_IS_PRESENT, PAGE_IS_WRITTEN, PM_SCAN_CHECK_WPASYNC, PM_SCAN_WP_MATCHING,
    page_region, pm_scan_arg,
};

use crate::sampler::SamplerError;
use crate::threads::{Threads, What};

/// The number of bytes of a page.
pub const PAGE: u64 = 4096;

const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFD_API: u64 = 0xaa;
const FEATURE_WP_ASYNC: u64 = 1 << 15;
const REGISTER_MODE_WP: u64 = 1 << 1;

const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const SCAN_WP_MATCHING: u64 = PM_SCAN_WP_MATCHING as u64;
const SCAN_CHECK_WPASYNC: u64 = PM_SCAN_CHECK_WPASYNC as u64;
const IS_WRITTEN: u64 = PAGE_IS_WRITTEN as u64;
const IS_PRESENT: u64 = PAGE_IS_PRESENT as u64;
const IS_PFNZERO: u64 = PAGE_IS_PFNZERO as u64;

/// The least size of a mapping, in bytes, that is protected. Smaller ones are guards and small parts of libraries and stacks.
const LEAST_MAPPING: u64 = 64 << 10;
/// The most stretches that one call returns.
const REGIONS: usize = 512;
/// The most stretches of a process's pages that are kept.
const MOST_RANGES: usize = 1 << 16;

/// A range of addresses, the end not included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first address.
    pub start: u64,
    /// The address behind the last.
    pub end: u64,
}

impl Range {
    /// Returns the number of pages in the range.
    pub fn pages(&self) -> u64 {
        self.end.saturating_sub(self.start) / PAGE
    }
}

/// `struct uffdio_api`.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

/// A place for a stretch that the kernel tells of.
const NO_REGION: page_region = page_region { start: 0, end: 0, categories: 0 };

/// Puts a fresh userfaultfd into its asynchronous mode of write-protection.
///
/// # Errors
/// This kernel does not have that mode.
pub fn begin(fault: &OwnedFd) -> Result<(), SamplerError> {
    let mut api = Api { api: UFFD_API, features: FEATURE_WP_ASYNC, ioctls: 0 };
    // SAFETY: the ioctl reads and writes the structure.
    if unsafe { libc::ioctl(fault.as_raw_fd(), UFFDIO_API, &raw mut api) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(SamplerError::Absent(format!(
        "this kernel has no asynchronous write-protection, which came with Linux 6.7 ({error})"
    )))
}

/// Registers a range so that it can be protected; returns `false` where the kernel refuses.
pub fn register(fault: &OwnedFd, range: Range) -> bool {
    let mut register =
        Register { start: range.start, len: range.end - range.start, mode: REGISTER_MODE_WP, ioctls: 0 };
    // SAFETY: the ioctl reads and writes the structure; it changes how another process's writes are accounted, not what memory
    // holds.
    unsafe { libc::ioctl(fault.as_raw_fd(), UFFDIO_REGISTER, &raw mut register) == 0 }
}

/// Returns a descriptor of this process for the file that has number `fd` in process `pid`.
///
/// # Errors
/// The kernel refuses: the process is gone, or another user's.
pub fn take_descriptor(pid: u32, fd: i32) -> Result<OwnedFd, SamplerError> {
    let failed = |what| SamplerError::Kernel { what, error: io::Error::last_os_error() };
    // SAFETY: plain system calls that make descriptors, which are taken over here.
    unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, pid, 0) as i32;
        if process < 0 {
            return Err(failed("pidfd_open"));
        }
        let process = OwnedFd::from_raw_fd(process);
        let own = libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) as i32;
        if own < 0 { Err(failed("pidfd_getfd")) } else { Ok(OwnedFd::from_raw_fd(own)) }
    }
}

/// Returns the ranges of a process that may be write-protected: its private data, without the main thread's stack.
pub fn protectable(pid: u32) -> Vec<Range> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    text.lines().filter_map(|line| data(pid, line)).collect()
}

fn data(pid: u32, line: &str) -> Option<Range> {
    let rights = line.split(' ').nth(1)?;
    if rights != "rw-p" {
        return None;
    }
    match Threads::mapping(pid, line)? {
        What::Mapped { start, bytes, path, .. } if bytes >= LEAST_MAPPING && path != "[stack]" => {
            Some(Range { start, end: start.checked_add(bytes)? })
        }
        _ => None,
    }
}

/// The pages of one process.
#[derive(Debug)]
pub struct PageMap {
    pid: u32,
    file: File,
}

impl PageMap {
    /// Opens the page map of process `pid`.
    ///
    /// # Errors
    /// The process is gone, or another user's.
    pub fn open(pid: u32) -> Result<Self, SamplerError> {
        let file = File::open(format!("/proc/{pid}/pagemap"));
        Ok(Self { pid, file: file.map_err(|error| SamplerError::Kernel { what: "opening pagemap", error })? })
    }

    /// Returns the process that this page map is of.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Tries whether this kernel knows the call at all.
    ///
    /// # Errors
    /// The kernel does not know it.
    pub fn try_out(&self) -> Result<(), SamplerError> {
        let range = Range { start: PAGE, end: 2 * PAGE };
        match self.scan(range, 0, IS_PRESENT, 0, &mut [NO_REGION]) {
            Ok(_) => Ok(()),
            Err(error) => Err(SamplerError::Absent(format!(
                "this kernel has no PAGEMAP_SCAN, which came with Linux 6.7 ({error})"
            ))),
        }
    }

    /// Appends the stretches of a range that have pages; returns `false` where the process is gone.
    pub fn populated(&self, range: Range, to: &mut Vec<Range>) -> bool {
        self.each(range, 0, IS_PRESENT, 0, &mut |stretch| {
            if to.len() < MOST_RANGES {
                to.push(stretch);
            }
        })
    }

    /// Calls `each` with the address of each page of a range that was written since it was protected.
    pub fn written(&self, range: Range, each: &mut impl FnMut(u64)) {
        // A page that was only read and is all zeros is not protected either.
        self.each(range, SCAN_CHECK_WPASYNC, IS_WRITTEN | IS_PFNZERO, IS_PFNZERO, &mut |stretch| {
            (stretch.start..stretch.end).step_by(PAGE as usize).for_each(&mut *each);
        });
    }

    /// Write-protects the pages of a range; returns `false` where that is not possible.
    pub fn protect(&self, range: Range) -> bool {
        let flags = SCAN_WP_MATCHING | SCAN_CHECK_WPASYNC;
        self.each(range, flags, IS_WRITTEN | IS_PRESENT, 0, &mut |_| {})
    }

    fn each(&self, range: Range, flags: u64, mask: u64, inverted: u64, each: &mut dyn FnMut(Range)) -> bool {
        let mut regions = [NO_REGION; REGIONS];
        let mut start = range.start;
        while start < range.end {
            let Ok((n, end)) = self.scan(Range { start, ..range }, flags, mask, inverted, &mut regions)
            else {
                return false;
            };
            for region in &regions[..n] {
                each(Range { start: region.start, end: region.end });
            }
            if end <= start {
                return false;
            }
            start = end;
        }
        true
    }

    /// Makes one call; returns the number of regions, and the address up to which it went.
    fn scan(
        &self,
        range: Range,
        flags: u64,
        mask: u64,
        inverted: u64,
        regions: &mut [page_region],
    ) -> io::Result<(usize, u64)> {
        let mut scan = pm_scan_arg {
            size: size_of::<pm_scan_arg>() as u64,
            flags,
            start: range.start,
            end: range.end,
            walk_end: 0,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            max_pages: 0,
            category_inverted: inverted,
            category_mask: mask,
            category_anyof_mask: 0,
            return_mask: mask,
        };
        // SAFETY: the kernel writes at most `vec_len` regions, and the structure's `walk_end`.
        let n = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &raw mut scan) };
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(((n as usize).min(regions.len()), scan.walk_end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_private_data_is_protected() {
        let line = |rights: &str, path: &str| {
            format!("7f0000000000-7f0000100000 {rights} 00000000 00:00 0   {path}")
        };
        let all = Some(Range { start: 0x7f00_0000_0000, end: 0x7f00_0010_0000 });
        assert_eq!(data(1, &line("rw-p", "")), all);
        assert_eq!(data(1, &line("rw-p", "/bin/x")), all);
        for (rights, path) in [("r--p", ""), ("rw-s", ""), ("rwxp", ""), ("rw-p", "[stack]")] {
            assert_eq!(data(1, &line(rights, path)), None);
        }
        assert_eq!(data(1, "7f0000000000-7f0000001000 rw-p 00000000 00:00 0"), None);
    }
}
