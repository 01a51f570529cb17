//! Far memory: where pages go when near memory has no room for them.
//!
//! A store is made in the master before workers exist; its state is shared memory that every worker inherits
//! at the same address. Each worker attaches a [`Lane`] of its own and then stores and loads pages from its
//! fault handler.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic. System calls go through
//! `rustix` (raw, no libc symbol, no errno). The deepest stack is zstd's: give the handler 64 KiB.
//!
//! Callers guarantee that no two calls are at work on the same page at once; calls for different pages may
//! be, from any workers. [`FarStore::discard`] counts as a call for every page of its range.

mod ages;
mod auto;
mod behind;
mod compressed;
mod descriptor;
mod error;
mod file;
mod file_places;
pub mod hosts;
mod lane;
mod lz4;
mod page_set;
pub mod pressure;
mod ram;
mod rest;
mod ring;
mod shared;
mod slots;
mod spec;
mod split;
mod table;
mod zstd;

pub use auto::AutoStore;
pub use compressed::{Codec, CompressedStore};
pub use error::{FarError, FarOp};
pub use file::{FileStore, default_dir};
pub use hosts::HostsStore;
pub use lane::Lane;
pub use lz4::Lz4;
pub use ram::RamStore;
pub use shared::mapped;
pub use spec::{FarSpec, FarSpecError};
pub use zstd::Zstd;

/// One page on its way to or from far memory. To make one is to promise that its memory is valid.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    /// Index of the page, below the number of pages of the store.
    pub(crate) page: u64,
    /// The page in near memory: page_size bytes, aligned to 4096 at least, valid during the call. The kernel may
    /// access it in the worker's stead, so it must not be a mapping that reports faults to userfaultfd
    /// unless the page is present: pass an address in an unregistered alias of the arena.
    pub(crate) memory: *mut u8,
}

impl Transfer {
    /// A place in an array that holds no page yet. It is passed to no call.
    pub(crate) const NONE: Transfer = Transfer { page: 0, memory: std::ptr::null_mut() };

    /// Page `page`, at `memory` in near memory.
    ///
    /// # Safety
    /// In every call the value is passed to, `memory` is aligned to 4096 and valid for the store's page size: for
    /// reads in `store`, when nobody writes it; for reads and writes in `load`, when nobody else uses it.
    pub unsafe fn new(page: u64, memory: *mut u8) -> Self {
        Self { page, memory }
    }
}

/// What a caller of [`FarStore::direct`] is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Write the whole page: from now on it is held.
    Store,
    /// Read the page.
    Load,
}

/// What a far store holds and has done. Bytes; sums over all workers, not one instant's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Pages held.
    pub pages_held: u64,
    /// Their size in near memory.
    pub bytes_before: u64,
    /// Their size after compression.
    pub bytes_after: u64,
    /// Memory or disk taken for them, with unused room; tables are not counted.
    pub bytes_reserved: u64,
    /// The part of that in which `auto` has pages as they are, as the machine has plenty of memory.
    pub bytes_plain: u64,
    /// Bytes of pages stored so far.
    pub bytes_stored: u64,
    /// Bytes of pages loaded so far.
    pub bytes_loaded: u64,
    /// Pages whose store needed no write: their copy in the file was the same already.
    pub writes_avoided: u64,
}

/// How large a far store is; fixed for a run.
#[derive(Debug, Clone, Copy)]
pub struct FarConfig {
    /// Bytes: a power of two from 4K to 2M.
    pub page_size: usize,
    /// Pages are named by index below this; only pages that are stored cost memory.
    pub pages: u64,
    /// Workers that will use the store, 1 at least, and one more where [`FarStore::give_back`] is called.
    pub lanes: u32,
    /// The most bytes to take: memory for `lz4` and `zstd` (in whole chunks of 16 pages, 1M at most),
    /// pages held for the others.
    pub limit_bytes: Option<u64>,
    /// The most bytes of memory that `auto` takes before it goes to its file.
    pub memory_bytes: u64,
    /// Whether memory that the store takes is taken off near memory. A page then lies in memory only if it takes less there.
    pub counts_as_near: bool,
    /// The lenders of `hosts`, and of `auto` where there are any.
    pub lenders: Option<hosts::lenders::Lenders>,
}

impl FarConfig {
    fn check(&self) -> Result<(), FarError> {
        if !self.page_size.is_power_of_two() || !(4096..=2 << 20).contains(&self.page_size) {
            return Err(FarError::Unavailable("the page size must be a power of two from 4K to 2M"));
        }
        if self.pages == 0 || self.pages > (1 << 46) / self.page_size as u64 {
            return Err(FarError::Unavailable("far memory takes 1 page at least and 64 TiB at most"));
        }
        Ok(())
    }

