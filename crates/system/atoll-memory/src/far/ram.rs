//! Far memory as plain memory: `ram`, and the first tier of `auto`.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::lane::{Lane, Lanes};
use super::shared::Mapping;
use super::table::Table;
use super::{Access, FarConfig, FarError, FarStore, Transfer, Usage};

/// Far memory as one sparse shared mapping, page `i` at `i` times the page size.
pub struct RamStore {
    memory: Mapping,
    /// A bit per page: whether it is held.
    held: Table,
    lanes: Arc<Lanes>,
    /// Where the pages held are counted in the lanes' memory.
    tier: usize,
    pages: u64,
    page_size: usize,
    limit_pages: u64,
}

impl RamStore {
    /// Sets the store up; in the master, before workers exist.
    ///
    /// # Errors
    /// `Io` or `Unavailable` if memory cannot be mapped or the configuration makes no sense.
    pub fn new(config: &FarConfig) -> Result<Self, FarError> {
        config.check()?;
        Self::with_lanes(config, Lanes::new(config.lanes, 0, 0, None, 0)?, 0)
    }

    /// The store on `lanes` that other stores use, too, which count its pages as those of `tier`.
    pub(crate) fn with_lanes(config: &FarConfig, lanes: Arc<Lanes>, tier: usize) -> Result<Self, FarError> {
        // Smaller pages would take 2M of memory for each lone page stored.
        let huge = config.page_size >= 2 << 20;
        let bytes = config.pages.saturating_mul(config.page_size as u64);
        Ok(Self {
            memory: Mapping::new(bytes, c"atoll far memory", huge)?,
            held: Table::new(config.pages.div_ceil(64))?,
            lanes,
            tier,
            pages: config.pages,
            page_size: config.page_size,
            limit_pages: config.limit_pages(),
        })
    }

    fn at(&self, page: u64) -> *mut u8 {
        // SAFETY: callers checked page < pages, so this is inside the mapping.
        unsafe { self.memory.base().add(page as usize * self.page_size) }
    }

    fn hold(&self, page: u64) -> Result<(), FarError> {
        let (word, bit) = (self.held.word(page / 64), 1 << (page % 64));
        // Neighbouring pages share a word with other workers; the bit itself is ours.
        if word.load(Relaxed) & bit == 0 {
            self.lanes.hold(self.tier, self.limit_pages)?;
            word.fetch_or(bit, Relaxed);
        }
        Ok(())
    }

    /// Whether the store holds the page.
    pub(crate) fn holds(&self, page: u64) -> bool {
        self.held.load(page / 64) >> (page % 64) & 1 != 0
    }
}

impl FarStore for RamStore {
    fn lane(&self, index: u32) -> Result<Lane, FarError> {
        self.lanes.lane(index)
    }

    fn store(&self, lane: &mut Lane, pages: &[Transfer]) -> Result<(), FarError> {
        self.lanes.enter(lane)?;
        super::check_range(pages, self.pages)?;
        for &Transfer { page, memory } in pages {
            self.hold(page)?;
            // SAFETY: memory has page_size bytes by the caller's contract, far memory never overlaps it.
            unsafe { std::ptr::copy_nonoverlapping(memory, self.at(page), self.page_size) };
            lane.counters().bytes_stored.fetch_add(self.page_size as u64, Relaxed);
        }
        Ok(())
    }

    fn load(&self, lane: &mut Lane, pages: &[Transfer]) -> Result<(), FarError> {
        self.lanes.enter(lane)?;
        super::check_range(pages, self.pages)?;
        for &Transfer { page, memory } in pages {
            if !self.holds(page) {
                return Err(FarError::NotStored { page });
            }
            // SAFETY: as in store.
            unsafe { std::ptr::copy_nonoverlapping(self.at(page), memory, self.page_size) };
            lane.counters().bytes_loaded.fetch_add(self.page_size as u64, Relaxed);
        }
        Ok(())
    }

    fn discard(&self, first: u64, count: u64) {
        let end = first.saturating_add(count).min(self.pages);
        let (mut lowest, mut highest, mut dropped) = (u64::MAX, 0, 0);
        self.held.visit(first / 64..end.div_ceil(64), |index, word| {
            let base = index * 64;
            let low = u64::MAX << first.saturating_sub(base).min(63);
            let high = u64::MAX >> (base + 64).saturating_sub(end).min(63);
            let gone = word.fetch_and(!(low & high), Relaxed) & low & high;
            if gone != 0 {
                dropped += u64::from(gone.count_ones());
                lowest = lowest.min(base + u64::from(gone.trailing_zeros()));
                highest = highest.max(base + 63 - u64::from(gone.leading_zeros()));
            }
        });
        if dropped > 0 {
            // One hole from the first page held to the last: between them are only pages of this call.
            let bytes = (highest + 1 - lowest) as usize * self.page_size;
            self.memory.release(lowest as usize * self.page_size, bytes);
            self.lanes.drop_held(self.tier, dropped);
        }
    }

    fn direct(&self, lane: &Lane, page: u64, access: Access) -> Result<Option<*mut u8>, FarError> {
        if page >= self.pages {
            return Err(FarError::OutOfRange { page });
        }
        let counters = lane.counters();
        match access {
            Access::Store => {
                self.hold(page)?;
                counters.bytes_stored.fetch_add(self.page_size as u64, Relaxed);
            }
            Access::Load if !self.holds(page) => return Err(FarError::NotStored { page }),
            Access::Load => {
                counters.bytes_loaded.fetch_add(self.page_size as u64, Relaxed);
            }
        }
        Ok(Some(self.at(page)))
    }

    fn usage(&self) -> Usage {
        let mut usage = self.lanes.usage(self.page_size as u64);
        (usage.bytes_after, usage.bytes_reserved) = (usage.bytes_before, usage.bytes_before);
        usage
    }

    fn memory_bytes(&self) -> u64 {
        self.usage().bytes_reserved
    }
}
