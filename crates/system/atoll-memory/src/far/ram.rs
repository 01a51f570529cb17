//! Far memory as plain memory: `ram`, and the first tier of `auto`.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::lane::{Lane, Lanes};
use super::page_set::PageSet;
use super::shared::Mapping;
use super::{Access, FarConfig, FarError, FarStore, Transfer, Usage};

/// Far memory as one sparse shared mapping, page `i` at `i` times the page size.
pub struct RamStore {
    memory: Mapping,
    held: PageSet,
    lanes: Arc<Lanes>,
    pages: u64,
    page_size: usize,
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
            held: PageSet::new(config.pages, Arc::clone(&lanes), tier, config.limit_pages())?,
            lanes,
            pages: config.pages,
            page_size: config.page_size,
        })
    }

    fn at(&self, page: u64) -> *mut u8 {
        // SAFETY: callers checked page < pages, so this is inside the mapping.
        unsafe { self.memory.base().add(page as usize * self.page_size) }
    }

    /// Whether the store holds the page.
    pub(crate) fn holds(&self, page: u64) -> bool {
        self.held.has(page)
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
            self.held.add(page)?;
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
        if let Some(removed) = self.held.remove(first, count) {
            // One hole from the first page held to the last: between them are only pages of this call.
            let bytes = (removed.last + 1 - removed.first) as usize * self.page_size;
            self.memory.release(removed.first as usize * self.page_size, bytes);
        }
    }

    fn direct(&self, lane: &Lane, page: u64, access: Access) -> Result<Option<*mut u8>, FarError> {
        if page >= self.pages {
            return Err(FarError::OutOfRange { page });
        }
        let counters = lane.counters();
        match access {
            Access::Store => {
                self.held.add(page)?;
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