    fn has_lenders(&self) -> bool {
        self.lenders.is_some_and(|lenders| lenders.settings.count > 0)
    }

    fn limit_pages(&self) -> u64 {
        self.limit_bytes.map_or(u64::MAX, |bytes| bytes / self.page_size as u64)
    }
}

/// A place for pages outside near memory.
pub trait FarStore {
    /// Worker `index`'s way in; see [`Lane::attach`].
    ///
    /// # Errors
    /// `Unavailable` if the index is not below the number of lanes.
    fn lane(&self, index: u32) -> Result<Lane, FarError>;

    /// Writes pages to far memory. Neighbours should come one after the other, sorted by page.
    ///
    /// # Errors
    /// `Full`, `Io`, `OutOfRange`, or `Unavailable` for a lane that is not attached. The caller keeps all pages of
    /// the call near: some may be stored, of the others even an older far copy may be gone.
    fn store(&self, lane: &mut Lane, pages: &[Transfer]) -> Result<(), FarError>;

    /// Reads pages back; far memory keeps its copies until `discard` or the next `store`.
    ///
    /// # Errors
    /// `NotStored`, `Damaged`, `Io`, `OutOfRange`, `Unavailable`. The memory of all pages of the call is undefined.
    fn load(&self, lane: &mut Lane, pages: &[Transfer]) -> Result<(), FarError>;

    /// The program freed these pages: their far copies are worthless, their space returns. Pages that are not held
    /// cost next to nothing, so a range may be as large as the arena.
    fn discard(&self, first: u64, count: u64);

    /// The page's bytes in far memory, valid in every worker, if this store holds pages plainly in memory: the
    /// caller can then let the kernel copy straight from or to them. None: use `load` and `store`.
    ///
    /// # Errors
    /// As for `store` and `load`.
    fn direct(&self, lane: &Lane, page: u64, access: Access) -> Result<Option<*mut u8>, FarError> {
        let _ = (lane, page, access);
        Ok(None)
    }

    /// Whether pages that leave near memory may ever stay where they lie.
    fn leaves_in_place(&self) -> bool {
        false
    }

    /// Whether a page that leaves near memory may stay where it lies, mapped by nobody. If so, it counts as held from now on, and the store
    /// has no other copy of it.
    ///
    /// # Errors
    /// As for `store`.
    fn leave_in_place(&self, page: u64) -> Result<bool, FarError> {
        let _ = page;
        Ok(false)
    }

    /// Whether all of `count` pages from `first` on, none of which the store holds, may stay where they lie; if so, as for
    /// [`leave_in_place`](Self::leave_in_place).
    ///
    /// # Errors
    /// As for `store`.
    fn leave_all_in_place(&self, first: u64, count: u64) -> Result<bool, FarError> {
        let _ = (first, count);
        Ok(false)
    }

    /// Whether the page was left where it lies: then its content is there, and not in the store.
    fn is_in_place(&self, page: u64) -> bool {
        let _ = page;
        false
    }

    /// Whether `count` pages from `first` on were all left where they lie.
    fn are_in_place(&self, first: u64, count: u64) -> bool {
        let _ = (first, count);
        false
    }

    /// A page that was left where it lies and is to be moved, as the machine has no memory to spare any more: one after the other.
    fn next_to_pack(&self) -> Option<u64> {
        None
    }

    /// A page in memory that is to be moved by [`move_pages`](Self::move_pages): one after the other.
    fn next_to_move(&self) -> Option<u64> {
        None
    }

    /// Moves pages, whose locks the caller has, within memory, so that less of it is free between them, or to the store behind it, by way of
    /// the given memory. What cannot be moved stays.
    fn move_pages(&self, lane: &mut Lane, pages: &[Transfer]) {
        let _ = (lane, pages);
    }

    /// What was left where it lies of `count` pages from `first` on is near again, and no longer held.
    fn take_from_place(&self, first: u64, count: u64) {
        let _ = (first, count);
    }

    /// What the store holds and has done.
    fn usage(&self) -> Usage;

    /// Whether pages lie in memory that lenders may want back.
    fn borrows(&self) -> bool {
        false
    }

    /// Moves pages away from lenders that want their memory back, and gives it back: one pass over all pages, by one thread of the run
    /// at most, which uses a lane of its own. Whether there was anything to do.
    fn give_back(&self, lane: &mut Lane) -> bool {
        let _ = lane;
        false
    }

    /// Bytes of this host's memory that pages take in the store, with unused room; cheap enough to be asked for each batch of pages.
    fn memory_bytes(&self) -> u64;

