//! Measures a page walk by reads of pages that all are the kernel's one page of zeros, so that only translation differs.
//!
//! Each address depends on what the read before it found, which is zero. Few pages stay in the TLB, many do not; all of
//! them have the same cache lines.

use std::time::Instant;

use super::super::BenchError;
use super::super::mapping::Mapping;

/// Mapped pages of a size, so many that translating them needs walks.
pub(super) struct Pages {
    mapping: Mapping,
    shift: u32,
    count: usize,
}

/// The number of reads of one measurement.
const READS: u64 = 200_000;
/// A number of pages that every TLB holds.
const FEW: usize = 8;

impl Pages {
    /// Maps 4K pages.
    pub(super) fn small() -> Result<Self, BenchError> {
        let count = 16_384;
        Ok(Self { mapping: Mapping::new(count << 12, libc::MADV_NOHUGEPAGE)?, shift: 12, count }.touched())
    }

    /// Maps 2M pages; `None` where the kernel gives none for reading.
    pub(super) fn huge() -> Result<Option<Self>, BenchError> {
        let count = 4096;
        let mapping = Mapping::new((count + 1) << 21, libc::MADV_HUGEPAGE)?;
        let pages = Self { mapping, shift: 21, count };
        let before = faults();
        let pages = pages.touched();
        // Reads at other places of pages that are there do not fault.
        let after = faults();
        for page in 0..count {
            pages.read(pages.base() + (page << 21) + (5 << 12));
        }
        let huge = faults() - after < count as i64 / 8 && after - before <= count as i64 + 64;
        Ok(huge.then_some(pages))
    }

    fn base(&self) -> usize {
        self.mapping.at().next_multiple_of(1 << self.shift)
    }

    fn read(&self, address: usize) -> u64 {
        // SAFETY: callers stay within the mapping, which is readable.
        unsafe { (address as *const u64).read_volatile() }
    }

    fn touched(self) -> Self {
        for page in 0..self.count {
            self.read(self.base() + (page << self.shift));
        }
        self
    }

    /// Returns the nanoseconds of a read among `count` pages.
    fn read_ns(&self, count: usize) -> f64 {
        let (base, mask, shift) = (self.base(), count as u64 - 1, self.shift);
        let mut state = 1_u64;
        let begin = Instant::now();
        for _ in 0..READS {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let page = (state >> 40 & mask) as usize;
            state += self.read(base + (page << shift));
        }
        std::hint::black_box(state);
        begin.elapsed().as_secs_f64() * 1e9 / READS as f64
    }

    /// Returns the nanoseconds that a read takes longer because of its walk.
    pub(super) fn walk_ns(&self) -> f64 {
        (self.read_ns(self.count) - self.read_ns(FEW)).max(0.0)
    }
}

/// Returns the number of minor faults of this process so far.
fn faults() -> i64 {
    // SAFETY: getrusage fills the structure.
    unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage.ru_minflt
    }
}
