//! Filling a process's page table: every page it may touch is entered before it runs, so that no access faults later.
//!
//! Called by the runtime in each worker when it is set up, and again in a process that has cloned a worker (the kernel
//! takes away its right to write to its private pages then). Stands on `MADV_POPULATE_READ` and `_WRITE` (Linux 5.14).

use std::io::{BufRead, BufReader};
use std::ops::Range;

use crate::sys::{self, Errno};

/// Linux 6.1; not in every libc.
pub const MADV_COLLAPSE: i32 = 25;
const MADV_POPULATE_READ: i32 = 22;
const MADV_POPULATE_WRITE: i32 = 23;
/// A mapping larger than this which is no segment may be sparse: what lies at its end, where stacks begin, is filled.
const MOST: usize = 64 << 20;

/// `madvise`.
///
/// # Errors
/// The kernel's.
pub fn advise(at: usize, len: usize, advice: i32) -> Result<(), Errno> {
    // SAFETY: none of the advices used here changes what memory holds.
    unsafe { sys::syscall(libc::SYS_madvise, [at, len, advice as usize, 0, 0, 0]) }.map(drop)
}

/// Enters every page of `at..at + len` into the page table, writable; pages that do not exist are made.
///
/// # Errors
/// The kernel's; `EFAULT` or `ENOMEM` where there is no page for it.
pub fn write(at: usize, len: usize) -> Result<(), Errno> {
    loop {
        match advise(at, len, MADV_POPULATE_WRITE) {
            Err(Errno(libc::EINTR | libc::EAGAIN)) => {}
            done => return done,
        }
    }
}

/// What [`all`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Filled {
    /// Bytes that could not be locked in memory.
    pub unlocked: usize,
}

/// A mapping as far as it matters here.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Mapping {
    range: Range<usize>,
    readable: bool,
    writable: bool,
    shared: bool,
    /// Made of huge pages, all of which exist (`make`).
    segment: bool,
}

impl Mapping {
    fn parse(line: &str) -> Option<Mapping> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let permissions = words.next()?.as_bytes();
        Some(Mapping {
            range: number(start)?..number(end)?,
            readable: permissions.first() == Some(&b'r'),
            writable: permissions.get(1) == Some(&b'w'),
            shared: permissions.get(3) == Some(&b's'),
            segment: line.contains("/memfd:atoll-segment"),
        })
    }
}

/// All mappings but those in `but`, read a line at a time: what is allocated here stays.
fn mappings(but: &[Range<usize>]) -> Vec<Mapping> {
    let Ok(file) = std::fs::File::open("/proc/self/maps") else { return Vec::new() };
    let mut reader = BufReader::with_capacity(4096, file);
    let mut line = String::new();
    // Room first: growing it would change what is being read.
    let mut mappings = Vec::with_capacity(512);
    while reader.read_line(&mut line).is_ok_and(|n| n > 0) {
        let found = Mapping::parse(&line).filter(|m| !but.iter().any(|b| b.contains(&m.range.start)));
        mappings.extend(found);
        line.clear();
    }
    mappings
}

/// Which mappings are to be filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// All.
    All,
    /// Those the kernel makes read-only when the process is cloned.
    PrivateWritable,
}

/// Fills and locks what is mapped in this process, but for what begins in one of `but`.
pub fn all(which: Which, but: &[Range<usize>]) -> Filled {
    let mut filled = Filled::default();
    for m in mappings(but) {
        if !m.readable || (which == Which::PrivateWritable && (m.shared || !m.writable)) {
            continue;
        }
        let least = if m.segment { 0 } else { m.range.end.saturating_sub(MOST) };
        let at = m.range.start.max(least);
        let len = m.range.end - at;
        // What has no pages to enter (the kernel's own mappings) is refused, and touched below.
        let advice = if m.writable { MADV_POPULATE_WRITE } else { MADV_POPULATE_READ };
        let filling = loop {
            match advise(at, len, advice) {
                Err(Errno(libc::EINTR | libc::EAGAIN)) => {}
                done => break done,
            }
        };
        // A file that ends before its mapping does is filled up to its end; as far as that, there is nothing to lock.
        if filling.is_err() {
            continue;
        }
        // SAFETY: values only.
        if unsafe { sys::syscall(libc::SYS_mlock, [at, len, 0, 0, 0, 0]) }.is_err() {
            filled.unlocked += len;
        }
    }
    flush_translations();
    touch_clocks();
    filled
}

/// Makes every CPU forget the translations it keeps of this process. Filling makes pages writable again without telling the CPUs, as
/// the kernel may: a CPU that has read such a page since the process was cloned keeps a read-only translation, and a write
/// by it faults once more though nothing is missing.
fn flush_translations() {
    /// The kernel flushes single translations up to 33 pages (`tlb_single_page_flush_ceiling`) and all of them above.
    const LEN: usize = 256 * 4096;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, which nobody else knows and which is unmapped below.
    let Ok(at) = (unsafe { sys::mmap(0, LEN, libc::PROT_READ, flags, -1, 0) }) else { return };
    // The zero page everywhere: translations to be taken away, without memory.
    let _ = advise(at, LEN, MADV_POPULATE_READ);
    // SAFETY: the mapping made above.
    let _ = unsafe { sys::syscall(libc::SYS_munmap, [at, LEN, 0, 0, 0, 0]) };
}

/// The kernel's clock pages cannot be filled from outside: reading each clock brings them.
fn touch_clocks() {
    for clock in
        [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC, libc::CLOCK_MONOTONIC_RAW, libc::CLOCK_MONOTONIC_COARSE]
    {
        // SAFETY: time is valid for writes.
        unsafe {
            let mut time: libc::timespec = std::mem::zeroed();
            libc::clock_gettime(clock, &raw mut time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_read() {
        let m =
            Mapping::parse("7f00-7f10 rw-s 00000000 00:01 1024  /memfd:atoll-segment (deleted)\n").unwrap();
        assert_eq!(
            m,
            Mapping { range: 0x7f00..0x7f10, readable: true, writable: true, shared: true, segment: true }
        );
        let m = Mapping::parse("10-20 ---p 0 00:00 0").unwrap();
        assert!(!m.readable && !m.writable && !m.shared && !m.segment);
        for line in ["", "x", "10 rw", "10-zz rw-p", "-"] {
            assert_eq!(Mapping::parse(line), None, "{line}");
        }
    }

    #[test]
    fn what_is_filled_does_not_fault() {
        let len = 4 << 20;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let at = unsafe { sys::mmap(0, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }.unwrap();
        write(at, len).unwrap();
        let faults = crate::segment::faults::of_thread();
        for page in (at..at + len).step_by(4096) {
            // SAFETY: mapped above.
            unsafe { (page as *mut u8).write_volatile(1) };
        }
        assert!(crate::segment::faults::of_thread().minor - faults.minor < 8);
        // SAFETY: ours.
        unsafe { libc::munmap(at as *mut libc::c_void, len) };
    }
}
