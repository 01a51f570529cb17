//! What the kernel says of a page table that threads share: which pages are mapped.
//!
//! Used by `leaving`, which asks for pages that are about to leave, where `kernel_maps` dropped their mappings before. The kernel's scan
//! of the table tells of hundreds of pages by one call, as stretches; before Linux 6.7 its entries are read, fewer at once.
//!
//! Rules: no allocation, no locks the program could hold, no arena access, no printing.

use std::sync::atomic::{AtomicBool, Ordering};

use linux_raw_sys::general::{PAGE_IS_HUGE, PAGE_IS_PRESENT, page_region, pm_scan_arg};

use crate::sys;

/// Pages of the kernel that are scanned together at most.
const LOOK: usize = 512;
/// Pages whose entries are read together at most.
const READ: usize = 64;
/// Stretches that one scan returns at most.
const STRETCHES: usize = 128;

/// `PAGEMAP_SCAN`.
const SCAN: u64 = 0xc060_6610;
/// The category of pages that are mapped.
const IS_PRESENT: u64 = PAGE_IS_PRESENT as u64;
/// The category of pages that are part of a mapped huge page.
const IS_HUGE: u64 = PAGE_IS_HUGE as u64;

/// The kernel's account of the process's page table.
pub(super) struct Mapped {
    /// `/proc/self/pagemap`.
    file: i32,
    /// Whether the kernel has no scan.
    is_read: AtomicBool,
}

impl Mapped {
    /// `None` where the kernel does not say.
    pub(super) fn open() -> Option<Mapped> {
        sys::open_page_map().ok().map(|file| Mapped { file, is_read: AtomicBool::new(false) })
    }

    /// Whether a huge page is mapped at `at`, or is now that its first bytes are touched.
    pub(super) fn is_huge(&self, at: usize) -> bool {
        // SAFETY: maps memory as a read would, whose content stays what it is.
        let touched = unsafe {
            sys::syscall(libc::SYS_madvise, [at, 4096, libc::MADV_POPULATE_READ as usize, 0, 0, 0])
        };
        let mut is_huge = false;
        touched.is_ok() && self.scan(at >> 12, 1, IS_HUGE, |_, _| is_huge = true).is_some() && is_huge
    }

    /// The stretches of mapped pages from page `first` on, `count` pages at most, and how many pages the answer is about.
    fn scan(
        &self,
        first: usize,
        count: usize,
        kind: u64,
        mut each: impl FnMut(usize, usize),
    ) -> Option<usize> {
        let mut found = [page_region { start: 0, end: 0, categories: 0 }; STRETCHES];
        let start = (first << 12) as u64;
        let mut scan = pm_scan_arg {
            size: size_of::<pm_scan_arg>() as u64,
            flags: 0,
            start,
            end: start + (count << 12) as u64,
            walk_end: 0,
            vec: found.as_mut_ptr() as u64,
            vec_len: STRETCHES as u64,
            max_pages: 0,
            category_inverted: 0,
            category_mask: kind,
            category_anyof_mask: 0,
            return_mask: kind,
        };
        // SAFETY: the kernel's structure, with as many stretches as it says.
        let stretches = unsafe { sys::ioctl(self.file, SCAN, &mut scan) }.ok()?;
        for stretch in found.iter().take(stretches) {
            each((stretch.start >> 12) as usize - first, (stretch.end >> 12) as usize - first);
        }
        Some((scan.walk_end.saturating_sub(start) >> 12) as usize)
    }

    /// The same by the table's entries.
    fn read(&self, first: usize, count: usize, mut each: impl FnMut(usize, usize)) -> usize {
        // Bit 63 of an entry says that the page is mapped.
        let mut entries = [0_u64; READ];
        let wanted = count.min(READ) * 8;
        // SAFETY: the entries are that long.
        let read =
            unsafe { sys::pread_some(self.file, entries.as_mut_ptr().cast(), wanted, first as u64 * 8) };
        let known = read.unwrap_or(0) / 8;
        for (page, _) in entries[..known].iter().enumerate().filter(|(_, entry)| **entry >> 63 != 0) {
            each(page, page + 1);
        }
        known
    }
}

