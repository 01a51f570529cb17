//! The pages a segment can be made of, from those a TLB reaches furthest with, and how many the kernel has.
//!
//! `make` goes down this list; `atoll doctor` reads the same numbers.

use std::path::PathBuf;

/// Pages of a segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub enum PageKind {
    /// Reserved pages of 1 GiB.
    Huge1G = 1,
    /// Reserved pages of 2 MiB.
    Huge2M = 2,
    /// 4 KiB pages that the kernel was asked to collapse to 2 MiB.
    Transparent = 3,
    /// 4 KiB pages: it would not collapse them.
    Small = 4,
}

impl PageKind {
    /// All that can be asked for, best first.
    pub const ALL: [PageKind; 3] = [PageKind::Huge1G, PageKind::Huge2M, PageKind::Transparent];

    /// The kind with this number.
    pub fn from_number(number: u32) -> Option<PageKind> {
        [PageKind::Huge1G, PageKind::Huge2M, PageKind::Transparent, PageKind::Small]
            .into_iter()
            .find(|kind| *kind as u32 == number)
    }

    /// Bytes of a page, which a segment is a multiple of.
    pub fn bytes(self) -> usize {
        match self {
            PageKind::Huge1G => 1 << 30,
            PageKind::Huge2M | PageKind::Transparent | PageKind::Small => 2 << 20,
        }
    }

    /// As it is written on the command line, and in records.
    pub fn word(self) -> &'static str {
        match self {
            PageKind::Huge1G => "1G",
            PageKind::Huge2M => "2M",
            PageKind::Transparent => "thp",
            PageKind::Small => "4K",
        }
    }

    /// In a sentence.
    pub fn name(self) -> &'static str {
        match self {
            PageKind::Huge1G => "1G pages",
            PageKind::Huge2M => "2M pages",
            PageKind::Transparent => "transparent huge pages",
            PageKind::Small => "4K pages",
        }
    }

    /// The flags of `memfd_create` for a file of such pages.
    pub fn memfd_flags(self) -> u32 {
        match self {
            PageKind::Huge1G => libc::MFD_HUGETLB | libc::MFD_HUGE_1GB,
            PageKind::Huge2M => libc::MFD_HUGETLB | libc::MFD_HUGE_2MB,
            PageKind::Transparent | PageKind::Small => 0,
        }
    }

    /// Where the kernel counts its reserved pages of this kind; none for pages that are not reserved.
    pub fn pool(self) -> Option<PathBuf> {
        match self {
            PageKind::Huge1G | PageKind::Huge2M => {
                Some(format!("/sys/kernel/mm/hugepages/hugepages-{}kB", self.bytes() >> 10).into())
            }
            PageKind::Transparent | PageKind::Small => None,
        }
    }

    /// Reserved pages of this kind that nobody has a claim on; 0 where there are none.
    pub fn free(self) -> u64 {
        let Some(pool) = self.pool() else { return 0 };
        let read = |name: &str| {
            std::fs::read_to_string(pool.join(name)).ok().and_then(|t| t.trim().parse::<u64>().ok())
        };
        read("free_hugepages").unwrap_or(0).saturating_sub(read("resv_hugepages").unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_kinds_are_each_others() {
        for kind in PageKind::ALL {
            assert_eq!(PageKind::from_number(kind as u32), Some(kind));
        }
        assert_eq!(PageKind::from_number(0), None);
        assert_eq!(PageKind::from_number(9), None);
    }
}
