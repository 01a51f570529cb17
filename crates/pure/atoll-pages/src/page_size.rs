//! The sizes a page may have: what the runtime moves at once.
//!
//! `atoll-memory` and the simulator compute addresses with it, the commands parse it. Source: `papers/cmcp.txt`,
//! section 4 (Linux has no 64K page on x86; there it is 16 pages that are moved together).

use core::fmt;
use core::str::FromStr;

/// The size of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageSize {
    /// 4096 bytes.
    K4,
    /// 65,536 bytes.
    K64,
    /// 2,097,152 bytes.
    M2,
}

impl PageSize {
    /// All sizes, smallest first.
    pub const ALL: [Self; 3] = [Self::K4, Self::K64, Self::M2];

    /// The power of two of its bytes.
    pub const fn shift(self) -> u32 {
        match self {
            Self::K4 => 12,
            Self::K64 => 16,
            Self::M2 => 21,
        }
    }

    /// Bytes of such a page.
    pub const fn bytes(self) -> usize {
        1 << self.shift()
    }

    /// How many pages hold `bytes` bytes.
    pub const fn pages(self, bytes: u64) -> u64 {
        bytes.div_ceil(1 << self.shift())
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::K4 => "4K",
            Self::K64 => "64K",
            Self::M2 => "2M",
        })
    }
}

/// What was written is no page size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageSizeError;

impl fmt::Display for PageSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a page is 4K, 64K or 2M")
    }
}

impl core::error::Error for PageSizeError {}

impl FromStr for PageSize {
    type Err = PageSizeError;

    fn from_str(text: &str) -> Result<Self, PageSizeError> {
        match text {
            "4K" | "4k" => Ok(Self::K4),
            "64K" | "64k" => Ok(Self::K64),
            "2M" | "2m" => Ok(Self::M2),
            _ => Err(PageSizeError),
        }
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn sizes_are_read_as_written() {
        for size in PageSize::ALL {
            assert_eq!(size.to_string().parse(), Ok(size));
            assert_eq!(size.bytes(), 1 << size.shift());
            assert_eq!((size.pages(0), size.pages(1), size.pages(size.bytes() as u64 + 1)), (0, 1, 2));
        }
        assert_eq!("4KB".parse::<PageSize>(), Err(PageSizeError));
    }
}