/// The part of the page table that was looked at last: pages of one batch of victims are neighbours often.
pub(super) struct Look<'a> {
    table: &'a Mapped,
    first: usize,
    count: usize,
    /// A bit for each page from `first` on: whether it is mapped.
    mapped: [u64; LOOK / 64],
}

impl<'a> Look<'a> {
    pub(super) fn new(table: &'a Mapped) -> Look<'a> {
        Look { table, first: 0, count: 0, mapped: [0; LOOK / 64] }
    }

    /// Whether a part of `at..at + len`, whole pages, is mapped. Where the kernel does not say, nothing is. `later`: addresses that are asked
    /// for next, ascending as far as they are neighbours.
    pub(super) fn is_mapped(&mut self, at: usize, len: usize, later: impl Iterator<Item = usize>) -> bool {
        let (first, end) = (at >> 12, (at + len) >> 12);
        if first < self.first || end > self.first + self.count {
            let near = later.take_while(|&next| next > at && (next + len) >> 12 <= first + LOOK).last();
            self.look(first, near.map_or(end, |last| (last + len) >> 12) - first);
        }
        let known = self.first + self.count;
        (first..end.min(known))
            .map(|page| page - self.first)
            .any(|bit| self.mapped[bit / 64] >> (bit % 64) & 1 != 0)
    }

    /// Looks at `count` pages from `first` on, or as many of them as the kernel tells of at once.
    fn look(&mut self, first: usize, count: usize) {
        let mapped = &mut self.mapped;
        *mapped = [0; LOOK / 64];
        let mut each = |start: usize, end: usize| {
            for bit in start..end.min(LOOK) {
                mapped[bit / 64] |= 1 << (bit % 64);
            }
        };
        let count = count.min(LOOK);
        let scanned = if self.table.is_read.load(Ordering::Relaxed) {
            None
        } else {
            self.table.scan(first, count, IS_PRESENT, &mut each)
        };
        self.first = first;
        self.count = scanned.unwrap_or_else(|| {
            self.table.is_read.store(true, Ordering::Relaxed);
            self.table.read(first, count, &mut each)
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const PAGES: usize = 600;

    /// Memory of a file, every third page of which is mapped, and the table.
    fn every_third_mapped() -> (usize, Mapped) {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping of the test's own.
        let at = unsafe { sys::mmap(0, PAGES << 12, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }
            .expect("a new mapping");
        for page in (0..PAGES).step_by(3) {
            // SAFETY: the test's mapping.
            unsafe { ((at + (page << 12)) as *mut u8).write_volatile(1) };
        }
        (at, Mapped::open().expect("the kernel's account"))
    }

    #[test]
    fn every_mapped_page_is_found_by_scans_and_by_entries() {
        let (at, table) = every_third_mapped();
        for is_read in [false, true] {
            table.is_read.store(is_read, Ordering::Relaxed);
            let mut look = Look::new(&table);
            let address = |page: usize| at + (page << 12);
            let found: Vec<bool> = (0..PAGES)
                .map(|page| look.is_mapped(address(page), 4096, (page + 1..PAGES).map(address)))
                .collect();
            assert_eq!(found, (0..PAGES).map(|page| page % 3 == 0).collect::<Vec<_>>());
            // Pages of 64K: one mapped page of sixteen is enough, and none of what lies elsewhere is mapped.
            assert!(Look::new(&table).is_mapped(at, 16 << 12, std::iter::empty()));
            assert!(!Look::new(&table).is_mapped(address(1), 2 << 12, [address(5)].into_iter()));
        }
    }

    #[test]
    fn a_scan_tells_of_as_many_pages_as_it_has_stretches_for() {
        let (at, table) = every_third_mapped();
        let mut stretches = Vec::new();
        let known = table.scan(at >> 12, LOOK, IS_PRESENT, |a, b| stretches.push((a, b))).unwrap();
        assert_eq!(stretches.len(), STRETCHES);
        assert!((STRETCHES * 3 - 2..=STRETCHES * 3).contains(&known), "{known}");
        assert_eq!(stretches[1], (3, 4));
    }
}