    /// Frees the memory that a loaded page's copy takes, where that is taken off near memory: one page would take the place of two
    /// there. Returns whether the store still holds the page. To be called with the page's lock, once its content is in near memory.
    fn let_go(&self, page: u64) -> bool {
        let _ = page;
        true
    }
}

/// `OutOfRange` if any of the pages is.
fn check_range(pages: &[Transfer], limit: u64) -> Result<(), FarError> {
    match pages.iter().find(|t| t.page >= limit) {
        Some(t) => Err(FarError::OutOfRange { page: t.page }),
        None => Ok(()),
    }
}

/// The far store that a run's `--far` names.
pub enum AnyFar {
    /// `ram`
    Ram(RamStore),
    /// `lz4`
    Lz4(CompressedStore<Lz4>),
    /// `zstd`
    Zstd(CompressedStore<Zstd>),
    /// `file` and `file:DIR`
    File(FileStore),
    /// `hosts`
    Hosts(Box<HostsStore>),
    /// `auto`
    Auto(Box<AutoStore>),
}

impl AnyFar {
    /// Sets the store up: in the master, before workers exist, outside the handler.
    ///
    /// # Errors
    /// `Unavailable` and `Io` say what is missing and what to do.
    pub fn new(spec: &FarSpec, config: &FarConfig) -> Result<Self, FarError> {
        Ok(match spec {
            FarSpec::Ram => Self::Ram(RamStore::new(config)?),
            FarSpec::Lz4 => Self::Lz4(CompressedStore::new(config)?),
            FarSpec::Zstd => Self::Zstd(CompressedStore::new(config)?),
            FarSpec::File(dir) => Self::File(FileStore::new(dir.as_deref(), config)?),
            FarSpec::Hosts => Self::Hosts(Box::new(HostsStore::new(config)?)),
            FarSpec::Auto => Self::Auto(Box::new(AutoStore::new(config)?)),
        })
    }
}

macro_rules! each {
    ($any:expr, $store:ident => $call:expr) => {
        match $any {
            AnyFar::Ram($store) => $call,
            AnyFar::Lz4($store) => $call,
            AnyFar::Zstd($store) => $call,
            AnyFar::File($store) => $call,
            AnyFar::Hosts($store) => $call,
            AnyFar::Auto($store) => $call,
        }
    };
}

impl FarStore for AnyFar {
    fn lane(&self, index: u32) -> Result<Lane, FarError> {
        each!(self, s => s.lane(index))
    }

    fn store(&self, lane: &mut Lane, pages: &[Transfer]) -> Result<(), FarError> {
        each!(self, s => s.store(lane, pages))
    }

    fn load(&self, lane: &mut Lane, pages: &[Transfer]) -> Result<(), FarError> {
        each!(self, s => s.load(lane, pages))
    }

    fn discard(&self, first: u64, count: u64) {
        each!(self, s => s.discard(first, count));
    }

    fn direct(&self, lane: &Lane, page: u64, access: Access) -> Result<Option<*mut u8>, FarError> {
        each!(self, s => s.direct(lane, page, access))
    }

    fn leaves_in_place(&self) -> bool {
        each!(self, s => s.leaves_in_place())
    }

    fn leave_in_place(&self, page: u64) -> Result<bool, FarError> {
        each!(self, s => s.leave_in_place(page))
    }

    fn leave_all_in_place(&self, first: u64, count: u64) -> Result<bool, FarError> {
        each!(self, s => s.leave_all_in_place(first, count))
    }

    fn is_in_place(&self, page: u64) -> bool {
        each!(self, s => s.is_in_place(page))
    }

    fn are_in_place(&self, first: u64, count: u64) -> bool {
        each!(self, s => s.are_in_place(first, count))
    }

    fn next_to_pack(&self) -> Option<u64> {
        each!(self, s => s.next_to_pack())
    }

    fn next_to_move(&self) -> Option<u64> {
        each!(self, s => s.next_to_move())
    }

    fn move_pages(&self, lane: &mut Lane, pages: &[Transfer]) {
        each!(self, s => s.move_pages(lane, pages));
    }

    fn take_from_place(&self, first: u64, count: u64) {
        each!(self, s => s.take_from_place(first, count));
    }

    fn usage(&self) -> Usage {
        each!(self, s => s.usage())
    }

    fn borrows(&self) -> bool {
        each!(self, s => s.borrows())
    }

    fn give_back(&self, lane: &mut Lane) -> bool {
        each!(self, s => s.give_back(lane))
    }

    fn memory_bytes(&self) -> u64 {
        each!(self, s => s.memory_bytes())
    }

    fn let_go(&self, page: u64) -> bool {
        each!(self, s => s.let_go(page))
    }
}
